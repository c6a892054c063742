"""The errors of the controller."""

from pyspark_klog.errors import KlogError


class ControllerMoved(KlogError):
    """This broker is the controller no more, and nothing was written."""


class BrokersChanged(KlogError):
    """A broker has registered since the registrations were read, and nothing was written: what was
    to be written may be about its earlier life."""


class PictureOutdated(KlogError):
    """ZooKeeper has something else than the controller knows, or does not do what it must: all is
    to be read anew."""


class WriteDenied(PictureOutdated):
    """An access list does not allow this, and nothing was written. The znode is named in the log.
    Whoever can go on without it does; who asked for it is refused, with UNKNOWN_SERVER_ERROR."""


class WriteRefused(PictureOutdated):
    """ZooKeeper would never take this write, most likely for its size, and nothing was written.
    Whoever can tell who asked for it answers so."""
