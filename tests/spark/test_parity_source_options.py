"""Each source option, and errors at load: klog compared with Spark's own connector."""

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from pyspark_klog.spark.options.java_regex import compile_java
from tests.support.parity.scenarios import Engine, Parity
from tests.support.spark.topics import input_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
    "timestampType:int>"
)
_HEADERS = ",headers:array<struct<key:string,value:binary>>>"


_NAMES = "a A b z topic-1 Topic.3 ab aAb 12 a1 - _ . a-b a.b abc ABC xyz orders-eu __offsets"


def _numbers(frame: "DataFrame") -> "DataFrame":
    return frame.selectExpr("topic", "partition", "offset", "int(string(value)) as n")


def _values(frame: "DataFrame") -> list[int]:
    return sorted(row.n for row in frame.collect())


def _json(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(n): number for n, number in enumerate(numbers)}})


def _filled(parity: Parity, *counts: int) -> str:
    """A topic whose partition p has the numbers from 100 p on, 10 s apart from partition to
    partition, 1 ms from record to record, the first at 1 s."""
    topic = parity.topics.create(len(counts))
    for partition, count in enumerate(counts):
        rows = [(None, b"%d" % (100 * partition + n)) for n in range(count)]
        if rows:
            parity.topics.put(topic, rows, partition, at_ms=1_000 + 10_000 * partition)
    return topic


# --- what is read --------------------------------------------------------------------------------
@pytest.mark.parity("source option: assign")
def test_assign(parity: Parity, tmp_path: Path) -> None:
    topic, other = _filled(parity, 3, 3, 3), _filled(parity, 2)
    assign = json.dumps({topic: [0, 2], other: [0]})
    found = parity.same(lambda engine: _numbers(engine.batch(assign=assign)))
    assert _values(found) == [0, 0, 1, 1, 2, 200, 201, 202]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(assign=assign, startingOffsets="earliest")
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [0, 0, 1, 1, 2, 200, 201, 202]


@pytest.mark.parity("source option: subscribe")
def test_subscribe(parity: Parity, tmp_path: Path) -> None:
    topics = [_filled(parity, 3), _filled(parity, 2, 1)]
    listed = f" {topics[0]} ,, {topics[1]},"
    found = parity.same(lambda engine: _numbers(engine.batch(SUBSCRIBE=listed)))
    assert _values(found) == [0, 0, 1, 1, 2, 100]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=listed, startingOffsets="earliest")
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [0, 0, 1, 1, 2, 100]


@pytest.mark.parity("source option: subscribePattern")
def test_subscribe_pattern(parity: Parity, tmp_path: Path) -> None:
    prefix = parity.topics.create(1)
    for name, number in (("eu.1", 1), ("us.2", 2), ("EU_3", 3), ("eu.1.old", 4)):
        parity.topics.put_numbers(parity.topics.create(1, f"{prefix}-{name}"), [number])
    expected = {
        rf"^\Q{prefix}-\Eeu\.\d$": [1],
        rf"{prefix[1:]}-eu\.\d": [1, 4],  # anywhere in the name
        rf" {prefix}-(?i:EU)[._]\p{{Digit}}$ ": [1, 3],
        rf"{prefix}-[a-z&&[^u]]++.*": [1, 4],
        rf"{prefix}-(eu\.1|us\.2)\z": [1, 2],
        "eu.1x": [],
        # Internal topics are left out: klog has those, too.
        rf"__.*|{prefix}-us.*": [2],
    }

    def batches(engine: Engine) -> "list[DataFrame]":
        return [_numbers(engine.batch(subscribePattern=pattern)) for pattern in expected]

    assert parity.same_numbers(batches) == list(expected.values())

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribePattern=f"{prefix}-e.*", startingOffsets="earliest")
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [1, 4]


@pytest.mark.parity("source option: subscribePattern")
def test_patterns_mean_what_they_mean_to_java(parity: Parity) -> None:
    names = _NAMES.split()
    java = parity.spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    compared = 0
    for pattern in _java_patterns(60):
        theirs = java.compile(pattern)
        ours = compile_java(pattern)
        expected = [name for name in names if theirs.matcher(name).find()]
        assert [name for name in names if ours.search(name)] == expected, pattern
        expected = [name for name in names if theirs.matcher(name).matches()]
        assert [name for name in names if ours.fullmatch(name)] == expected, pattern
        compared += bool(expected)
    assert compared > 10


def _java_patterns(count: int) -> list[str]:
    """Patterns made of what both sides know; the same ones every time."""
    chance = random.Random(7)
    sets = r"[a-z&&[^b]] [^\w&&[^_]] [A-C[x-z]1] \w \D \p{Alpha} \P{Lower} \pL [\p{Punct}&&[^-]]"
    sets += r" [\Q.-\E] (?i:[^b-z]) \p{IsAlphabetic} \p{javaUpperCase} [[:-@]a-m&&\D] \h \R"
    atoms = [*sets.split(), "a", "b", ".", r"\.", "-", "topic", "(?:a|b)", "(?i:ab)", r"\x61"]
    atoms += ["(a|ab)", "(?>a|ab)", "(?<name>o|x)", r"\Qa.b\E", r"\0101", "(?i)", "(?=a)", "(?!b)"]
    quantifiers = ["", "", "", "*", "+", "?", "{1,3}", "*?", "++", "?+", "{2}"]

    def sequence() -> str:
        chosen = chance.choices(atoms, k=chance.randint(1, 3))
        return "".join(
            a if a.startswith(("(?=", "(?!")) or a == "(?i)" else a + chance.choice(quantifiers)
            for a in chosen
        )

    return ["|".join(sequence() for _ in range(chance.randint(1, 2))) for _ in range(count)]


@pytest.mark.parity("source option: kafka.bootstrap.servers")
def test_bootstrap_servers(parity: Parity) -> None:
    topic = _filled(parity, 2)
    several = f"localhost:1,{parity.servers}"
    found = parity.same(
        lambda engine: _numbers(engine.batch(subscribe=topic, kafka__bootstrap__servers=several))
    )
    assert _values(found) == [0, 1]
    reader = parity.spark.read.format("klog").option("bootstrap.servers", parity.servers)
    assert reader.option("subscribe", topic).load().count() == 2


@pytest.mark.parity("source option: includeHeaders")
def test_include_headers(parity: Parity) -> None:
    topic = _filled(parity, 2)
    found = parity.same(lambda engine: engine.batch(subscribe=topic, includeHeaders=True))
    assert found.schema.simpleString() == _SCHEMA[:-1] + _HEADERS
    assert [(row.headers[0].key, bytes(row.headers[0].value)) for row in found.collect()] == [
        ("h", b"1")
    ] * 2
    plain = parity.same(lambda engine: engine.batch(subscribe=topic))
    assert plain.schema.simpleString() == _SCHEMA


# --- where it begins and ends --------------------------------------------------------------------
@pytest.mark.parity("source option: startingOffsets")
def test_starting_offsets(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 5, 5)
    expected = {
        " Earliest ": [0, 1, 2, 3, 4, 100, 101, 102, 103, 104],
        _json(topic, 3, -2): [3, 4, 100, 101, 102, 103, 104],
        _json(topic, 5, 4): [104],
    }

    def batches(engine: Engine) -> "list[DataFrame]":
        return [_numbers(engine.batch(subscribe=topic, startingOffsets=each)) for each in expected]

    assert parity.same_numbers(batches) == list(expected.values())

    def from_then_on(engine: Engine, name: str, **options: Any) -> "DataFrame":
        mine = engine.topics.create(2)
        engine.topics.put_numbers(mine, range(5))
        engine.topics.put_numbers(mine, range(100, 105), 1)
        starting = {k: v.replace("$", mine) for k, v in options.items()}
        frame = engine.stream(subscribe=mine, **starting)
        engine.drain(frame, tmp_path / name)
        engine.topics.put_numbers(mine, [5])
        engine.topics.put_numbers(mine, [105], 1)
        return _numbers(engine.drain(frame, tmp_path / name))

    found = parity.same(lambda engine: from_then_on(engine, "default"))
    assert _values(found) == [5, 105], "a stream begins at latest"
    some = _json("$", 2, -1)
    found = parity.same(lambda engine: from_then_on(engine, "some", startingOffsets=some))
    assert _values(found) == [5, 105], "the rest was read by the first run"


@pytest.mark.parity("source option: endingOffsets")
def test_ending_offsets(parity: Parity) -> None:
    topic = _filled(parity, 5, 5)
    expected = {
        "latest": [0, 1, 2, 3, 4, 100, 101, 102, 103, 104],
        _json(topic, 3, -1): [0, 1, 2, 100, 101, 102, 103, 104],
        _json(topic, 0, 1): [100],
    }

    def batches(engine: Engine) -> "list[DataFrame]":
        return [_numbers(engine.batch(subscribe=topic, endingOffsets=each)) for each in expected]

    assert parity.same_numbers(batches) == list(expected.values())


@pytest.mark.parity("source option: startingTimestamp")
def test_starting_timestamp_goes_first(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 5, 5)

    def batch(engine: Engine) -> "DataFrame":
        return _numbers(
            engine.batch(
                subscribe=topic,
                startingTimestamp=" 1003 ",
                startingOffsetsByTimestamp=_json(topic, 0, 0),
                startingOffsets="earliest",
            )
        )

    assert _values(parity.same(batch)) == [3, 4, 100, 101, 102, 103, 104]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, startingTimestamp=1002)
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [2, 3, 4, 100, 101, 102, 103, 104]


@pytest.mark.parity("source option: startingOffsetsByTimestamp")
def test_starting_offsets_by_timestamp_go_before_offsets(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 5, 5)
    by_time = _json(topic, 1_004, 11_003)

    def batch(engine: Engine) -> "DataFrame":
        options = {"startingOffsetsByTimestamp": by_time, "startingOffsets": "earliest"}
        return _numbers(engine.batch(subscribe=topic, **options))

    assert _values(parity.same(batch)) == [4, 103, 104]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, startingOffsetsByTimestamp=by_time)
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [4, 103, 104]


@pytest.mark.parity("source option: startingOffsetsByTimestampStrategy")
def test_strategy_without_a_match(parity: Parity) -> None:
    topic = _filled(parity, 5, 5)

    def batch(engine: Engine, **options: Any) -> "DataFrame":
        return _numbers(engine.batch(subscribe=topic, startingTimestamp=1_010, **options))

    found = parity.same(lambda engine: batch(engine, startingOffsetsByTimestampStrategy="Latest"))
    assert _values(found) == [100, 101, 102, 103, 104]
    words = (
        f"startingTimestamp finds no record at or after the timestamp in {topic}-0 at 1010; give"
    )
    parity.same_failure(batch, words)
    parity.same_failure(
        lambda engine: batch(engine, startingOffsetsByTimestampStrategy="ERROR"), words
    )
    parity.same_failure(
        lambda engine: batch(engine, startingOffsetsByTimestampStrategy="newest"),
        "startingOffsetsByTimestampStrategy is 'newest'; expected error or latest",
    )


@pytest.mark.parity("source option: endingTimestamp")
def test_ending_timestamp_goes_first(parity: Parity) -> None:
    topic = _filled(parity, 5, 5)

    def batch(engine: Engine) -> "DataFrame":
        return _numbers(
            engine.batch(
                subscribe=topic,
                endingTimestamp=11_002,
                endingOffsetsByTimestamp=_json(topic, 0, 0),
                endingOffsets=_json(topic, 1, 1),
            )
        )

    # No record of partition 0 is so young: it is read to its end.
    assert _values(parity.same(batch)) == [0, 1, 2, 3, 4, 100, 101]


@pytest.mark.parity("source option: endingOffsetsByTimestamp")
def test_ending_offsets_by_timestamp_go_before_offsets(parity: Parity) -> None:
    topic = _filled(parity, 5, 5)

    def batch(engine: Engine) -> "DataFrame":
        options = {"endingOffsetsByTimestamp": _json(topic, 1_001, 99_999)}
        return _numbers(engine.batch(subscribe=topic, endingOffsets=_json(topic, 5, 5), **options))

    assert _values(parity.same(batch)) == [0, 100, 101, 102, 103, 104]


# --- loss, waits, attempts -----------------------------------------------------------------------
@pytest.mark.parity("source option: failOnDataLoss")
def test_fail_on_data_loss(parity: Parity) -> None:
    topic = _filled(parity, 5)

    def batch(engine: Engine, **options: Any) -> "DataFrame":
        ends = {"startingOffsets": _json(topic, 50), "endingOffsets": _json(topic, 60)}
        wait = {"kafkaConsumer__pollTimeoutMs": 5_000}
        return _numbers(engine.batch(subscribe=topic, **ends, **wait, **options))

    parity.same_failure(batch, "offset 50 of")
    assert _values(parity.same(lambda engine: batch(engine, failOnDataLoss="False"))) == []


@pytest.mark.parity("source option: kafkaConsumer.pollTimeoutMs")
def test_poll_timeout(parity: Parity) -> None:
    topic = _filled(parity, 5)

    def batch(engine: Engine) -> "DataFrame":
        # Two of the records are still to come.
        options = {"endingOffsets": _json(topic, 7), "kafkaConsumer__pollTimeoutMs": 1_500}
        return _numbers(engine.batch(subscribe=topic, **options))

    parity.same_failure(batch, f"offsets 5 to 7 of {topic}-0 could not be read within 1500 ms")


@pytest.mark.parity("source option: fetchOffset.numRetries")
@pytest.mark.parity("source option: fetchOffset.retryIntervalMs")
def test_offsets_are_asked_for_several_times(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine, topic: str, retries: int, name: str) -> "DataFrame":
        options = {"fetchOffset__numRetries": retries, "fetchOffset__retryIntervalMs": 50}
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", **options)
        return _numbers(engine.drain(frame, tmp_path / name))

    parity.same_failure(
        lambda engine: stream(engine, "never-there", 2, "absent"), "never-there does not exist"
    )

    def comes_late(engine: Engine) -> "DataFrame":
        topic = f"late-{tmp_path.name}-{engine.format}".lower()
        timer = threading.Timer(1.0, engine.topics.create, (1, topic))
        timer.start()
        found = stream(engine, topic, 600, "late")
        timer.join()
        return found

    assert parity.same(comes_late).count() == 0


# --- limits --------------------------------------------------------------------------------------
@pytest.mark.parity("source option: maxOffsetsPerTrigger")
def test_max_offsets_per_trigger(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 40, 20, 1)

    def sizes(engine: Engine) -> "DataFrame":
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 12}
        return engine.batch_sizes(engine.stream(subscribe=topic, **options), tmp_path)

    # 40 : 20 : 1 of 12 are 7, 3, and 1 for the partition that would starve.
    first, *others = [row.rows for row in parity.same(sizes).orderBy("batch").collect()]
    assert first == 11
    assert first + sum(others) == 61
    assert max(others) <= 13


@pytest.mark.parity("source option: limits in batch")
def test_limits_are_ignored_in_batch(parity: Parity) -> None:
    topic = _filled(parity, 5)

    def batch(engine: Engine) -> "DataFrame":
        limits = {"maxOffsetsPerTrigger": 2, "minOffsetsPerTrigger": 1, "maxTriggerDelay": "1h"}
        return _numbers(engine.batch(subscribe=topic, **limits))

    assert _values(parity.same(batch)) == [0, 1, 2, 3, 4]


@pytest.mark.parity("source option: minOffsetsPerTrigger")
def test_min_offsets_per_trigger(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(2))
        options = {"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 8}
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", **options)
        collected = engine.start(frame, tmp_path)
        try:
            collected.wait_for(2)
            for number in range(2, 7):
                engine.topics.put_numbers(topic, [number])
            collected.wait_for(7)
        finally:
            collected.stop()
        sizes = enumerate(collected.sizes())
        return engine.spark.createDataFrame(list(sizes), "batch int, rows int")

    # The first fires with what is there, the next one waits for five.
    assert [row.rows for row in parity.same(stream).orderBy("batch").collect()] == [2, 5]


@pytest.mark.parity("source option: minOffsetsPerTrigger", differs="available-now-minimum")
def test_available_now_ignores_the_minimum(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 8)

    def sizes(engine: Engine) -> "DataFrame":
        options = {"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 5}
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", **options)
        return engine.batch_sizes(frame, tmp_path)

    assert [row.rows for row in parity.klog_only(sizes).orderBy("batch").collect()] == [5, 3]
    peer = parity.peer_only(sizes)
    assert peer is None or [row.rows for row in peer.collect()] == [5], "three records wait"


@pytest.mark.parity("source option: maxTriggerDelay")
def test_max_trigger_delay(parity: Parity, tmp_path: Path) -> None:
    def stream(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        engine.topics.put_numbers(topic, range(2))
        options = {"minOffsetsPerTrigger": 1_000_000, "maxTriggerDelay": "2s"}
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", **options)
        collected = engine.start(frame, tmp_path)
        try:
            collected.wait_for(2)
            engine.topics.put_numbers(topic, [2])
            rows = collected.wait_for(3)
        finally:
            collected.stop()
        return _numbers(engine.frame(rows, frame.schema))

    assert _values(parity.same(stream)) == [0, 1, 2]


# --- tasks ---------------------------------------------------------------------------------------
def _tasks(engine: Engine, frame: "DataFrame", checkpoint: Path | None = None) -> "DataFrame":
    """How many records each task has, of a batch or of a stream with a checkpoint."""
    tasks = frame.selectExpr("spark_partition_id() as task")
    rows = (tasks if checkpoint is None else engine.drain(tasks, checkpoint)).collect()
    counts = Counter(row.task for row in rows)
    return engine.frame([(count,) for count in counts.values()], "count long")


def _counts(frame: "DataFrame") -> list[int]:
    return sorted(row["count"] for row in frame.collect())


@pytest.mark.parity("source option: minPartitions")
def test_min_partitions(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 40, 2)
    options = {"subscribe": topic, "minPartitions": 5}
    found = parity.same(lambda engine: _tasks(engine, engine.batch(**options)))
    assert _counts(found) == [2, 10, 10, 10, 10]

    def stream(engine: Engine) -> "DataFrame":
        return _tasks(engine, engine.stream(startingOffsets="earliest", **options), tmp_path)

    assert _counts(parity.same(stream)) == [2, 10, 10, 10, 10]


@pytest.mark.parity("source option: maxRecordsPerPartition")
def test_max_records_per_partition(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 10, 3)
    ends = {"startingOffsets": _json(topic, 0, 0), "endingOffsets": _json(topic, 10, 3)}
    for options, expected in (
        ({"maxRecordsPerPartition": 4}, [3, 3, 3, 4]),
        ({"maxRecordsPerPartition": 4, "minPartitions": 2}, [3, 3, 3, 4]),
        ({"maxRecordsPerPartition": 10, "minPartitions": 4}, [3, 3, 3, 4]),
    ):
        found = parity.same(
            lambda engine, o=options: _tasks(engine, engine.batch(subscribe=topic, **ends, **o))
        )
        assert _counts(found) == expected, options

    def stream(engine: Engine) -> "DataFrame":
        options = {"startingOffsets": "earliest", "maxRecordsPerPartition": 5}
        return _tasks(engine, engine.stream(subscribe=topic, **options), tmp_path)

    assert _counts(parity.same(stream)) == [3, 5, 5]


@pytest.mark.parity("source option: maxRecordsPerPartition", differs="splitting")
def test_max_records_per_partition_from_earliest_to_latest(parity: Parity) -> None:
    topic = _filled(parity, 10, 3)

    def batch(engine: Engine) -> "DataFrame":
        return _tasks(engine, engine.batch(subscribe=topic, maxRecordsPerPartition=4))

    assert _counts(parity.klog_only(batch)) == [3, 3, 3, 4]
    peer = parity.peer_only(batch)
    assert peer is None or _counts(peer) == [3, 10]


# --- groups, settings, and what has no effect ----------------------------------------------------
@pytest.mark.parity("source option: groupIdPrefix")
@pytest.mark.parity("source option: kafka.group.id")
@pytest.mark.parametrize(
    "option", [{"groupIdPrefix": "mine"}, {"kafka__group__id": "mine", "groupIdPrefix": "not"}]
)
def test_group_ids_change_no_result(parity: Parity, tmp_path: Path, option: dict[str, str]) -> None:
    topic = _filled(parity, 5)
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **option)))
    assert _values(found) == [0, 1, 2, 3, 4]

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", **option)
        return _numbers(engine.drain(frame, tmp_path))

    assert _values(parity.same(stream)) == [0, 1, 2, 3, 4]


@pytest.mark.parity("source option: kafka.* of others")
def test_settings_of_producers_and_unknown_ones_are_ignored(parity: Parity) -> None:
    topic = _filled(parity, 3)
    settings = {
        "kafka__key__serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "kafka__transactional__id": "job-1",
        "kafka__schema__registry__url": "http://registry:8081",
        "kafka__consumer__commit__groupid": "g",
        "kafka__poll__timeout__ms": "512",
    }
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **settings)))
    assert _values(found) == [0, 1, 2]


@pytest.mark.parity("source option: kafka.*")
def test_settings_are_passed_to_the_client(parity: Parity) -> None:
    topic = _filled(parity, 5)
    settings = {
        "kafka__isolation__level": "read_committed",
        "kafka__max__partition__fetch__bytes": 100,
        "kafka__fetch__max__wait__ms": 100,
        "kafka__max__poll__records": 2,
    }
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **settings)))
    assert _values(found) == [0, 1, 2, 3, 4]
    parity.same_failure(
        lambda engine: engine.batch(subscribe=topic, kafka__isolation__level="some"),
        "kafka.isolation.level is 'some'; expected one of read_uncommitted, read_committed",
    )


@pytest.mark.parity("source option: without effect")
def test_what_has_no_effect_is_no_error(parity: Parity) -> None:
    topic = _filled(parity, 5)
    if not parity.has_peer:  # With its jar there they are Spark's own, set when it starts.
        parity.spark.conf.set("spark.kafka.producer.cache.timeout", "10m")
        parity.spark.conf.set("spark.kafka.consumer.fetchedData.cache.timeout", "5m")
    found = parity.same(
        lambda engine: _numbers(engine.batch(subscribe=topic, useDeprecatedOffsetFetching=True))
    )
    assert _values(found) == [0, 1, 2, 3, 4]


# --- refused -------------------------------------------------------------------------------------
def _refused(
    parity: Parity, words: str, *, same: bool = True, servers: bool = True, **options: Any
) -> None:
    """klog refuses a batch at load in one line; the peer, too, unless it is said otherwise."""

    def load(engine: Engine) -> "DataFrame":
        reader = engine.spark.read.format(engine.format)
        given = {name.replace("__", "."): str(value) for name, value in options.items()}
        if servers:
            given = {"kafka.bootstrap.servers": engine.topics.servers, **given}
        return reader.options(**given).load()

    with pytest.raises(AnalysisException) as caught:
        load(Engine("klog", parity.topics))  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "Traceback" not in str(caught.value)
    if same:
        parity.same_failure(load, words)


@pytest.mark.parity("refused: no strategy")
def test_no_strategy(parity: Parity) -> None:
    words = "none of the options assign, subscribe, subscribePattern is given; expected one, as in"
    _refused(parity, words, startingOffsets="earliest")


@pytest.mark.parity("refused: several strategies")
def test_several_strategies(parity: Parity) -> None:
    words = "options subscribe and subscribePattern are given; expected exactly one of them"
    _refused(parity, words, subscribe="t", subscribePattern="t.*")
    words = "options assign and subscribe are given; expected exactly one of them"
    _refused(parity, words, assign='{"t":[0]}', subscribe="t")


@pytest.mark.parity("refused: empty list or pattern")
def test_an_empty_list_or_pattern(parity: Parity) -> None:
    _refused(parity, "option subscribe names no topic; expected a list like", subscribe=" , ")
    _refused(parity, "option subscribePattern is empty; expected a regular", subscribePattern=" ")
    _refused(parity, "assign is ''; expected JSON like", assign="")
    _refused(parity, "subscribePattern is '[a', which klog cannot use", subscribePattern="[a")


@pytest.mark.parity("refused: no bootstrap servers")
def test_no_bootstrap_servers(parity: Parity) -> None:
    words = "option kafka.bootstrap.servers is missing; expected host:port of a broker"
    _refused(parity, words, servers=False, subscribe="t")


@pytest.mark.parity("refused: non-positive minPartitions")
@pytest.mark.parametrize("value", ["0", "-1", "some", "3000000000"])
def test_min_partitions_must_be_positive(parity: Parity, value: str) -> None:
    words = f"option minPartitions is '{value}'; expected a whole number from 1 to 2147483647"
    _refused(parity, words, subscribe="t", minPartitions=value)


@pytest.mark.parity("refused: non-positive maxRecordsPerPartition")
@pytest.mark.parametrize("value", ["0", "-1", "some"])
def test_max_records_must_be_positive(parity: Parity, value: str) -> None:
    words = f"option maxRecordsPerPartition is '{value}'; expected a whole number from 1 on"
    _refused(parity, words, subscribe="t", maxRecordsPerPartition=value)


@pytest.mark.parity("refused: non-positive limits", differs="limits-of-nothing")
@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_limits_must_be_positive(parity: Parity, name: str, value: str) -> None:
    words = f"option {name} is '{value}'; expected a whole number from 1 on"
    _refused(parity, words, same=False, subscribe="t", **{name: value})


@pytest.mark.parity("refused: min above max")
def test_the_minimum_must_not_pass_the_maximum(parity: Parity) -> None:
    words = "minOffsetsPerTrigger is 9 and maxOffsetsPerTrigger is 8; expected the minimum to be at"
    _refused(parity, words, subscribe="t", minOffsetsPerTrigger=9, maxOffsetsPerTrigger=8)


@pytest.mark.parity("refused: starting latest in batch")
def test_a_batch_cannot_start_at_latest(parity: Parity) -> None:
    topic = _filled(parity, 1)
    for given, words in (
        ("latest", "startingOffsets is latest; a batch cannot begin at the end: expected earliest"),
        (_json(topic, -1), "startingOffsets has -1 (latest); a batch cannot begin at the end"),
    ):
        parity.same_failure(
            lambda engine, g=given: engine.batch(subscribe=topic, startingOffsets=g), words
        )


@pytest.mark.parity("refused: ending earliest")
def test_a_batch_cannot_end_at_earliest(parity: Parity) -> None:
    words = "endingOffsets is earliest; expected latest or JSON with offsets"
    _refused(parity, words, subscribe="t", endingOffsets="earliest")
    words = 'endingOffsets has -2 (earliest); expected -1 (latest) or offsets: {"t": {"0": -2}}'
    _refused(parity, words, subscribe="t", endingOffsets=_json("t", -2))


@pytest.mark.parity("refused: ending options on a stream")
@pytest.mark.parametrize(
    ("name", "value"), [("endingOffsets", "latest"), ("endingOffsetsByTimestamp", '{"$":{"0":1}}')]
)
def test_a_stream_has_no_end(parity: Parity, tmp_path: Path, name: str, value: str) -> None:
    topic = _filled(parity, 1)

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, **{name: value.replace("$", topic)})
        return engine.drain(frame, tmp_path)

    parity.same_failure(stream, f"{name} is not for streams, which have no end: leave it out")


@pytest.mark.parity("refused: ending options on a stream", differs="ending-timestamp")
def test_a_stream_has_no_ending_timestamp(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 1)

    def stream(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=topic, startingOffsets="earliest", endingTimestamp=1_000)
        return _numbers(engine.drain(frame, tmp_path))

    words = "endingTimestamp is not for streams, which have no end: leave it out"
    assert words in parity.failure("klog", stream)
    peer = parity.peer_only(stream)
    assert peer is None or _values(peer) == [0]


@pytest.mark.parity("refused: malformed offset JSON")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("startingOffsets", "newest", "startingOffsets is 'newest'; expected earliest, latest"),
        ("startingOffsets", '{"t":', 'startingOffsets is \'{"t":\'; expected JSON like {"topicA"'),
        ("startingOffsets", '{"t":{"x":1}}', "startingOffsets has 'x': 1 for topic 't'; expected"),
        ("startingOffsets", '{"t":[1]}', 'expected JSON like {"topicA":{"0":23,"1":-1}'),
        ("endingOffsets", "{1}", "endingOffsets is '{1}'; expected JSON like"),
        ("startingTimestamp", "today", "startingTimestamp is 'today'; expected milliseconds since"),
        ("startingOffsetsByTimestamp", "1000", 'expected JSON like {"topicA":{"0":1700000000000'),
        ("endingTimestamp", "1e3", "endingTimestamp is '1e3'; expected milliseconds since 1970"),
        (
            "endingOffsetsByTimestamp",
            '{"t":5}',
            "endingOffsetsByTimestamp is {'t': 5}; expected JS",
        ),
        ("assign", '{"t":0}', 'assign is \'{"t":0}\'; expected JSON like {"topicA":[0,1]'),
    ],
)
def test_malformed_offsets(parity: Parity, name: str, value: str, words: str) -> None:
    options = {name: value} if name == "assign" else {"subscribe": "t", name: value}
    _refused(parity, words, **options)


@pytest.mark.parity("refused: offsets of other partitions")
def test_offsets_of_other_partitions(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 1, 1)
    example = f'expected every partition that is read, as in {{"{topic}": {{"0": -2, "1": -2}}}}'

    def batch(engine: Engine, **options: Any) -> "DataFrame":
        return _numbers(engine.batch(**options))

    too_few = {"startingOffsets": _json(topic, 0)}
    for options, words in (
        ({"assign": json.dumps({topic: [0, 1]}), **too_few}, f"without {topic}-1; {example}"),
        ({"subscribe": topic, **too_few}, f"startingOffsets is given without {topic}-1; {example}"),
        ({"subscribePattern": topic, **too_few}, f"without {topic}-1; {example}"),
        (
            {"subscribe": topic, "startingOffsets": _json(topic, 0, 0, 0)},
            f"with {topic}-2, which is not read; {example}",
        ),
        (
            {"subscribe": topic, "startingOffsetsByTimestamp": _json(topic, 7)},
            f'as in {{"{topic}": {{"0": 7, "1": 7}}}}',
        ),
        ({"subscribe": topic, "endingOffsets": _json(topic, 1)}, f"without {topic}-1; expected"),
    ):
        text = parity.same_failure(lambda engine, o=options: batch(engine, **o), words)
        assert "Traceback" not in text

    def stream(engine: Engine) -> "DataFrame":
        return engine.drain(engine.stream(subscribe=topic, **too_few), tmp_path)

    parity.same_failure(stream, f"startingOffsets is given without {topic}-1; {example}")


@pytest.mark.parity("refused: other keys in starting and ending")
def test_starting_and_ending_name_the_same_partitions(parity: Parity) -> None:
    ends = {"startingOffsets": _json("t", 5, 5), "endingOffsets": _json("t", 6)}
    _refused(parity, "endingOffsets is given without t-1; expected every", subscribe="t", **ends)
    ends = {
        "startingOffsetsByTimestamp": _json("t", 5, 5),
        "endingOffsetsByTimestamp": _json("t", 6),
    }
    words = "endingOffsetsByTimestamp is given without t-1; expected every partition that is read"
    _refused(parity, words, subscribe="t", **ends)
    ends = {"startingOffsets": _json("t", 5), "endingOffsets": _json("t", 4)}
    words = "a batch would end before it begins: t-0 from 5 to 4; check startingOffsets and ending"
    _refused(parity, words, subscribe="t", **ends)


@pytest.mark.parity("refused: kafka.auto.offset.reset")
def test_auto_offset_reset(parity: Parity) -> None:
    words = "option kafka.auto.offset.reset is not supported: use startingOffsets"
    _refused(parity, words, subscribe="t", kafka__auto__offset__reset="earliest")


@pytest.mark.parity("refused: kafka.key.deserializer")
def test_key_deserializer(parity: Parity) -> None:
    words = "option kafka.key.deserializer is not supported: keys are binary: cast the column"
    _refused(parity, words, subscribe="t", kafka__key__deserializer="x")


@pytest.mark.parity("refused: kafka.value.deserializer")
def test_value_deserializer(parity: Parity) -> None:
    words = "option kafka.value.deserializer is not supported: values are binary: cast the column"
    _refused(parity, words, subscribe="t", kafka__value__deserializer="x")


@pytest.mark.parity("refused: kafka.sasl.username without a login", differs="unknown-settings")
def test_a_user_and_password_without_a_login(parity: Parity) -> None:
    words = " is a setting of librdkafka, and no login would be made with it: set"
    login = {"kafka__sasl__username": "me", "kafka__sasl__password": "mine"}
    _refused(parity, words, same=False, subscribe="t", **login)


@pytest.mark.parity("refused: kafka.enable.auto.commit")
def test_enable_auto_commit(parity: Parity) -> None:
    words = "option kafka.enable.auto.commit is not supported: progress is kept in Spark's checkp"
    _refused(parity, words, subscribe="t", kafka__enable__auto__commit="true")


@pytest.mark.parity("refused: kafka.interceptor.classes")
def test_interceptors(parity: Parity) -> None:
    words = "option kafka.interceptor.classes is not supported: interceptors are Java classes"
    _refused(parity, words, subscribe="t", kafka__interceptor__classes="x")


@pytest.mark.parity("refused: misspelt option", differs="misspelt-options")
def test_misspelt_options(parity: Parity) -> None:
    for name, meant in (("startingOffset", "startingOffsets"), ("minPartition", "minPartitions")):
        words = f"there is no option {name.lower()}; did you mean {meant}?"
        _refused(parity, words, same=False, subscribe="t", **{name: "1"})
    topic = _filled(parity, 2)
    own = {"checkpointLocation": "x", "queryName": "y", "header": "true", "mergeSchema": "false"}
    found = parity.same(lambda engine: _numbers(engine.batch(subscribe=topic, **own)))
    assert _values(found) == [0, 1], "Spark's own options are none of klog's, misspelt"


@pytest.mark.parity("row: user schema")
def test_a_schema_of_the_users_is_refused(parity: Parity, tmp_path: Path) -> None:
    topic = _filled(parity, 1)

    def batch(engine: Engine) -> "DataFrame":
        reader = engine.spark.read.format(engine.format).schema("value string")
        return reader.options(**engine.options(subscribe=topic)).load()

    def stream(engine: Engine) -> "DataFrame":
        reader = engine.spark.readStream.format(engine.format).schema("value string")
        return engine.drain(reader.options(**engine.options(subscribe=topic)).load(), tmp_path)

    words = "the schema struct<value:string> was given; klog's is fixed: leave out schema(...)"
    parity.same_failure(batch, words)
    parity.same_failure(stream, words)


def test_the_progress_counts_rows(parity: Parity, tmp_path: Path) -> None:
    engine = Engine("klog", parity.topics)  # type: ignore[arg-type]
    frame = engine.stream(subscribe=_filled(parity, 3), startingOffsets="earliest")
    query = engine.collected(frame, tmp_path).query
    assert query is not None and sum(input_rows(query)) == 3
