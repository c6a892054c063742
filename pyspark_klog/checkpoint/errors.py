"""The errors of the checkpoint commands."""

from pyspark_klog.errors import KlogError


class CheckpointError(KlogError):
    """A checkpoint, or a file in it, cannot be read or written."""


class MoveRefused(KlogError):
    """The offsets of a checkpoint cannot be moved as the user asked."""
