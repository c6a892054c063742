"""The sink beside Spark's own: columns, topics, partitions, refusals, both kinds of writing."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_klog.records.partitioner import partition_for_key
from tests.support.parity.scenarios import Engine, Parity
from tests.support.spark.topics import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KAFKA = "org.apache.kafka.clients.producer."


def _written(
    sql: str | Sequence[str], *columns: str, partitions: int = 3, tasks: int = 1, **options: Any
) -> Callable[[Engine], "DataFrame"]:
    """A scenario: rows written to a new topic (``{topic}`` in the SQL), and what is read back.

    Each of several statements is a write of its own; the topic is read once.
    """

    def scenario(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(partitions)
        named = options if "topic" in options else {"topic": topic, **options}
        given = {k: v.format(topic=topic) if k == "topic" else v for k, v in named.items() if v}
        for statement in (sql,) if isinstance(sql, str) else sql:
            frame = engine.spark.sql(statement.format(topic=topic)).coalesce(tasks)
            engine.append(frame, **given)
        return engine.batch(subscribe=topic, includeHeaders=True).selectExpr(*columns)

    return scenario


def _rows(frame: "DataFrame") -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


# --- columns -------------------------------------------------------------------------------------
@pytest.mark.parity("sink: value column", "sink: key column", "sink: batch")
def test_keys_and_values_are_string_or_binary(parity: Parity) -> None:
    strings = "SELECT 'v' AS value, 'string' AS key UNION ALL SELECT 'ä€', ''"
    binaries = "SELECT X'76' AS value, X'6B' AS key"
    no_keys = "SELECT 'alone' AS value"
    found = parity.same(_written([strings, binaries, no_keys], "string(key)", "string(value)"))
    assert _rows(found) == [("", "ä€"), ("k", "v"), ("string", "v"), (None, "alone")]


@pytest.mark.parity("sink: value column", "sink: key column", "sink: topic column")
def test_char_and_varchar_columns(parity: Parity) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        spark, topic = engine.spark, engine.topics.create(1)
        spark.sql("DROP TABLE IF EXISTS padded")
        spark.sql(
            "CREATE TABLE padded (value CHAR(3), key VARCHAR(3), topic VARCHAR(99)) USING csv"
        )
        spark.sql(f"INSERT INTO padded VALUES ('v', 'k', '{topic}')")
        engine.append(spark.table("padded"))
        return engine.batch(subscribe=topic).selectExpr("string(key)", "string(value)")

    assert _rows(parity.same(scenario)) == [("k", "v  ")]


@pytest.mark.parity("sink: null values")
def test_nulls_stay_null(parity: Parity) -> None:
    sql = "SELECT 'k' AS key, cast(NULL AS string) AS value UNION ALL SELECT NULL, ''"
    found = parity.same(_written(sql, "string(key)", "string(value)"))
    assert _rows(found) == [("k", None), (None, "")]


@pytest.mark.parity("sink: headers column")
def test_headers_are_written_whenever_they_are_there(parity: Parity) -> None:
    sql = """
        SELECT 'two' AS value, array(
            named_struct('key', 'h', 'value', X'31'),
            named_struct('key', 'n', 'value', cast(NULL AS binary))
        ) AS headers
        UNION ALL SELECT 'none', NULL
        UNION ALL SELECT 'twice', array(
            named_struct('KEY', '', 'Value', X''), named_struct('KEY', '', 'Value', X'32'))
    """
    found = parity.same(
        _written(sql, "string(value)", "coalesce(headers, array()) AS headers", partitions=1)
    )
    assert _rows(found) == [
        ("none", []),
        ("twice", [("", bytearray(b"")), ("", bytearray(b"2"))]),
        ("two", [("h", bytearray(b"1")), ("n", None)]),
    ]


@pytest.mark.parity("sink: topic column")
def test_each_row_goes_to_its_topic(parity: Parity) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        one, two = engine.topics.create(1), engine.topics.create(1)
        sql = f"SELECT string(id) AS value, if(id % 2 = 0, '{one}', '{two}') AS topic FROM range(6)"
        engine.append(engine.spark.sql(sql).coalesce(1))
        frame = engine.batch(subscribe=f"{one},{two}")
        return frame.selectExpr("topic", "offset", "string(value)")

    assert _rows(parity.same(scenario)) == [
        ("topic-1", 0, "0"),
        ("topic-1", 1, "2"),
        ("topic-1", 2, "4"),
        ("topic-2", 0, "1"),
        ("topic-2", 1, "3"),
        ("topic-2", 2, "5"),
    ]


@pytest.mark.parity("sink: option topic")
def test_the_option_topic_is_trimmed_and_wins(parity: Parity) -> None:
    sql = "SELECT 'no-such-topic' AS topic, 'v' AS value UNION ALL SELECT NULL, 'w'"
    found = parity.same(_written(sql, "topic", "string(value)", topic=" {topic} "))
    assert _rows(found) == [("topic-1", "v"), ("topic-1", "w")]


@pytest.mark.parity("sink: extra columns")
def test_extra_columns_are_ignored(parity: Parity) -> None:
    sql = "SELECT 'v' AS value, 7 AS other, map('a', 1) AS `of a map`, 'x' AS offset, 'y' AS KEY"
    found = parity.same(_written(sql, "string(key)", "string(value)"))
    assert _rows(found) == [(None, "v")]


@pytest.mark.parity("sink: column timestamp")
def test_a_column_timestamp_is_ignored(parity: Parity) -> None:
    timestamps = [
        "timestamp'2017-07-14 02:40:00'",
        "timestamp_ntz'2017-07-14 02:40:00'",
        "date'2017-07-14'",
        "1500000000L",
        "'yesterday'",
        "NULL",
    ]
    writes = [
        f"SELECT '{at}' AS value, {given} AS timestamp" for at, given in enumerate(timestamps)
    ]
    writes[0] += " UNION ALL SELECT 'old', timestamp'1960-01-01 00:00:00'"
    now = "timestamp BETWEEN now() - INTERVAL 1 HOUR AND now() + INTERVAL 1 HOUR AS is_now"
    found = parity.same(_written(writes, "string(value)", now))
    assert _rows(found) == [(str(at), True) for at in range(6)] + [("old", True)]


# --- partitions ----------------------------------------------------------------------------------
@pytest.mark.parity("sink: partition column", "sink: default partitioner")
def test_a_partition_column_goes_before_the_keys_hash(parity: Parity) -> None:
    sql = """
        SELECT string(id) AS key, string(id) AS value,
            if(id < 10, int(id % 3), cast(NULL AS int)) AS partition
        FROM range(40)
    """
    found = parity.same(_written(sql, "string(value)", "partition"))
    assert _rows(found) == sorted(
        ((str(n), n % 3 if n < 10 else partition_for_key(b"%d" % n, 3)) for n in range(40)),
        key=repr,
    )


@pytest.mark.parity("sink: keyless rows")
def test_rows_without_keys_all_arrive(parity: Parity) -> None:
    # klog's sink gets at most 10,000 rows at a time, and chooses a partition for each such part.
    sql = "SELECT repeat('v', 100) AS value FROM range(12000)"

    def scenario(engine: Engine) -> "DataFrame":
        rows = _written(sql, "partition")(engine).collect()
        return engine.frame([(len(rows), len(set(rows)) > 1)], "rows int, is_spread boolean")

    assert _rows(parity.same(scenario)) == [(12_000, True)]


@pytest.mark.parity("sink: kafka.partitioner.class")
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("kafka__partitioner__class", f"{_KAFKA}UniformStickyPartitioner"),
        ("kafka__partitioner__ignore__keys", "true"),
    ],
)
def test_partitioners_that_ignore_keys(parity: Parity, setting: str, value: str) -> None:
    sql = "SELECT string(id) AS key, string(id) AS value FROM range(60)"

    def scenario(engine: Engine) -> "DataFrame":
        rows = _written(sql, "int(string(key))", "partition", **{setting: value})(engine).collect()
        keys, partitions = (set(column) for column in zip(*rows, strict=True))
        counts = [(len(rows), len(keys), len(partitions))]
        return engine.frame(counts, "rows int, keys int, partitions int")

    assert _rows(parity.same(scenario)) == [(60, 60, 1)]


@pytest.mark.parity("sink: kafka.partitioner.class", differs="partitioners")
def test_the_round_robin_partitioner_is_even(parity: Parity) -> None:
    # The Java client chooses twice for the first record of a batch, and so leaves some out.
    name = f"{_KAFKA}RoundRobinPartitioner"
    sql = "SELECT string(id) AS key, string(id) AS value FROM range(60)"
    scenario = _written(sql, "partition", kafka__partitioner__class=name)
    counts = Counter(_rows(parity.klog_only(scenario)))
    assert counts == {(0,): 20, (1,): 20, (2,): 20}


@pytest.mark.parity("sink: partition column", "sink: kafka.partitioner.class")
def test_a_partition_column_goes_before_the_class(parity: Parity) -> None:
    sql = "SELECT string(id) AS value, 2 AS partition FROM range(9)"
    name = f"{_KAFKA}RoundRobinPartitioner"
    scenario = _written(sql, "string(value)", "partition", kafka__partitioner__class=name)
    assert _rows(parity.same(scenario)) == [(str(number), 2) for number in range(9)]


@pytest.mark.parity("sink: kafka.partitioner.class", differs="partitioners")
def test_a_partitioner_of_ones_own(parity: Parity) -> None:
    sql = """
        SELECT string(id) AS key, string(id) AS value,
            if(id = 0, 1, cast(NULL AS int)) AS partition
        FROM range(30)
    """
    own = "tests.support.partitioners:last_but_keyed"
    scenario = _written(sql, "int(string(key))", "partition", kafka__partitioner__class=own)
    found = dict(_rows(parity.klog_only(scenario)))
    assert found.pop(0) == 1
    # The function leaves odd numbers to the default.
    assert found == {n: partition_for_key(b"%d" % n, 3) if n % 2 else 2 for n in range(1, 30)}


@pytest.mark.parity("sink: kafka.partitioner.class")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "com.example.Own",
            "kafka.partitioner.class is 'com.example.Own'; expected module:callable",
        ),
        ("tests.support.partitioners:absent", "names tests.support.partitioners:absent: module"),
    ],
)
def test_a_partitioner_that_does_not_exist(parity: Parity, name: str, text: str) -> None:
    scenario = _written("SELECT 'v' AS value", "value", kafka__partitioner__class=name)
    parity.same_failure(scenario, text)


@pytest.mark.parity("sink: negative or unknown partition")
@pytest.mark.parametrize("partition", [3, -1])
def test_a_partition_that_the_topic_lacks(parity: Parity, partition: int) -> None:
    scenario = _written(
        f"SELECT 'v' AS value, {partition} AS partition", "value", kafka__max__block__ms=1_500
    )
    text = parity.same_failure(scenario, f"column partition is {partition} in a row for topic ")
    assert "; expected 0 to 2" in text


@pytest.mark.parity("sink: partition column")
def test_partitions_that_were_added_after_the_first_look(parity: Parity) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        sql = "SELECT 'v' AS value, {} AS partition"
        engine.append(engine.spark.sql(sql.format(0)), topic=topic)
        engine.topics.admin.create_partitions(topic, 2)
        engine.append(engine.spark.sql(sql.format(1)), topic=topic)
        return engine.batch(subscribe=topic).select("partition")

    assert _rows(parity.same(scenario)) == [(0,), (1,)]


# --- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        pytest.param(
            *("'v' AS value", {"topic": None}, "no topic is named; expected option topic, or a"),
            marks=pytest.mark.parity("sink: no topic anywhere"),
        ),
        pytest.param(
            *("'v' AS value, 1 AS topic", {"topic": None}, "column topic is int; expected string"),
            marks=pytest.mark.parity("sink: wrong type: topic"),
        ),
        pytest.param(
            *("'v' AS value, 1L AS key", {}, "column key is bigint; expected string or binary"),
            marks=pytest.mark.parity("sink: wrong type: key"),
        ),
        pytest.param(
            *("1 AS value", {}, "column value is int; expected string or binary: cast it"),
            marks=pytest.mark.parity("sink: wrong type: value"),
        ),
        pytest.param(
            *("'v' AS value, map('a', 'b') AS headers", {}, "column headers is map<"),
            marks=pytest.mark.parity("sink: wrong type: headers"),
        ),
        pytest.param(
            *("'v' AS value, '0' AS partition", {}, "column partition is string; expected int"),
            marks=pytest.mark.parity("sink: wrong type: partition"),
        ),
        pytest.param(
            *("'v' AS value, 0L AS partition", {}, "column partition is bigint; expected int"),
            marks=pytest.mark.parity("sink: wrong type: partition"),
        ),
        pytest.param(
            *("'v' AS VALUE", {}, "column value is missing; expected it among ['VALUE']"),
            marks=pytest.mark.parity("sink: missing value"),
        ),
        pytest.param(
            *("'v' AS value", {"kafka__key__serializer": "x"}, "keys are string or binary: cast"),
            marks=pytest.mark.parity("sink: serializer options"),
        ),
        pytest.param(
            *("'v' AS value", {"kafka__value__serializer": "x"}, "values are string or binary"),
            marks=pytest.mark.parity("sink: serializer options"),
        ),
    ],
)
def test_refused_before_a_row_is_written(
    parity: Parity, columns: str, options: dict[str, Any], text: str
) -> None:
    found = parity.same_failure(_written(f"SELECT {columns}", "value", **options), text)
    assert "Traceback" not in found
    assert len(found.splitlines()) <= 2


@pytest.mark.parity("sink: null topic in a row")
def test_a_null_topic_in_a_row(parity: Parity) -> None:
    sql = "SELECT 'v' AS value, '{topic}' AS topic UNION ALL SELECT 'w', NULL"
    parity.same_failure(
        _written(sql, "value", topic=None),
        "column topic is null in a row; expected a topic in every row, or option topic",
    )


@pytest.mark.parity("sink: absent topic")
@pytest.mark.parametrize("column", [True, False])
def test_a_topic_that_does_not_exist(parity: Parity, column: bool) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        sql = "SELECT 'v' AS value" + (", 'absent-topic' AS topic" if column else "")
        options = {} if column else {"topic": "absent-topic"}
        engine.append(engine.spark.sql(sql), **options, kafka__max__block__ms=1_500)
        return engine.spark.range(0)

    parity.same_failure(
        scenario,
        "topic absent-topic does not exist, or has no partitions yet, after waiting 1500 ms "
        "(max.block.ms); ",
    )


@pytest.mark.parity("sink: save modes")
@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("overwrite", "save mode overwrite is not supported: use mode append"),
        ("ignore", 'cannot be written in the "Ignore" mode'),
    ],
)
def test_save_modes_other_than_append(parity: Parity, mode: str, text: str) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        engine.append(engine.spark.sql("SELECT 'v' AS value"), mode=mode, topic="t")
        return engine.spark.range(0)

    parity.same_failure(scenario, text)


@pytest.mark.parity("sink: option kafka.*")
def test_settings_reach_the_client(parity: Parity) -> None:
    codecs = ("gzip", "lz4", "snappy", "zstd")

    def scenario(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(1)
        for codec in codecs:
            sql = f"SELECT '{codec}' AS key, repeat(string(id % 7), 50) AS value FROM range(300)"
            settings = {"kafka__compression__type": codec, "kafka__acks": "1"}
            engine.append(engine.spark.sql(sql), topic=topic, kafka__linger__ms="5", **settings)
        return engine.batch(subscribe=topic).selectExpr("string(key)", "string(value)")

    expected = Counter((codec, str(n % 7) * 50) for codec in codecs for n in range(300))
    assert Counter(_rows(parity.same(scenario))) == expected


@pytest.mark.parity("sink: option kafka.* of others")
def test_settings_of_consumers_and_unknown_ones_are_ignored(parity: Parity) -> None:
    scenario = _written(
        *("SELECT 'v' AS value", "string(value)"),
        kafka__auto__offset__reset="earliest",
        kafka__enable__auto__commit="false",
        kafka__key__deserializer="org.apache.kafka.common.serialization.StringDeserializer",
        kafka__metadata__broker__list="broker:9092",
    )
    assert _rows(parity.same(scenario)) == [("v",)]


@pytest.mark.parity("sink: small buffers")
def test_small_buffers_block_and_never_fail(parity: Parity) -> None:
    sql = "SELECT string(id) AS key, repeat('v', 100) AS value FROM range(1000)"
    scenario = _written(
        *(sql, "int(string(key))"), kafka__buffer__memory=4_000, kafka__batch__size=1_000
    )
    numbers = [row[0] for row in parity.same(scenario).collect()]
    assert sorted(numbers) == list(range(1_000))


# --- streams -------------------------------------------------------------------------------------
def _copied(engine: Engine, source: str, target: str, checkpoint: Path, **options: Any) -> Any:
    frame = engine.stream(subscribe=source, startingOffsets="earliest").select("key", "value")
    return run(engine.append_stream(frame, checkpoint, topic=target, **options))


@pytest.mark.parity("sink: stream append")
def test_a_stream_appends_and_goes_on(parity: Parity, tmp_path: Path) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        source, target = engine.topics.create(2), engine.topics.create(2)
        engine.topics.put_numbers(source, range(20))
        _copied(engine, source, target, tmp_path)
        engine.topics.put_numbers(source, range(20, 25), partition=1)
        _copied(engine, source, target, tmp_path)
        return engine.batch(subscribe=target).selectExpr("int(string(value))")

    assert _rows(parity.same(scenario)) == sorted(((n,) for n in range(25)), key=repr)


@pytest.mark.parity("sink: stream complete")
def test_complete_mode_appends_every_result(parity: Parity, tmp_path: Path) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        source, target = engine.topics.create(1), engine.topics.create(1)
        for numbers in ([1, 2, 1], [2, 2]):
            engine.topics.put_numbers(source, numbers)
            frame = engine.stream(subscribe=source, startingOffsets="earliest")
            counts = frame.groupBy("value").count()
            rows = counts.selectExpr("value AS key", "string(count) AS value")
            run(engine.append_stream(rows, tmp_path, output_mode="complete", topic=target))
        frame = engine.batch(subscribe=target)
        return frame.selectExpr("string(key)", "string(value)", "offset < 2 AS in_first")

    assert _rows(parity.same(scenario)) == [
        ("1", "2", False),
        ("1", "2", True),
        ("2", "1", True),
        ("2", "3", False),
    ]


@pytest.mark.parity("sink: numOutputRows")
def test_progress_reports_the_rows(parity: Parity, tmp_path: Path) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        source, target = engine.topics.create(2), engine.topics.create(1)
        engine.topics.put_numbers(source, range(11))
        query = _copied(engine, source, target, tmp_path)
        counts = [(p.sink.numOutputRows,) for p in query.recentProgress if p.numInputRows]
        return engine.frame(counts, "rows long")

    assert _rows(parity.same(scenario)) == [(11,)]


@pytest.mark.parity("sink: no topic anywhere", "sink: wrong type: key")
@pytest.mark.parametrize(
    ("key", "options", "text"),
    [
        ("value AS key", {}, "no topic is named; expected option topic"),
        ("1 AS key", {"topic": "t"}, "column key is int; expected string or binary: cast it"),
    ],
)
def test_a_stream_is_refused_as_a_batch_is(
    parity: Parity, tmp_path: Path, key: str, options: dict[str, str], text: str
) -> None:
    source = parity.topics.create(1)
    parity.topics.put_numbers(source, [1])

    def scenario(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=source, startingOffsets="earliest")
        run(engine.append_stream(frame.selectExpr(key, "value"), tmp_path, **options))
        return engine.spark.range(0)

    assert "Traceback" not in parity.same_failure(scenario, text)


@pytest.mark.parity("sink: null topic in a row", "sink: stream append")
def test_a_row_that_fails_a_stream(parity: Parity, tmp_path: Path) -> None:
    source = parity.topics.create(1)
    parity.topics.put_numbers(source, [1])

    def scenario(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=source, startingOffsets="earliest")
        rows = frame.selectExpr("value", "cast(NULL AS string) AS topic")
        run(engine.append_stream(rows, tmp_path))
        return engine.spark.range(0)

    text = parity.same_failure(scenario, "SchemaError: column topic is null in a row; expected a")
    assert "Traceback" not in text


# --- what a Python source cannot do --------------------------------------------------------------
@pytest.mark.parity("python source: update mode", differs="update-mode")
def test_update_mode_is_refused_by_spark(parity: Parity, tmp_path: Path) -> None:
    source = parity.topics.create(1)
    parity.topics.put_numbers(source, [1])

    def scenario(engine: Engine) -> "DataFrame":
        frame = engine.stream(subscribe=source, startingOffsets="earliest").select("value")
        run(engine.append_stream(frame, tmp_path, output_mode="update", topic=source))
        return engine.spark.range(0)

    assert "klog does not support Update mode" in parity.failure("klog", scenario)


@pytest.mark.parity("python source: save without mode append", differs="save-modes")
def test_a_save_without_mode_append_is_refused_by_spark(parity: Parity) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        engine.append(engine.spark.sql("SELECT 'v' AS value"), mode=None, topic="t")
        return engine.spark.range(0)

    text = parity.failure("klog", scenario)
    assert 'The data source "klog" cannot be written in the "ErrorIfExists" mode' in text
    assert '"Append"' in text
