"""One broker and one session for all tests of the connector."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pyspark_klog import testing
from tests.support.spark_session import spark_session
from tests.support.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    return spark_session()


@pytest.fixture(scope="session")
def spark_broker() -> Iterator[testing.Broker]:
    with testing.Broker(num_partitions=3) as broker:
        yield broker


@pytest.fixture(scope="session")
def topics(spark_broker: testing.Broker) -> Iterator[Topics]:
    made = Topics(spark_broker.bootstrap_servers)
    yield made
    made.close()
