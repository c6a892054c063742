"""Apache Kafka has forgotten to end a transaction: the exactly-once sink does not commit its rows.

Kafka forgets when a partition has no leader while its markers are sent (docs/exactly-once.md).
Here it is let to take a batch that its coordinator has not heard of, which leaves the same behind.
"""

from collections.abc import Iterator

import pytest

from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from tests.support.client.cases import client_of
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, produced
from tests.support.spark.sink_workers import own_caches
from tests.support.spark.sink_world import World

_VERIFIED_SINCE = 12
"""Before this version of Produce the leader verifies only if a setting asks for it."""


@pytest.fixture(params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    unverified = {"transaction.partition.verification.enable": "false"}
    with KafkaServer(request.param, properties=unverified) as server:
        yield server


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from own_caches(monkeypatch)


def test_rows_that_kafka_left_open_are_named_and_not_committed(kafka: KafkaServer) -> None:
    world = World(kafka.bootstrap_servers)
    world.worker().write_and_end(0, "0")
    with client_of(world.servers) as client:
        dead = TransactionalProducer(client, world.group())
        dead.init_transactions()
        identity = dead.identity
    rows = batch(
        b"1",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    with RawClient(("127.0.0.1", kafka.port)) as raw:
        offset = produced(
            raw, world.topic, rows, version=_VERIFIED_SINCE - 1, transactional_id=world.group()
        )
    with pytest.raises(ExactlyOnceRefused) as refused:
        world.worker().write(1, "1")
    end = f"abort --topic {world.topic} --partition 0 --start-offset {offset}"
    assert f"{world.topic}-0 has an open transaction of {world.group()}" in str(refused.value)
    assert end in str(refused.value)
    tool = "org.apache.kafka.tools.TransactionsCommand"
    ended = kafka.run_tool(tool, "--bootstrap-server", world.servers, *end.split())
    assert ended.returncode == 0, ended
    world.worker().write_and_end(1, "1")
    assert world.committed == ["0", "1"]
