"""One broker and one session for all tests of the connector."""

from collections.abc import Iterator

import pytest

from pyspark_klog import testing
from tests.support.parity.fixtures import kafka_server, parity, spark, spark_broker
from tests.support.spark.session import quicken_session, restore_session
from tests.support.spark.topics import Topics

__all__ = ["kafka_server", "parity", "spark", "spark_broker", "topics"]

quicken_session()


@pytest.fixture(scope="session")
def topics(spark_broker: testing.Broker) -> Iterator[Topics]:
    made = Topics(spark_broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture(scope="module", autouse=True)
def session_as_it_began() -> Iterator[None]:
    """A file of tests finds no settings, views or queries of the file before it."""
    yield
    restore_session()
