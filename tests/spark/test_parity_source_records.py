"""The rows that records become: nulls, old formats, broken times, transactions and gaps.

klog's broker takes no transactions yet and writes no old formats: what those leave on a disk is
put into a log by hand there, and on Apache Kafka's disk as well, to which a transactional client
writes, too.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record_sets import offset_after
from tests.support.eventually import eventually
from tests.support.parity.fixtures import new_kafka
from tests.support.parity.scenarios import Engine, Parity
from tests.support.peers import kafka_release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMITTED = {"kafka__isolation__level": "read_committed"}


def _values(frame: "DataFrame") -> list[int]:
    return sorted(row.n for row in frame.collect())


def _numbers(frame: "DataFrame") -> "DataFrame":
    return frame.selectExpr("offset", "int(string(value)) as n")


# --- logs made by hand ---------------------------------------------------------------------------
def _batch(base_offset: int, *numbers: int, sequence: int | None = None) -> bytes:
    """A batch of numbers; with a sequence it belongs to a transaction of producer 7."""
    builder = (
        BatchBuilder(base_offset)
        if sequence is None
        else BatchBuilder(
            base_offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
    )
    for number in numbers:
        builder.append(None, b"%d" % number, 1_000 + number)
    return builder.build()


def _commit(base_offset: int) -> bytes:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    return end_transaction_batch(
        marker, producer_id=7, producer_epoch=0, timestamp_ms=2_000, base_offset=base_offset
    )


def _legacy(magic: int, base_offset: int, *numbers: int) -> bytes:
    builder = LegacyBuilder(magic, base_offset)
    for number in numbers:
        builder.append(b"k", b"%d" % number, 1_000 + number if magic else -1)
    return builder.build()


_LOGS: dict[str, bytes] = {
    # A log from which an aborted transaction was compacted away: records, markers, and holes.
    "transactions": _batch(0, 0, 1, sequence=0)
    + _commit(2)
    + _batch(6, 2, 3, sequence=2)
    + _batch(8, 4, sequence=4)
    + _commit(9),
    "gaps": _batch(5, 0, 1) + _batch(20, 2) + _batch(40, 3) + _commit(41),
    "v0": _legacy(0, 0, 0, 1) + _legacy(1, 2, 2) + _batch(3, 3),
}


def _malformed() -> bytes:
    builder = BatchBuilder(0)
    builder.append(None, b"0", 1_000)
    builder.append(None, b"1", 2**63 // 1_000 + 1)
    return builder.build()


_LOGS["malformed"] = _malformed()


def _create(servers: str) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1, {"retention.ms": "-1"}) for name in _LOGS])


def _write(data: Path) -> None:
    """Replace the logs on the disk by these; the next start recovers them."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for name, log in _LOGS.items():
        for file in (data / f"{name}-0").glob("0*"):
            file.unlink()
        (data / f"{name}-0" / f"{0:020}.log").write_bytes(log)


def _wait_for_ends(servers: str) -> None:
    """Returns once the broker answers with the end of each log: Kafka is up before it leads, and a
    leader shows records only as its high watermark and last stable offset pass them."""
    wanted = {TopicPartition(name, 0): offset_after(memoryview(log)) for name, log in _LOGS.items()}
    with BlockingClient({"bootstrap.servers": servers}) as client:

        def ends_are_told() -> bool:
            found = list_offsets(client, dict.fromkeys(wanted, LATEST), read_committed=True)
            ends = {partition: at.offset for partition, at in found.items()}
            assert ends == wanted
            return True

        eventually(ends_are_told, deadline_s=60, what="the end of each log that was put there")


@pytest.fixture(scope="module")
def servers_of_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose topics were put on its disk by hand."""
    release = kafka_release()
    if release is not None:
        with new_kafka(release) as server:
            _create(server.bootstrap_servers)
            # Kafka's answer comes before its folders do, and partition.metadata last. A folder that
            # is left without this file is put aside at the next start, as no topic's.
            folders = [server.log_dir / f"{name}-0" for name in _LOGS]
            eventually(
                lambda: all((folder / "partition.metadata").exists() for folder in folders),
                deadline_s=60,
                what="Kafka's folder of each topic",
            )
            server.restart(lambda: _write(server.log_dir))
            _wait_for_ends(server.bootstrap_servers)
            yield server.bootstrap_servers
        return
    data = tmp_path_factory.mktemp("logs") / "data"
    with testing.Broker(data=data) as broker:
        _create(broker.bootstrap_servers)
        broker.stop()
        _write(data)
        broker.start()
        _wait_for_ends(broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.fixture
def logs(servers_of_logs: str, request: pytest.FixtureRequest) -> Iterator[Parity]:
    with_peer = kafka_release() is not None
    made = Parity(servers_of_logs, with_peer=with_peer, test=request.node.nodeid)
    yield made
    made.close()


# --- rows ----------------------------------------------------------------------------------------
@pytest.mark.parity("row: schema")
@pytest.mark.parity("row: null keys and values")
def test_rows_are_what_was_written(parity: Parity, tmp_path: Path) -> None:
    topic = parity.topics.create(2)
    some: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v"), (None, b""), (b"", None)]
    parity.topics.put(topic, some, 1)
    parity.topics.put(topic, [(None, None)], 1, headers=False)
    found = parity.same(lambda engine: engine.batch(subscribe=topic, includeHeaders=True))
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = found.selectExpr(
        "string(key) as key",
        "string(value) as value",
        "partition",
        "offset",
        "unix_millis(timestamp) as at_ms",
        "timestampType as type",
        "headers[0].key as header",
    )
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [
        ("k", "v", 1, 0, 1_000, 0, "h"),
        (None, "", 1, 1, 1_001, 0, "h"),
        ("", None, 1, 2, 1_002, 0, "h"),
        (None, None, 1, 3, 1_000, 0, None),
    ]
    # Without headers the column is null, as the peer has it.
    assert [row.offset for row in found.where("headers is null").collect()] == [3]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, startingOffsets="earliest")
        return engine.drain(frame, tmp_path)

    assert parity.same(stream).columns == found.columns[:-1]


@pytest.mark.parity("row: v0 record")
def test_records_of_the_oldest_formats(logs: Parity) -> None:
    found = logs.same(lambda engine: engine.batch(subscribe="v0", includeHeaders=True))
    rows = found.selectExpr(
        "offset",
        "int(string(value)) as n",
        "unix_millis(timestamp) as at_ms",
        "timestampType as type",
        "headers",
    )
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [
        (0, 0, -1, -1, None),
        (1, 1, -1, -1, None),
        (2, 2, 1_002, 0, None),
        (3, 3, 1_003, 0, None),
    ]


@pytest.mark.parity("row: malformed timestamp")
def test_a_time_that_overflows_microseconds(logs: Parity) -> None:
    words = "KAFKA_MALFORMED_RECORD_TIMESTAMP: the timestamp in milliseconds overflows a 64-bit"
    text = logs.same_failure(lambda engine: engine.batch(subscribe="malformed"), words)
    assert "malformed-0" in text
    before = '{"malformed":{"0":1}}'
    found = logs.same(lambda engine: engine.batch(subscribe="malformed", endingOffsets=before))
    assert found.count() == 1


# --- transactions and gaps -----------------------------------------------------------------------
@pytest.mark.parity("source behaviour: read_committed")
def test_markers_are_no_rows(logs: Parity, tmp_path: Path) -> None:
    def batches(engine: Engine) -> "list[DataFrame]":
        some: tuple[dict[str, str], ...] = ({}, COMMITTED)
        return [_numbers(engine.batch(subscribe="transactions", **options)) for options in some]

    assert logs.same_numbers(batches) == [[0, 1, 2, 3, 4]] * 2

    def stream(engine: Engine) -> "DataFrame":
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1, **COMMITTED}
        frame = engine.stream(subscribe="transactions", **options)
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(logs.same(stream)) == [0, 1, 2, 3, 4]


@pytest.mark.parity("source behaviour: gaps cost no waiting")
def test_gaps_cost_no_waiting(logs: Parity, tmp_path: Path) -> None:
    # The bound of a wait is far beyond the test's own: one that happened would fail it.
    patient = {"kafkaConsumer__pollTimeoutMs": 600_000}
    expected = {
        (5, 42): [0, 1, 2, 3],
        (5, 20): [0, 1],  # at the end
        (7, 21): [2],  # at the start
        (5, 21): [0, 1, 2],  # in the middle
        (7, 20): [],  # a whole batch
        (41, 42): [],  # a marker alone
    }

    def batch(engine: Engine, start: int, end: int) -> "DataFrame":
        ends = {
            "startingOffsets": f'{{"gaps":{{"0":{start}}}}}',
            "endingOffsets": f'{{"gaps":{{"0":{end}}}}}',
        }
        return _numbers(engine.batch(subscribe="gaps", **ends, **patient))

    found = logs.same_numbers(lambda engine: [batch(engine, *each) for each in expected])
    assert found == list(expected.values())

    def stream(engine: Engine) -> "DataFrame":
        options = {"startingOffsets": '{"gaps":{"0":5}}', "maxOffsetsPerTrigger": 9, **patient}
        return _numbers(engine.drain(engine.stream(subscribe="gaps", **options), tmp_path))

    assert _values(logs.same(stream)) == [0, 1, 2, 3]


@pytest.fixture
def transact(parity: Parity) -> Callable[[str, list[list[int]], list[int]], None]:
    """Writes transactions (those at the indices given are aborted), where the broker takes them."""

    def write(topic: str, transactions: list[list[int]], aborted: list[int]) -> None:
        if not parity.has_peer:
            for index, numbers in enumerate(transactions):
                if index not in aborted:
                    parity.topics.put_numbers(topic, numbers)
            return
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": parity.servers, "transactional.id": f"{topic}{time.time_ns()}"}
        )
        producer.init_transactions(60)
        for index, numbers in enumerate(transactions):
            producer.begin_transaction()
            for number in numbers:
                producer.produce(topic, b"%d" % number, partition=0)
            if index in aborted:
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    return write


@pytest.mark.parity("source behaviour: read_committed")
@pytest.mark.parity("source behaviour: gaps cost no waiting")
def test_aborted_records_are_left_out(
    parity: Parity, tmp_path: Path, transact: Callable[[str, list[list[int]], list[int]], None]
) -> None:
    """Aborted at the start, in the middle and at the end, and batches of nothing else."""
    topic = parity.topics.create(1)
    some = [[-1, -2], [0, 1], [-3] * 9, [2], [3, 4, 5], [-4]]
    transact(topic, some, [0, 2, 5])
    options = {"startingOffsets": "earliest", "kafkaConsumer__pollTimeoutMs": 100_000, **COMMITTED}
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **options)))
    assert _values(found) == [0, 1, 2, 3, 4, 5]
    split = {**options, "maxRecordsPerPartition": 2}
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **split)))
    assert _values(found) == [0, 1, 2, 3, 4, 5]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, maxOffsetsPerTrigger=3, **options)
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parity("source behaviour: read_committed")
def test_the_end_is_the_last_stable_offset(parity: Parity, tmp_path: Path) -> None:
    """An open transaction hides what is behind it, until it is committed."""
    topic = parity.topics.create(1)
    parity.topics.put_numbers(topic, [0, 1])
    open_one = None
    if parity.has_peer:
        from confluent_kafka import Producer

        open_one = Producer({"bootstrap.servers": parity.servers, "transactional.id": topic})
        open_one.init_transactions(60)
        open_one.begin_transaction()
        open_one.produce(topic, b"2", partition=0)
        open_one.flush(60)
        parity.topics.put_numbers(topic, [3])

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", **COMMITTED)
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [0, 1]
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **COMMITTED)))
    assert _values(found) == [0, 1]
    if open_one is not None:
        open_one.commit_transaction(60)
    else:
        parity.topics.put_numbers(topic, [2, 3])
    assert _values(parity.same(stream)) == [2, 3]
