"""A broker with an empty topic, and an empty lake, for the tests of lake tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from tests.support.lake import KINDS, Lake, committed_client

TOPIC = "Orders.eu-1"


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker(num_partitions=2) as started:
        yield started


@pytest.fixture
def servers(broker: testing.Broker) -> Iterator[str]:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=2)])
        yield broker.bootstrap_servers
        admin.delete_topics([TOPIC])


@pytest.fixture
def client(servers: str) -> Iterator[BlockingClient]:
    with committed_client(servers) as made:
        yield made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
