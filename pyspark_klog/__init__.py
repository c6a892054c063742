"""What a Kafka client or a Spark executor needs: records, protocol, client and the Spark source.

May import: the standard library here; never klog_broker. Names are loaded when first used.
Start reading at records/FORMAT.md, then docs/architecture.md.
"""

from typing import TYPE_CHECKING, Any

from pyspark_klog._version import __version__ as __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "__version__", "register"]


def register(spark: "SparkSession") -> None:
    """Register the format ``klog`` with a session.

    Spark finds it by itself where this package was installed when the session began; this serves
    packages that were installed later, and vendors that want it explicit.
    """
    from pyspark_klog.spark.source import DefaultSource

    spark.dataSource.register(DefaultSource)


def __getattr__(name: str) -> Any:
    # Spark imports every module named pyspark_* in every session and asks it for DefaultSource:
    # without a Spark that has Python data sources there is simply none.
    if name == "DefaultSource":
        try:
            from pyspark_klog.spark.source import DefaultSource
        except ImportError as error:
            raise AttributeError(
                f"no DefaultSource: it needs pyspark 4.0 or later: {error}"
            ) from None
        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
