"""Fixtures that the tests with Spark's own connector share with those of tests/spark."""

from tests.support.parity.fixtures import kafka_server, parity, spark, spark_broker

__all__ = ["kafka_server", "parity", "spark", "spark_broker"]
