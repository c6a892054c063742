"""Connections break, the broker restarts, leaders move in the middle of a task: tried again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_klog import testing
from pyspark_klog.protocol.keys import ApiKey
from tests.support.parity.fixtures import new_kafka
from tests.support.parity.scenarios import Engine, Parity
from tests.support.peers import kafka_release
from tests.support.spark.faulty_front import FaultyFront
from tests.support.spark.topics import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS = 1_500
SMALL_FETCHES = {"kafka__max__partition__fetch__bytes": 20_000, "kafka__fetch__max__bytes": 20_000}
SMALL_REQUESTS = {"kafka__max__request__size": 20_000, "kafka__batch__size": 10_000}
FAULTS = ("connection loss", "broker restart")


@dataclass
class Fronted:
    """A broker behind a front that every client goes through."""

    front: FaultyFront
    faults: dict[str, Callable[[], None]]

    def breaks(self, key: ApiKey, fault: str) -> None:
        """Let a fault happen while the seventh request of a kind waits for its answer."""
        self.front.clear()
        self.front.at(key, 7, self.faults[fault])


@pytest.fixture(scope="module")
def kafka_in_front() -> Iterator[Fronted]:
    with FaultyFront() as front:
        listeners = f"PLAINTEXT://{front.address}"
        with new_kafka(kafka_release() or "", {"advertised.listeners": listeners}) as server:
            front.broker = ("127.0.0.1", server.port)

            def restart() -> None:
                server.restart()
                front.cut()

            yield Fronted(front, {"connection loss": front.cut, "broker restart": restart})


@pytest.fixture(scope="module")
def klog_in_front() -> Iterator[Fronted]:
    # Two nodes, of which the first one leads until a test says otherwise.
    with FaultyFront(nodes=2) as front:
        listeners = f"PLAINTEXT://{front.address}"
        with testing.Broker(num_partitions=1, advertised_listeners=listeners) as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            front.broker = (host, int(port))

            def restart() -> None:
                broker.kill()
                broker.start()
                front.cut()

            def move() -> None:
                front.leader = 1

            def stop_broker() -> None:
                front.broker = (host, 1)  # no broker listens there
                front.cut()

            faults = {"connection loss": front.cut, "broker restart": restart}
            yield Fronted(front, {**faults, "leader change": move, "end": stop_broker})


@pytest.fixture
def fronted(request: pytest.FixtureRequest) -> Fronted:
    name = "klog_in_front" if kafka_release() is None else "kafka_in_front"
    made: Fronted = request.getfixturevalue(name)
    return made


@pytest.fixture
def parity(fronted: Fronted, request: pytest.FixtureRequest) -> Iterator[Parity]:
    """The usual fixture, with the front in between."""
    behind = fronted.front.broker
    with_peer = kafka_release() is not None
    made = Parity(fronted.front.address, with_peer=with_peer, test=request.node.nodeid)
    yield made
    fronted.front.clear()
    fronted.front.broker = behind
    made.close()


@pytest.fixture
def klog_alone(klog_in_front: Fronted) -> Iterator[Parity]:
    """klog alone, for cases that rewrite responses in the versions of its client."""
    behind = klog_in_front.front.broker
    made = Parity(klog_in_front.front.address, with_peer=False)
    yield made
    klog_in_front.front.clear()
    klog_in_front.front.broker = behind
    made.close()


def _filled(parity: Parity) -> str:
    """Two partitions of 1,500 records in batches of 10 kB."""
    topic = parity.topics.create(2)
    for partition in (0, 1):
        for first in range(0, RECORDS, 50):
            rows = [(None, b"%d" % n + b"v" * 200) for n in range(first, first + 50)]
            parity.topics.put(topic, rows, partition, headers=False)
    return topic


def _counted(frame: "DataFrame") -> "DataFrame":
    """How many rows there are by partition, and how many different ones."""
    frame.createOrReplaceTempView("counted")
    return frame.sparkSession.sql(
        "SELECT partition, count(*) AS rows, count(DISTINCT string(value)) AS values "
        "FROM counted GROUP BY partition"
    )


def _rows(frame: "DataFrame") -> list[tuple[int, ...]]:
    return sorted(tuple(row) for row in frame.collect())


# --- sources -------------------------------------------------------------------------------------
def _read(fronted: Fronted, engine: Engine, topic: str, fault: str) -> "DataFrame":
    fronted.breaks(ApiKey.FETCH, fault)
    found = _counted(engine.batch(subscribe=topic, **SMALL_FETCHES)).collect()
    assert fronted.front.all_happened
    return engine.frame(found, "partition int, rows long, values long")


@pytest.mark.parity("source behaviour: connection loss in a task")
@pytest.mark.parity("source behaviour: broker restart in a task")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_read_goes_on(parity: Parity, fronted: Fronted, fault: str) -> None:
    topic = _filled(parity)
    found = parity.same(lambda engine: _read(fronted, engine, topic, fault))
    assert _rows(found) == [(0, RECORDS, RECORDS), (1, RECORDS, RECORDS)]


@pytest.mark.parity("source behaviour: leader change in a task")
def test_a_read_goes_on_at_the_new_leader(klog_alone: Parity, klog_in_front: Fronted) -> None:
    topic = _filled(klog_alone)
    found = klog_alone.same(lambda engine: _read(klog_in_front, engine, topic, "leader change"))
    assert _rows(found) == [(0, RECORDS, RECORDS), (1, RECORDS, RECORDS)]
    assert klog_in_front.front.asked[1, ApiKey.FETCH] > 7


@pytest.mark.parity("source behaviour: no broker any more in a task")
def test_a_read_fails_within_its_limit(klog_alone: Parity, klog_in_front: Fronted) -> None:
    topic = _filled(klog_alone)
    klog_in_front.breaks(ApiKey.FETCH, "end")
    limit = {"kafkaConsumer__pollTimeoutMs": 3_000}
    text = klog_alone.failure(
        "klog", lambda engine: _counted(engine.batch(subscribe=topic, **SMALL_FETCHES, **limit))
    )
    assert f"of {topic}-" in text and "could not be read within 3000 ms" in text


# --- sinks ---------------------------------------------------------------------------------------
def _write(fronted: Fronted, engine: Engine, fault: str) -> "DataFrame":
    topic = engine.topics.create(2)
    fronted.breaks(ApiKey.PRODUCE, fault)
    rows = engine.spark.range(2 * RECORDS).repartition(2)
    rows = rows.selectExpr(
        "concat(string(id), repeat('v', 200)) AS value", "int(id % 2) AS partition"
    )
    engine.append(rows, topic=topic, **SMALL_REQUESTS)
    assert fronted.front.all_happened
    return _counted(engine.batch(subscribe=topic))


@pytest.mark.parity("sink: connection loss in a task")
@pytest.mark.parity("sink: broker restart in a task")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_goes_on(parity: Parity, fronted: Fronted, fault: str) -> None:
    # The broker had taken what was not answered: it is sent again, and not taken twice.
    found = parity.same(lambda engine: _write(fronted, engine, fault))
    assert _rows(found) == [(0, RECORDS, RECORDS), (1, RECORDS, RECORDS)]


@pytest.mark.parity("sink: leader change in a task")
def test_a_write_goes_on_at_the_new_leader(klog_alone: Parity, klog_in_front: Fronted) -> None:
    found = klog_alone.same(lambda engine: _write(klog_in_front, engine, "leader change"))
    assert _rows(found) == [(0, RECORDS, RECORDS), (1, RECORDS, RECORDS)]
    assert klog_in_front.front.asked[1, ApiKey.PRODUCE] > 7


@pytest.mark.parity("sink: no broker any more in a task")
def test_a_write_fails_within_its_limit(klog_alone: Parity, klog_in_front: Fronted) -> None:
    klog_in_front.breaks(ApiKey.PRODUCE, "end")
    limits = {"kafka__delivery__timeout__ms": 3_000, "kafka__request__timeout__ms": 2_000}

    def write(engine: Engine) -> "DataFrame":
        # One task: a second one may still be about to ask for its producer id, and says so.
        rows = engine.spark.range(0, 2 * RECORDS, 1, 1).selectExpr("repeat('v', 200) AS value")
        engine.append(rows, topic=topic, **SMALL_REQUESTS, **limits)
        return rows

    topic = klog_alone.topics.create(1)
    text = klog_alone.failure("klog", write)
    assert "within 3000 ms" in text and "delivery.timeout.ms" in text


# --- streams -------------------------------------------------------------------------------------
@pytest.mark.parity("source behaviour: broker restart in a task")
@pytest.mark.parity("sink: broker restart in a task")
@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS])
def test_a_stream_goes_on(parity: Parity, fronted: Fronted, tmp_path: Path, key: ApiKey) -> None:
    source = _filled(parity)

    def copy(engine: Engine) -> "DataFrame":
        target = engine.topics.create(2)
        stream = engine.stream(
            subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=1_300
        )
        frame = stream.selectExpr("value", "partition")
        fronted.front.clear()
        fronted.front.at(key, 2, fronted.faults["broker restart"])
        run(engine.append_stream(frame, tmp_path / key.name, topic=target), timeout_s=200)
        assert fronted.front.all_happened
        return _counted(engine.batch(subscribe=target))

    found = parity.same(copy)
    assert _rows(found) == [(0, RECORDS, RECORDS), (1, RECORDS, RECORDS)]
