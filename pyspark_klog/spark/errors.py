"""The errors of the data source; their text is all that a user should need."""

from pyspark_klog.errors import KlogError

HOW_TO_GO_ON = "set option failOnDataLoss=false to go on with what is there"
NEW_CHECKPOINT = (
    "give a stream a new checkpointLocation: from the old one it would go on in the midst of the "
    "new topic"
)


class OptionError(KlogError):
    """An option is wrong, or does not go with another one; the text has what was given and what is
    expected."""


class SchemaError(KlogError):
    """Columns that the source does not have, or that the sink cannot write."""


class OffsetError(KlogError):
    """Offsets, as options or from a checkpoint, that cannot be read or do not fit the topics."""


class DataLost(KlogError):
    """Records that were to be read are gone, and failOnDataLoss is true."""


class PlanOutdated(KlogError):
    """Spark reuses the partitions that were planned for an earlier query, and the topics have
    changed since then."""


class PythonUnfit(KlogError):
    """The Python that Spark would run for a source is not there, or of another version."""


class PackageMissing(KlogError):
    """A package that klog needs is not installed in the Python that a worker runs."""
