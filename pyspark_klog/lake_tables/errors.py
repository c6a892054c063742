"""The errors of lake tables."""

from pyspark_klog.errors import KlogError


class LakeError(KlogError):
    """An error of a lake table, its settings or its catalog; the text says what to do."""


class TableUnavailable(LakeError):
    """The table or its catalog could not be read; the same call may succeed later."""


class OtherTopic(LakeError):
    """The table holds the records of another topic, or of a topic of the same name that was deleted
    and created again, or that is in another cluster."""


class RecordsLost(LakeError):
    """The broker no longer has the records at the table's border."""


class CommitFailed(LakeError):
    """A commit failed, or its outcome is unknown: read the table again before the next commit."""
