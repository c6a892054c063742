"""Fixtures of the connector's tests, for the conftest of tests/spark and that of tests/peers."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_klog import testing
from tests.support.parity.scenarios import Parity
from tests.support.peers import NEWEST_KAFKA, KafkaServer, kafka_release
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For klog's broker and for Apache Kafka: no topics are created automatically, so that a deleted
# topic stays deleted while a client still asks for it.
_SETTINGS = {"num_partitions": 3, "auto_create_topics_enable": "false"}
_KAFKA_HEAP_MB = 320


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    return spark_session()


@pytest.fixture(scope="session")
def spark_broker() -> Iterator[testing.Broker]:
    with testing.Broker(**_SETTINGS) as broker:
        yield broker


def new_kafka(
    release: str, properties: Mapping[str, str] | None = None, **more: Any
) -> KafkaServer:
    """Return Apache Kafka with the settings of these tests' klog broker, for a with statement.

    ``more`` is passed on to KafkaServer.
    """
    same = {name.replace("_", "."): str(value) for name, value in _SETTINGS.items()}
    own = {**same, **(properties or {})}
    return KafkaServer(release, properties=own, heap_mb=_KAFKA_HEAP_MB, **more)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """Apache Kafka of the release that this process compares on (`./dev peers parity`)."""
    with new_kafka(kafka_release() or NEWEST_KAFKA) as server:
        yield server


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Iterator[Parity]:
    """Scenarios on klog, and where this process has the peer on that too: `parity/scenarios.py`."""
    name = "spark_broker" if kafka_release() is None else "kafka_server"
    server: testing.Broker | KafkaServer = request.getfixturevalue(name)
    with_peer = kafka_release() is not None
    made = Parity(server.bootstrap_servers, with_peer=with_peer, test=request.node.nodeid)
    yield made
    made.close()
