"""The same broker and session as in tests/spark."""

from tests.spark.conftest import spark, spark_broker, topics

__all__ = ["spark", "spark_broker", "topics"]
