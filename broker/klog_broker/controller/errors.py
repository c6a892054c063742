"""The errors of the controller."""

from pyspark_klog.errors import KlogError


class ControllerMoved(KlogError):
    """This broker is the controller no more, and nothing was written."""
