"""Reads for which klog's source fetches less than the peer, and the lag that the source reports."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import pyspark_klog
from pyspark_klog import testing
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.storage.data_directory import read_checkpoint
from pyspark_klog.storage.names import HIGH_WATERMARK_CHECKPOINT
from tests.support.eventually import eventually
from tests.support.spark.faulty_front import FaultyFront
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    import socket

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from pyspark_klog.spark.progress.lag import SourceLag

CONF = "spark.sql.python.filterPushdown.enabled"
HOURS = 7 * 24
HOUR_MS = 3_600_000
WEEK_MS = 1_700_000_000_000
VALUES_OF_AN_HOUR = 25
VALUE = b"v" * 1_000
FETCH_BYTES = 16_384


class CountingFront(FaultyFront):
    """Counts the bytes of records in Fetch responses."""

    fetched_bytes = 0

    def _answer(self, frame: bytes, behind: "socket.socket", node: int) -> bytes:
        reply = super()._answer(frame, behind, node)
        if int.from_bytes(frame[:2], "big") == ApiKey.FETCH:
            with self._lock:
                self.fetched_bytes += len(reply)
        return reply


class Archive(Topics):
    """A broker that counts, and a topic of a week: an hour a batch, in each of two partitions."""

    def __init__(self, front: CountingFront, data: Path) -> None:
        super().__init__(front.address)
        self._front = front
        self.data = data
        self.topic = self.create(2)
        for number in range(2):
            for hour in range(HOURS):
                at_ms = WEEK_MS + hour * HOUR_MS
                keys = [b"key-%d" % n for n in range(100)]
                mine = [key for key in keys if partition_for_key(key, 2) == number]
                rows = [(mine[n], VALUE) for n in range(VALUES_OF_AN_HOUR)]
                self.put(self.topic, rows, number, at_ms=at_ms, headers=False)

    def fetched(self, where: str | None, **options: Any) -> tuple[list[tuple[Any, ...]], int]:
        """Partition and offset of the rows that a condition leaves, and the bytes fetched."""
        settings = {"kafka__max__partition__fetch__bytes": FETCH_BYTES} | options
        frame = self.batch(subscribe=self.topic, **settings)
        if where is not None:
            frame = frame.where(where)
        before = self._front.fetched_bytes
        rows = sorted(tuple(row) for row in frame.select("partition", "offset").collect())
        return rows, self._front.fetched_bytes - before


@pytest.fixture(scope="module")
def archive() -> Iterator[Archive]:
    with CountingFront() as front:
        listener = f"PLAINTEXT://{front.address}"
        with testing.Broker(advertised_listeners=listener) as broker:
            host, port = broker.bootstrap_servers.rsplit(":", 1)
            front.broker = (host, int(port))
            made = Archive(front, broker.data)
            yield made
            made.close()


@pytest.fixture
def pushing(spark: "SparkSession") -> Iterator[None]:
    spark.conf.set(CONF, "true")
    yield
    spark.conf.unset(CONF)


def _hour(hour: int) -> str:
    at = datetime.fromtimestamp((WEEK_MS + hour * HOUR_MS) / 1000, UTC)
    ends = at + timedelta(hours=1)
    form = "%Y-%m-%d %H:%M:%S"
    return f"timestamp >= '{at.strftime(form)}' and timestamp < '{ends.strftime(form)}'"


# --- columns -------------------------------------------------------------------------------------
@pytest.mark.parity("beyond: 4 columns", "own option: columns")
def test_only_the_columns_that_are_named_are_there(topics: Topics) -> None:
    topic = topics.create(1)
    topics.put(topic, [(b"k", b"a"), (None, b"b"), (b"l", None)])
    whole = topics.batch(subscribe=topic, includeHeaders=True)
    rows = whole.collect()
    for columns in (
        "value",
        "key,value",
        " Offset , PARTITION,topic",
        "headers,timestampType,timestamp",
        "topic,partition",
    ):
        names = [name.strip().lower() for name in columns.split(",")]
        frame = topics.batch(subscribe=topic, columns=columns)
        assert [name.lower() for name in frame.columns] == names
        assert frame.schema == whole.select(*frame.columns).schema
        expected = [tuple(row[name] for name in frame.columns) for row in rows]
        assert sorted(map(repr, map(tuple, frame.collect()))) == sorted(map(repr, expected))
    assert frame.count() == 3


@pytest.mark.parity("beyond: 4 columns", "own option: columns")
def test_a_stream_has_only_the_columns_that_are_named(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(1)
    topics.put_numbers(topic, range(5))
    frame = topics.stream(subscribe=topic, startingOffsets="earliest", columns="value,offset")
    assert frame.columns == ["value", "offset"]
    seen: list[tuple[int, int]] = []

    def sink(batch: "DataFrame", _: int) -> None:
        seen.extend((int(row.value), row.offset) for row in batch.collect())

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path))
    run(writer.trigger(availableNow=True).start())
    assert sorted(seen) == [(n, n) for n in range(5)]


@pytest.mark.parity("beyond: 4 columns", "own option: columns")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"columns": "key,valeu"},
            "option columns is 'key,valeu'; expected some of key, value, topic, partition, "
            "offset, timestamp, timestampType, headers, each at most once",
        ),
        (
            {"columns": "key", "includeHeaders": "true"},
            "includeHeaders is true and columns is 'key'; expected headers among the columns, or "
            "no includeHeaders",
        ),
    ],
)
def test_columns_that_cannot_be(topics: Topics, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException) as caught:
        topics.batch(subscribe="t", **options)
    assert text in str(caught.value)
    assert "Traceback" not in str(caught.value)


# --- keys and times ------------------------------------------------------------------------------
@pytest.mark.parity("beyond: 4 keys", "own option: keys")
def test_the_records_of_a_key_are_read_from_its_partition(archive: Archive) -> None:
    _, whole_bytes = archive.fetched(None)
    one, other = [f"key-{n}" for n in range(100) if partition_for_key(b"key-%d" % n, 2) == 1][:2]
    rows, bytes_of_keys = archive.fetched(None, keys=json.dumps([one, other]))
    assert rows == archive.fetched(f"string(key) in ('{one}', '{other}')")[0]
    assert len(rows) == 2 * HOURS
    assert bytes_of_keys < whole_bytes * 0.6
    values = archive.batch(subscribe=archive.topic, keys=f'["{one}"]', columns="value,offset")
    assert values.columns == ["value", "offset"]
    assert values.count() == HOURS


@pytest.mark.parity("beyond: 4 keys", "beyond: 11 segment files")
def test_the_records_of_a_key_are_read_from_segment_files(archive: Archive) -> None:
    def frame(**options: Any) -> "DataFrame":
        return archive.batch(subscribe=archive.topic, path=archive.data, **options)

    # The high watermark is written to its checkpoint file every few seconds.
    ends = {TopicPartition(archive.topic, n): HOURS * VALUES_OF_AN_HOUR for n in range(2)}

    def are_whole() -> bool:
        found = read_checkpoint(archive.data, HIGH_WATERMARK_CHECKPOINT) or {}
        return ends.items() <= found.items()

    eventually(are_whole, deadline_s=60, what="the whole topic in files")
    assert frame(keys='["key-0"]', columns="partition,offset").count() == HOURS


def test_a_backfill_of_an_hour_out_of_a_week_reads_that_hour(archive: Archive) -> None:
    _, whole_bytes = archive.fetched(None)
    times = {
        "startingTimestamp": WEEK_MS + 100 * HOUR_MS,
        "endingTimestamp": WEEK_MS + 101 * HOUR_MS,
    }
    rows, hour_bytes = archive.fetched(None, **times)
    first = 100 * VALUES_OF_AN_HOUR
    assert rows == [(p, first + n) for p in range(2) for n in range(VALUES_OF_AN_HOUR)]
    assert hour_bytes < whole_bytes / 50
    # The safe form: to the end of the topic, and Spark filters.
    rows_again, rest_bytes = archive.fetched(
        _hour(100), startingTimestamp=times["startingTimestamp"]
    )
    assert rows_again == rows
    assert rest_bytes < whole_bytes / 2


def test_two_filters_of_one_load_each_get_their_rows(archive: Archive, pushing: None) -> None:
    frame = archive.batch(subscribe=archive.topic, columns="partition,offset")
    first, second = frame.where("partition = 0"), frame.where("offset < 3")
    assert (first.count(), second.count(), frame.count()) == (4_200, 6, 8_400)
    assert first.union(second).count() == 4_206


# --- limits --------------------------------------------------------------------------------------
def _batches(frame: "DataFrame", checkpoint: Path) -> list[dict[str, int]]:
    """Return each non-empty batch's numbers of rows by topic."""
    found: list[Counter[str]] = []

    def sink(batch: "DataFrame", _: int) -> None:
        found.append(Counter(row.topic for row in batch.select("topic").collect()))

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    run(writer.trigger(availableNow=True).start())
    return [dict(counts) for counts in found if counts]


@pytest.mark.parity("beyond: 6 maxBytesPerTrigger", "own option: maxBytesPerTrigger")
def test_a_limit_by_bytes(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    for number in range(2):
        for _ in range(10):
            # An array of these is a batch of about 50 kB.
            topics.put(topic, [(None, b"x" * 5_000)] * 10, number)
    frame = topics.stream(
        subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=500_000
    ).select("topic")
    counts = [batch[topic] for batch in _batches(frame, tmp_path)]
    assert sum(counts) == 200
    # 1 MB of records, so two batches or three; a batch of a log is not cut.
    assert 2 <= len(counts) <= 4
    assert max(counts) <= 110


@pytest.mark.parity("beyond: 6 limits by topic", "own option: maxOffsetsPerTriggerByTopic")
def test_a_limit_for_a_topic(topics: Topics, tmp_path: Path) -> None:
    slow, fast = topics.create(2), topics.create(1)
    for number in range(2):
        topics.put_numbers(slow, range(10), number)
    topics.put_numbers(fast, range(40))
    frame = topics.stream(
        subscribe=f"{slow},{fast}",
        startingOffsets="earliest",
        maxOffsetsPerTriggerByTopic=json.dumps({slow: 10}),
    )
    batches = _batches(frame, tmp_path)
    assert batches == [{slow: 10, fast: 40}, {slow: 10}]


# --- lag -----------------------------------------------------------------------------------------
def _offsets(text: Any) -> dict[str, dict[str, int]]:
    parsed: dict[str, dict[str, int]] = json.loads(text) if isinstance(text, str) else text
    return parsed


def _drain(frame: "DataFrame", checkpoint: Path, name: str) -> "StreamingQuery":
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return run(writer.queryName(name).trigger(availableNow=True).start())


@pytest.mark.parity("beyond: 6 lag in records", "beyond: 6 lag in time", "own option: lagDetails")
def test_the_progress_says_how_far_a_query_is_behind(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """In its JSON, and to a listener."""
    topic = topics.create(2)
    hour_ago_ms = int(time() * 1000) - HOUR_MS
    topics.put(topic, [(None, b"x")] * 6, 0, at_ms=hour_ago_ms)
    topics.put(topic, [(None, b"x")] * 2, 1, at_ms=hour_ago_ms)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    told: dict[str, list[SourceLag]] = defaultdict(list)
    listener = pyspark_klog.LagListener(lambda query, source: told[query].append(source))
    spark.streams.addListener(listener)
    try:
        frame = topics.stream(lagDetails=True, maxOffsetsPerTrigger=4, **options)
        query = _drain(frame, tmp_path / "with", "with")
        eventually(
            lambda: told["with"] and told["with"][-1].max_offsets_behind_latest == 0,
            deadline_s=60,
            what="the last progress",
        )
    finally:
        spark.streams.removeListener(listener)
    progresses = [p for p in query.recentProgress if p.numInputRows]
    sources = [json.loads(p.json)["sources"][0] for p in progresses]
    assert [_offsets(s["endOffset"])[topic] for s in sources] == [
        {"0": 3, "1": 1},
        {"0": 6, "1": 2},
    ]
    for source in sources:
        latest = _offsets(source["latestOffset"])
        assert latest[topic] == {"0": 6, "1": 2}
        assert latest.keys() == {topic, f"{topic}:lagMs"}
    behind = _offsets(sources[0]["latestOffset"])[f"{topic}:lagMs"]
    assert all(HOUR_MS <= ms < 2 * HOUR_MS for ms in behind.values()), behind
    assert _offsets(sources[1]["latestOffset"])[f"{topic}:lagMs"] == {"0": 0, "1": 0}
    first = told["with"][0]
    assert (first.min_offsets_behind_latest, first.max_offsets_behind_latest) == (1, 3)
    assert first.avg_offsets_behind_latest == 2.0
    assert first.metrics == {
        "minOffsetsBehindLatest": "1",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "2.0",
    }
    # The same of a progress that somebody has already; without the option, the peer's JSON.
    query = _drain(topics.stream(**options), tmp_path / "without", "without")
    (last,) = pyspark_klog.lag(query.lastProgress)
    assert last.max_offsets_behind_latest == 0
    latest = _offsets(json.loads(query.recentProgress[-1].json)["sources"][0]["latestOffset"])
    assert latest == {topic: {"0": 6, "1": 2}}


# --- offsets per topic ---------------------------------------------------------------------------
@pytest.mark.parity("beyond: 13 offsets per topic")
def test_a_word_for_one_topic_with_offsets_for_another(topics: Topics, tmp_path: Path) -> None:
    whole, part, late = topics.create(2), topics.create(1), topics.create(1)
    for number in range(2):
        topics.put_numbers(whole, range(3), number)
    topics.put_numbers(part, range(5))
    topics.put_numbers(late, range(7))
    starting: dict[str, Any] = {whole: "earliest", part: {"0": 3}}
    frame = topics.batch(subscribe=f"{whole},{part}", startingOffsets=json.dumps(starting))
    read = Counter(row.topic for row in frame.select("topic").collect())
    assert read == {whole: 6, part: 2}
    ending = {whole: {"0": 1, "1": -1}, part: "latest"}
    frame = topics.batch(
        subscribe=f"{whole},{part}",
        startingOffsets=json.dumps(starting),
        endingOffsets=json.dumps(ending),
    )
    assert frame.count() == 1 + 3 + 2
    starting[late] = "latest"
    frame = topics.stream(subscribe=f"{whole},{part},{late}", startingOffsets=json.dumps(starting))
    assert _batches(frame, tmp_path) == [{whole: 6, part: 2}]
    topics.put_numbers(late, [7])
    assert _batches(frame, tmp_path) == [{late: 1}]
    with pytest.raises(PySparkException) as caught:
        topics.batch(subscribe=whole, startingOffsets=json.dumps({whole: "latest"})).collect()
    assert "startingOffsets has latest; a batch cannot begin at the end" in str(caught.value)
