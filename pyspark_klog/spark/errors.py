"""The errors of the data source. The text of an error alone should tell a user what to do."""

from pyspark_klog.errors import KlogError

SKIP = "set option failOnDataLoss=false"
"""The beginning of an advice to skip lost records."""
NEW_CHECKPOINT = (
    "give a stream a new checkpointLocation, or move its offsets with python -m pyspark_klog "
    "checkpoint move: at the old ones it would go on in the midst of the new topic"
)


class OptionError(KlogError):
    """An option is wrong, missing, or conflicts with another option; the text says what is
    expected."""


class SchemaError(KlogError):
    """The user gave a read another schema than the source's, or a write lacks a column that the
    sink needs, or has a column or a row that the sink cannot write."""


class OffsetError(KlogError):
    """Offsets from options or a checkpoint cannot be parsed, or the topics do not have the named
    partitions or offsets."""


class DataLost(KlogError):
    """Records that should be read do not exist any more, or an open transaction holds them back.
    Raised if failOnDataLoss is true; under the trigger AvailableNow in any case if topics were
    deleted, created again, or do not reach a planned micro-batch's end any more."""


class PlanOutdated(KlogError):
    """Spark reuses the partitions that were planned for an earlier query, and the topics have
    changed since then."""


class PythonUnfit(KlogError):
    """The Python that Spark would run for a source does not exist, or its minor version differs
    from the driver's."""


class SparkTooOld(KlogError):
    """The installed Spark has no Python data sources: they came with Spark 4.0."""


class PackageMissing(KlogError):
    """A package that klog needs is not installed in the Python in which the data source runs."""
