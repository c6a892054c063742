"""The parts of klog for Kafka clients and Spark: records, protocol, client, Spark source and sink.

No module of the package imports klog_broker. `import pyspark_klog` loads no other package: the
modules that need pyspark or numpy are loaded when a name of theirs is first used.
Start reading at records/FORMAT.md, then docs/architecture.md.
"""

from typing import TYPE_CHECKING, Any

from pyspark_klog._version import __version__ as __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_klog.lake_tables.reading import lake_offsets
    from pyspark_klog.spark.lake import lake
    from pyspark_klog.spark.progress.lag import lag
    from pyspark_klog.spark.progress.listener import LagListener
    from pyspark_klog.spark.sink.batch_writer import BatchWriter

__all__ = [
    "DefaultSource",
    "LagListener",
    "__version__",
    "batch_writer",
    "lag",
    "lake",
    "lake_offsets",
    "register",
]


def register(spark: "SparkSession") -> None:
    """Register the format ``klog`` with a session, and make the session the active one of the
    calling thread.

    Spark finds the format by itself if this package was installed when the session began. Call this
    function if the package was installed later, if your Spark platform requires explicit
    registration, and in each Python thread that writes, except the main thread: a thread cannot
    write until it has an active session.

    :raises KlogError: if Spark is older than 4.0, or the Python of the session's workers does not
        exist or is not of the driver's version
    """
    from pyspark_klog.spark.registration import check_release, check_session

    check_release()
    from pyspark.errors import AnalysisException

    from pyspark_klog.spark.data_source import DefaultSource
    from pyspark_klog.spark.sink.active_session import set_active_session

    check_session(spark)
    set_active_session(spark, replace=True)
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to register a data source that it has already found by itself. Later
        # releases accept the second registration.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def batch_writer(**options: Any) -> "BatchWriter":
    """A function of (df, batch_id) for foreachBatch, which appends a micro-batch to topics, also in
    output mode update, in which Spark refuses klog's sink::

        writer = pyspark_klog.batch_writer(**{"kafka.bootstrap.servers": "host:9092", "topic": "t"})
        counts.writeStream.outputMode("update").foreachBatch(writer).start()

    Options are those of klog's Spark sink. This call checks them.

    :raises KlogError: for invalid options, or if Spark is older than 4.0
    """
    from pyspark_klog.spark.registration import check_release
    from pyspark_klog.spark.sink.batch_writer import BatchWriter

    check_release()

    return BatchWriter(options)


def __getattr__(name: str) -> Any:
    # Spark imports every module named pyspark_* in every session and asks it for DefaultSource.
    # Raise AttributeError if pyspark is older than 4.0: such a Spark has no Python data sources.
    if name == "DefaultSource":
        try:
            from pyspark_klog.spark.data_source import DefaultSource
        except ImportError as error:
            raise AttributeError(
                f"no DefaultSource: it needs pyspark 4.0 or later: {error}"
            ) from None
        return DefaultSource
    if name == "LagListener":
        from pyspark_klog.spark.progress.listener import LagListener

        return LagListener
    if name == "lag":
        from pyspark_klog.spark.progress.lag import lag

        return lag
    if name == "lake":
        from pyspark_klog.spark.lake import lake

        return lake
    if name == "lake_offsets":
        from pyspark_klog.lake_tables.reading import lake_offsets

        return lake_offsets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
