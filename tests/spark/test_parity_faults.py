"""Connections break, the broker restarts, leaders move in the middle of a task: tried again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_klog import testing
from pyspark_klog.protocol.keys import ApiKey
from tests.support.faulty_front import FaultyFront
from tests.support.parity import Engine, Parity
from tests.support.parity_fixtures import new_kafka
from tests.support.peers import kafka_release
from tests.support.spark_topics import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = 3_000
SMALL_FETCHES = {"kafka__max__partition__fetch__bytes": 20_000, "kafka__fetch__max__bytes": 20_000}
SMALL_REQUESTS = {"kafka__max__request__size": 20_000, "kafka__batch__size": 10_000}
VALUE = "concat(string(id), repeat('v', 200)) AS value"


@dataclass
class Fronted:
    """A broker behind a front, which every client goes through."""

    front: FaultyFront
    restart: Callable[[], None]
    go_away: Callable[[], None]
    come_back: Callable[[], None]

    def breaks(self, key: ApiKey, fault: str) -> None:
        """Let a fault happen while the 7th request of a kind waits for its answer."""
        action = {
            "connection loss": self.front.cut,
            "broker restart": self._restart,
            "leader change": self._move,
            "no broker any more": self.go_away,
        }[fault]
        self.front.clear()
        self.front.at(key, 7, action)

    def _restart(self) -> None:
        self.restart()
        self.front.cut()

    def _move(self) -> None:
        self.front.leader = 1


@pytest.fixture(scope="module")
def fronted() -> Iterator[Fronted]:
    release = kafka_release()
    # Two nodes, one of which leads: their answers are rewritten as klog's client speaks them.
    with FaultyFront(nodes=2 if release is None else 1) as front:
        listeners = f"PLAINTEXT://{front.address}"
        if release is not None:
            with new_kafka(release, {"advertised.listeners": listeners}) as server:
                front.broker = ("127.0.0.1", server.port)
                yield Fronted(front, server.restart, front.cut, front.cut)
            return
        with testing.Broker(num_partitions=1, advertised_listeners=listeners) as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            front.broker = (host, int(port))

            def restart() -> None:
                broker.kill()
                broker.start()

            def go_away() -> None:
                front.broker = (host, 1)  # nobody listens there
                front.cut()

            def come_back() -> None:
                front.broker = (host, int(port))

            yield Fronted(front, restart, go_away, come_back)


@pytest.fixture
def parity(fronted: Fronted) -> Iterator[Parity]:
    made = Parity(fronted.front.address, with_peer=kafka_release() is not None)
    yield made
    fronted.front.clear()
    made.close()


def _filled(parity: Parity) -> str:
    """Two partitions of 3,000 records in batches of 10 kB."""
    topic = parity.topics.create(2)
    for partition in (0, 1):
        for first in range(0, RECORDS, 50):
            numbers = range(first, first + 50)
            rows = [(None, b"%d" % n + b"v" * 200) for n in numbers]
            parity.topics.put(topic, rows, partition, headers=False)
    return topic


def _seen(frame: "DataFrame") -> "DataFrame":
    """How many rows there are, and how many different ones, by partition."""
    rows = frame.selectExpr("partition", "offset", "string(value) as value")
    return rows.groupBy("partition").selectExpr_(
    ) if False else rows.groupBy("partition").agg(*_counts())


def _counts() -> list[Any]:
    from pyspark.sql.functions import count_distinct, expr

    return [expr("count(*)").alias("rows"), count_distinct("value").alias("values")]
