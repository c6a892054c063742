"""Rows on their way to batches: partitions, times, dead letters, Spark's rows."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, StructType

from pyspark_klog.client.errors import SettingError, TopicMissing
from pyspark_klog.client.producer.batches import NO_IDENTITY, Identity, RefusedRecord
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_SEQUENCE, TopicPartition
from pyspark_klog.records import layout
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.records.record import Record
from pyspark_klog.spark.errors import SchemaError
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink import row_writer as sink_rows
from pyspark_klog.spark.sink.dead_letters import DeadLettersFailed, TaskIds, with_headers
from pyspark_klog.spark.sink.row_writer import SinkRows
from pyspark_klog.spark.sink.writer import write_task
from pyspark_klog.spark.workers.clients import client_for, drop_producer, producer_for

_IDS = TaskIds("query", 5, 3, 1, 99)
_SMALL = {"kafka.max.request.size": 2_000, "kafka.batch.size": 2_000}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class _Producer:
    """Takes batches for topics of three partitions; refuses the batches that a test chooses."""

    memory = None
    is_transactional = False

    def __init__(self) -> None:
        self.records: list[tuple[TopicPartition, Record]] = []
        self.batches: defaultdict[str, list[int]] = defaultdict(list)
        self.counts: dict[str, int] = {}
        self.newest_counts: dict[str, int] = {}
        self.errors: dict[str, Exception] = {}
        self.max_bytes: dict[str, int] = {}
        self.looked: list[str] = []
        self.flushes = 0
        self.receiver: Any = None
        self.share = 1.0
        self.identity = NO_IDENTITY
        self.sequences: list[int] = []
        self.numbers: list[tuple[int, int, int, int]] = []
        self.transactional: list[bool] = []

    def on_refused_record(self, receiver: Any) -> None:
        self.receiver = receiver

    def partition_count(self, topic: str) -> int:
        self.looked.append(topic)
        if topic in self.errors:
            raise self.errors[topic]
        return self.counts.get(topic, 3)

    def newest_partition_count(self, topic: str) -> int:
        self.counts[topic] = self.newest_counts.get(topic, self.partition_count(topic))
        return self.counts[topic]

    def size_factor(self, topic: str) -> float:
        return self.share

    def expected_sequences(self, topic: str, partition_count: int) -> tuple[Identity, list[int]]:
        return self.identity, self.sequences[:partition_count]

    def add(self, place: TopicPartition, data: memoryview, count: int) -> None:
        self.numbers.append((place.partition, *_numbers(BatchView(data))))
        self.transactional.append(BatchView(data).is_transactional)
        self.batches[place.topic].append(count)
        for record in BatchView(data).records():
            if len(record.value or b"") <= self.max_bytes.get(place.topic, 1 << 30):
                self.records.append((place, record))
                continue
            builder = BatchBuilder()
            builder.append(record.key, record.value, record.timestamp_ms, record.headers)
            code, text = ErrorCode.MESSAGE_TOO_LARGE, "too large for it"
            self.receiver(RefusedRecord(place, bytearray(builder.build()), code, text))

    def add_all(self, batches: Iterable[tuple[TopicPartition, memoryview, int]]) -> None:
        for place, data, count in batches:
            self.add(place, data, count)

    def flush(self) -> None:
        self.flushes += 1

    def of(self, topic: str) -> list[Record]:
        return [record for place, record in self.records if place.topic == topic]

    def partitions(self, topic: str) -> dict[bytes | None, int]:
        return {r.value: p.partition for p, r in self.records if p.topic == topic}


def _numbers(batch: BatchView) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Producer]:
    made = _Producer()
    monkeypatch.setattr(sink_rows, "producer_for", lambda settings: made)
    monkeypatch.setattr(sink_rows, "drop_producer", lambda settings: None)
    monkeypatch.setattr(sink_rows, "freeze_once", lambda: None)
    yield made


def _sink(**options: Any) -> SinkRows:
    named = {name.replace("__", "."): str(value) for name, value in options.items()}
    return SinkRows(read_options({"kafka.bootstrap.servers": "h:1", **named}), _IDS)


def _batch(**columns: Any) -> pa.RecordBatch:
    kinds = {"partition": pa.int32(), "timestamp": pa.timestamp("us", "UTC"), "headers": _HEADERS}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, kinds.get(name)) for name, values in columns.items()}
    )


def _values(*numbers: int) -> list[bytes]:
    return [b"%d" % n for n in numbers]


def _said(record: Record) -> dict[str, bytes | None]:
    """The headers that a dead letter got, by the end of their names."""
    prefix = "klog.deadLetter."
    return {h.key[len(prefix) :]: h.value for h in record.headers if h.key.startswith(prefix)}


# --- partitions ----------------------------------------------------------------------------------
@pytest.mark.parity("sink: kafka.partitioner.class")
def test_round_robin_goes_on_from_batch_to_batch(producer: _Producer) -> None:
    name = "kafkashaded.org.apache.kafka.clients.producer.RoundRobinPartitioner"
    sink = _sink(topic="t", kafka__partitioner__class=name)
    sink.write([_batch(value=_values(0, 1)), _batch(value=_values(2, 3, 4))])
    found = producer.partitions("t")
    first = found[b"0"]
    assert found == {b"%d" % n: (first + n) % 3 for n in range(5)}


def test_batches_are_encoded_with_the_numbers_that_they_will_get(producer: _Producer) -> None:
    producer.identity, producer.sequences = Identity(8, 1), [0, 50, 2**31 - 1]
    rows = _batch(value=_values(*range(4)), partition=pa.array([2, 1, 2, 2], pa.int32()))
    _sink(topic="t").write([rows])
    assert producer.numbers == [(1, 8, 1, 50), (2, 8, 1, 2**31 - 1)]


@pytest.mark.parametrize("is_transactional", [True, False])
def test_batches_are_encoded_as_parts_of_a_transaction(
    producer: _Producer, is_transactional: bool
) -> None:
    producer.is_transactional = is_transactional
    _sink(topic="t").write([_batch(value=_values(0, 1), partition=[1, 2])])
    assert producer.transactional == [is_transactional] * 2


def test_batches_without_an_identity_have_no_numbers(producer: _Producer) -> None:
    _sink(topic="t").write([_batch(value=_values(1))])
    assert [numbers[1:] for numbers in producer.numbers] == [(*NO_IDENTITY, NO_SEQUENCE)]


@pytest.mark.parity("sink: kafka.partitioner.class", "sink: partition column")
def test_only_rows_without_a_partition_are_asked_for(producer: _Producer) -> None:
    own = "tests.support.partitioners:last_but_keyed"
    sink = _sink(topic="t", kafka__partitioner__class=own)
    numbers = list(range(6))
    sink.write(
        [
            _batch(
                value=_values(*numbers),
                key=_values(*numbers),
                partition=[0, None, None, 1, None, None],
            )
        ]
    )
    by_key = {n: partition_for_key(b"%d" % n, 3) for n in numbers}
    expected = {0: 0, 1: by_key[1], 2: 2, 3: 1, 4: 2, 5: by_key[5]}
    assert producer.partitions("t") == {b"%d" % n: p for n, p in expected.items()}


@pytest.mark.parity("sink: kafka.partitioner.class")
@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("too_few", SettingError, "too_few gave 1 numbers for 2 rows; expected one for each"),
        ("no_numbers", SettingError, "no_numbers gave list, which cannot be read as partition"),
        (
            "out_of_range",
            SchemaError,
            "kafka.partitioner.class gave another number for topic t; expected 0 to 2",
        ),
    ],
)
def test_a_partitioner_that_gives_something_else(
    producer: _Producer, name: str, error: type[Exception], text: str
) -> None:
    own = f"tests.support.partitioners:{name}"
    with pytest.raises(error) as caught:
        _sink(topic="t", kafka__partitioner__class=own).write([_batch(value=_values(0, 1))])
    assert text in str(caught.value)


@pytest.mark.parity("sink: partition column")
def test_an_unknown_partition_is_looked_for_once_more(producer: _Producer) -> None:
    producer.counts["t"], producer.newest_counts["t"] = 1, 5
    _sink(topic="t").write([_batch(value=_values(0, 1), partition=[0, 4])])
    assert producer.partitions("t") == {b"0": 0, b"1": 4}


@pytest.mark.parity("sink: keyless rows")
def test_keyless_rows_of_a_batch_stay_together_and_the_next_go_on(producer: _Producer) -> None:
    _sink(topic="t").write([_batch(value=_values(n, n + 10)) for n in range(3)])
    found = producer.partitions("t")
    assert [found[b"%d" % n] for n in range(3)] == [found[b"%d" % (n + 10)] for n in range(3)]
    assert sorted(found[b"%d" % n] for n in range(3)) == [0, 1, 2]


# --- producers that failed ---
@pytest.mark.parametrize("fails", ["while rows are added", "at the end"])
def test_a_task_that_failed_gives_up_its_workers_producer(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """The fate of batches in flight is unknown: the worker's next task gets a new producer."""

    def fail(*_: Any) -> None:
        raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)

    sink = _sink(topic="t")
    settings = read_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}).client
    failed = producer_for(settings)
    assert producer_for(settings) is failed
    monkeypatch.setattr(failed, "on_refused_record", lambda _: None)
    monkeypatch.setattr(failed, "partition_count", lambda _: 1)
    monkeypatch.setattr(failed, "add_all", fail if fails == "while rows are added" else list)
    monkeypatch.setattr(failed, "flush", fail)
    closed: list[object] = []
    client = client_for(settings)
    monkeypatch.setattr(client, "close", lambda: closed.append(client))
    with pytest.raises(BrokerError):
        sink.write([_batch(value=_values(1))])
    assert closed == [client]
    try:
        assert producer_for(settings) is not failed
        assert client_for(settings) is not client
    finally:
        drop_producer(settings)


# --- sizes ---------------------------------------------------------------------------------------
def test_batches_for_a_topic_that_takes_little_are_made_smaller(producer: _Producer) -> None:
    sizes: list[int] = []
    producer.add = lambda place, data, count: sizes.append(count)
    producer.share = 0.1
    rows = _batch(value=[b"v" * 93] * 100, partition=[0] * 100)
    _sink(topic="t", kafka__batch__size=10_000).write([rows])
    assert max(sizes) < 10
    sizes.clear()
    # A row that is larger is still tried, and all rows stay in order.
    _sink(topic="t", kafka__batch__size=1_000).write([rows.slice(0, 3), rows.slice(0, 1)])
    assert sum(sizes) == 4


# --- timestamps ----------------------------------------------------------------------------------
@pytest.mark.parity("beyond: 7 timestamp column", "own option: timestampColumn")
def test_a_records_own_time_and_none(producer: _Producer) -> None:
    before_ms = int(time.time() * 1_000)
    times = [1_500_000_000_123_456, None, -1_000, 0]
    sink = _sink(topic="t", timestampColumn="timestamp")
    sink.write([_batch(value=_values(0, 1, 2, 3), timestamp=times)])
    assert sink.oldest_ms == (("t", 0),)
    found = {record.value: record.timestamp_ms for record in producer.of("t")}
    assert found[b"0"] == 1_500_000_000_123
    assert found[b"3"] == 0
    # Null, and the -1 ms of records of format v0, mean none.
    assert found[b"1"] >= before_ms
    assert found[b"2"] >= before_ms


@pytest.mark.parity("sink: column timestamp")
def test_without_the_option_a_column_timestamp_is_ignored(producer: _Producer) -> None:
    before_ms = int(time.time() * 1_000)
    sink = _sink(topic="t")
    sink.write([_batch(value=_values(0, 1), timestamp=[1_500_000_000_123_456, -2_000_000])])
    assert all(record.timestamp_ms >= before_ms for record in producer.of("t"))
    assert sink.oldest_ms == ()


@pytest.mark.parity("python source: two columns of one name")
def test_of_two_columns_of_one_name_the_first_is_written(producer: _Producer) -> None:
    columns = {"value": [b"v"], "x": [1], "key": [b"k"]}
    twice = pa.RecordBatch.from_arrays(
        [*(pa.array(each) for each in columns.values()), pa.array([b"w"]), pa.array([2])],
        names=["value_0", "x_0", "key", "value_1", "x_1"],  # as from Spark 4.0
    )
    options = read_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    assert write_task(options, [twice], [*columns, "value", "x"]).row_count == 1
    assert [(record.key, record.value) for record in producer.of("t")] == [(b"k", b"v")]


def test_the_oldest_timestamp_of_each_topic_is_reported(producer: _Producer) -> None:
    sink = _sink(deadLetterTopic="dead", timestampColumn="at")
    for times in ([5_000_999, 4_000_000, -7_000_000], [None, 3_000_000, 9_000_000]):
        at = pa.array(times, pa.timestamp("us", "UTC"))
        sink.write([_batch(value=_values(0, 1, 2), topic=["t", "u", "t"], at=at)])
    assert sink.oldest_ms == (("t", 5_000), ("u", 3_000))
    assert sink.dead_letters == (("BAD_TIMESTAMP", 1),)


def test_rows_that_become_dead_letters_are_not_the_oldest_of_their_topic(
    producer: _Producer,
) -> None:
    sink = _sink(topic="t", deadLetterTopic="dead", timestampColumn="at")
    at = pa.array([1_000_000, 5_000_000], pa.timestamp("us", "UTC"))
    sink.write([_batch(value=_values(0, 1), partition=[9, 0], at=at)])
    assert sink.dead_letters == (("BAD_PARTITION", 1),)
    assert sink.oldest_ms == (("t", 5_000),)


_ZONES = ("UTC", "Europe/Paris", "UTC+01:00", "GMT+8", "Etc/GMT-3", "+05:30")
"""Session time zones as Spark writes them into Arrow's types; pyarrow does not know all of them."""


@pytest.mark.parametrize("zone", _ZONES)
def test_a_time_before_1970_is_refused_in_every_time_zone(producer: _Producer, zone: str) -> None:
    at = pa.array([-2_000_000], pa.timestamp("us", zone))
    with pytest.raises(SchemaError) as caught:
        _sink(topic="t", timestampColumn="at").write([_batch(value=_values(0), at=at)])
    assert str(caught.value) == (
        "column at is 1969-12-31 23:59:58+00:00 in a row; a record's timestamp cannot be before "
        "1970"
    )


@pytest.mark.parametrize("zone", _ZONES)
def test_a_time_before_1970_is_a_dead_letter_in_every_time_zone(
    producer: _Producer, zone: str
) -> None:
    at = pa.array([-2_000_000, 3_000_000, -1_000], pa.timestamp("us", zone))
    sink = _sink(topic="t", deadLetterTopic="dead", timestampColumn="at")
    assert sink.write([_batch(value=_values(0, 1, 2), at=at)]) == 2
    (letter,) = producer.of("dead")
    assert (_said(letter)["reason"], _said(letter)["timestamp"]) == (b"BAD_TIMESTAMP", b"-2000")
    assert producer.of("t")[0].timestamp_ms == 3_000


def test_a_time_that_python_cannot_write_is_refused_alike(producer: _Producer) -> None:
    at = pa.array([-(10**17)], pa.int64()).cast(pa.timestamp("us", "GMT+8"))
    with pytest.raises(SchemaError, match="column at is 100000000000000000 us before 1970 in a ro"):
        _sink(topic="t", timestampColumn="at").write([_batch(value=_values(0), at=at)])


# --- dead letters --------------------------------------------------------------------------------
@pytest.mark.parity("beyond: 8 dead letters", "own option: deadLetterTopic")
def test_each_reason_with_what_was_known(producer: _Producer) -> None:
    producer.errors = {
        "absent": TopicMissing("topic absent does not exist"),
        "no/name": BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "topic no/name"),
    }
    producer.max_bytes["small"] = 5
    rows: list[tuple[bytes, str | None, int | None, Any, int | None]] = [
        (b"good", "t", 1, [("h", b"1")], None),
        (b"null", None, 2, [("h", b"1"), ("n", None)], None),
        (b"part", "t", 9, None, 7_001_000),
        (b"head", "t", None, [(None, b"1"), ("k", b"2")], None),
        (b"time", "t", None, [], -5_000_000),
        (b"name", "no/name", None, None, None),
        (b"absent", "absent", 0, None, None),
        (b"larger", "small", 2, [("h", b"1")], 7_001_000),
        (b"huge" * 500, "t", 0, None, None),
    ]
    values, topics, partitions, headers, times = (
        list(column) for column in zip(*rows, strict=True)
    )
    batch = _batch(
        value=values,
        key=[b"k"] * len(rows),
        topic=topics,
        partition=partitions,
        headers=[h and [{"key": k, "value": v} for k, v in h] for h in headers],
        timestamp=times,
    )
    sink = _sink(
        deadLetterTopic="dead", timestampColumn="timestamp", kafka__max__request__size=1_000
    )
    assert sink.write([batch, batch]) == 2
    letters = {(record.value or b"")[:6]: record for record in producer.of("dead")}
    assert len(letters) == 8
    assert len(producer.of("dead")) == 16
    said = {value: _said(record) for value, record in letters.items()}
    assert {value: (s["reason"], s["topic"], s["partition"]) for value, s in said.items()} == {
        b"null": (b"NULL_TOPIC", None, b"2"),
        b"part": (b"BAD_PARTITION", b"t", b"9"),
        b"head": (b"BAD_HEADERS", b"t", None),
        b"time": (b"BAD_TIMESTAMP", b"t", None),
        b"name": (b"INVALID_TOPIC", b"no/name", None),
        b"absent": (b"UNKNOWN_TOPIC", b"absent", b"0"),
        b"larger": (b"TOO_LARGE", b"small", b"2"),
        b"hugehu": (b"TOO_LARGE", b"t", b"0"),
    }
    for each in said.values():
        assert (each["query"], each["batch"], each["task"]) == (b"query", b"5", b"3.1")
    assert said[b"part"]["timestamp"] == said[b"larger"]["timestamp"] == b"7001"
    assert said[b"part"]["error"] == (
        b"column partition is 9 in a row for topic t; expected 0 to 2"
    )
    assert said[b"larger"]["error"] == b"too large for it"
    own = {v: [(h.key, h.value) for h in r.headers[:-8]] for v, r in letters.items()}
    assert own[b"null"] == [("h", b"1"), ("n", None)]
    assert own[b"head"] == [("", b"1"), ("k", b"2")]
    assert own[b"larger"] == [("h", b"1")]
    assert own[b"part"] == []
    assert {record.key for record in letters.values()} == {b"k"}
    assert dict(sink.dead_letters) == {
        **dict.fromkeys(("NULL_TOPIC", "BAD_PARTITION", "BAD_HEADERS", "BAD_TIMESTAMP"), 2),
        **dict.fromkeys(("INVALID_TOPIC", "UNKNOWN_TOPIC"), 2),
        "TOO_LARGE": 4,
    }
    # A topic that cannot be written to is not waited for again.
    assert producer.looked.count("absent") == 1
    # Dead letters of a late refusal are sent after the flush that showed it, and flushed, too.
    assert producer.flushes == 1


@pytest.mark.parity("beyond: 8 dead letters")
def test_what_the_last_flush_shows_is_flushed_too(producer: _Producer) -> None:
    refused = BatchBuilder()
    refused.append(b"k", b"late", 1, [])
    late = RefusedRecord(
        TopicPartition("t", 1), bytearray(refused.build()), ErrorCode.INVALID_RECORD, ""
    )

    def flush() -> None:
        producer.flushes += 1
        if producer.flushes == 1:
            producer.receiver(late)

    producer.flush = flush
    sink = _sink(topic="t", deadLetterTopic="dead")
    assert sink.write([_batch(value=_values(0))]) == 0
    assert producer.flushes == 2
    assert _said(producer.of("dead")[0])["reason"] == b"REFUSED"


@pytest.mark.parity("beyond: 8 dead letters")
def test_a_topic_of_the_option_is_no_rows_fault(producer: _Producer) -> None:
    producer.errors["t"] = TopicMissing("topic t does not exist")
    with pytest.raises(TopicMissing):
        _sink(topic="t", deadLetterTopic="dead").write([_batch(value=_values(0))])


@pytest.mark.parity("beyond: 8 dead letters")
def test_no_authorisation_is_no_rows_fault(producer: _Producer) -> None:
    producer.errors["t"] = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t")
    with pytest.raises(BrokerError):
        _sink(deadLetterTopic="dead").write([_batch(value=_values(0), topic=["t"])])


@pytest.mark.parity("beyond: 8 dead letters")
def test_a_letter_that_cannot_be_written_fails_the_task(producer: _Producer) -> None:
    rows = _batch(value=[b"a row"], topic=["t"], partition=[9])
    producer.errors["dead"] = TopicMissing("topic dead does not exist")
    with pytest.raises(DeadLettersFailed) as caught:
        _sink(deadLetterTopic="dead").write([rows])
    assert str(caught.value) == (
        "a row was refused (column partition is 9 in a row for topic t; expected 0 to 2), and "
        "its dead letter could not be written to topic dead (deadLetterTopic): topic dead does not "
        "exist"
    )
    producer.errors.clear()
    producer.max_bytes["dead"] = 1
    with pytest.raises(DeadLettersFailed, match=r"dead \(deadLetterTopic\) refused a dead letter"):
        _sink(deadLetterTopic="dead").write([rows])


def test_letters_of_rows_that_are_too_large_go_one_by_one(producer: _Producer) -> None:
    rows = _batch(value=[b"1" * 3_000, b"2", b"3" * 3_000], headers=[[("h", b"x")], [], None])
    sink = _sink(topic="t", deadLetterTopic="dead", **_SMALL)
    assert sink.write([rows]) == 1
    # Together they could be larger than a broker takes a request.
    assert producer.batches["dead"] == [1, 1]
    assert [(r.value or b"")[:1] for r in producer.of("dead")] == [b"1", b"3"]
    assert [r.headers[0].key for r in producer.of("dead")] == ["h", "klog.deadLetter.reason"]


def test_a_letter_that_no_batch_can_have_fails_the_task(
    producer: _Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "INT32_MAX", 2_500)
    sink = _sink(topic="t", deadLetterTopic="dead", **_SMALL)
    with pytest.raises(
        DeadLettersFailed,
        match=r"dead \(deadLetterTopic\): the dead letter is larger than 2500 bytes",
    ):
        sink.write([_batch(value=[b"1" * 3_000])])


@pytest.mark.parity("own option: deadLetterMax")
def test_more_letters_than_allowed_fail_the_task(producer: _Producer) -> None:
    def rows(count: int) -> pa.RecordBatch:
        return _batch(value=[b"v"] * count, partition=[9] * count)

    sink = _sink(topic="t", deadLetterTopic="dead", deadLetterMax=3)
    assert sink.write([rows(1), rows(2)]) == 0
    sink = _sink(topic="t", deadLetterTopic="dead", deadLetterMax=3)
    with pytest.raises(DeadLettersFailed) as caught:
        sink.write([rows(2), rows(2)])
    assert str(caught.value) == (
        "4 rows could not be written, and deadLetterMax is 3: column partition is 9 in a row for "
        "topic t; expected 0 to 2"
    )


def test_without_the_option_nothing_is_set_aside(producer: _Producer) -> None:
    producer.receiver = "of the task before"
    _sink(topic="t").write([_batch(value=_values(0))])
    assert producer.receiver is None


def test_headers_of_a_slice_and_of_null_structs() -> None:
    column = pa.array(
        [[("x", b"x")], None, [("a", b"1"), None], [], [("b", None)]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ).slice(1)
    more = pa.array([b"p", b"q", b"r", b"s"])
    found = with_headers(column, 4, {"one": more, "two": pa.nulls(4, pa.binary())})
    assert [[(h["key"], h["value"]) for h in row] for row in found.to_pylist()] == [
        [("one", b"p"), ("two", None)],
        [("a", b"1"), ("", None), ("one", b"q"), ("two", None)],
        [("one", b"r"), ("two", None)],
        [("b", None), ("one", b"s"), ("two", None)],
    ]


# --- Spark 4.0's rows ----------------------------------------------------------------------------
@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parity("release: 4.0: stream sink", "beyond: 7 timestamp column")
def test_rows_become_the_same_columns(far_away: None) -> None:
    from pyspark_klog.spark.sink.stream_writer import _to_arrow

    header = StructType().add("KEY", "string").add("value", "binary")
    schema = (
        StructType()
        .add("other", "integer")
        .add("value", "string")
        .add("key", "binary")
        .add("topic", "string")
        .add("partition", "integer")
        .add("timestamp", "timestamp")
        .add("headers", ArrayType(header))
    )
    make = Row(*schema.fieldNames())
    rows = [
        make(1, "v", bytearray(b"k"), "t", 2, datetime(2020, 1, 1), [Row(key="h", value=b"1")]),
        make(1, None, None, None, None, None, None),
        make(1, "", b"", "t", 0, datetime(1970, 1, 1, 0, 0, 0, 5), []),
    ]
    (batch,) = _to_arrow(iter(rows), schema, None)
    assert batch.schema.names == ["value", "key", "headers", "topic", "partition"]
    (batch,) = _to_arrow(iter(rows), schema, "timestamp")
    assert batch.schema.names == ["value", "key", "headers", "topic", "partition", "timestamp"]
    found = batch.to_pydict()
    assert found["value"] == ["v", None, ""]
    assert found["key"] == [b"k", None, b""]
    assert found["topic"] == ["t", None, "t"]
    assert found["partition"] == [2, None, 0]
    assert found["headers"] == [[{"key": "h", "value": b"1"}], None, []]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        1_577_854_800_000_000,
        None,
        18_000_000_005,
    ]
    assert str(batch.column("timestamp").type) == "timestamp[us, tz=UTC]"
