"""Errors as a user reads them in the driver: one line, with what to do.

The text is str() of Spark's exception. Spark's own words surround klog's line, and a stream's query
plan follows. Checked is that klog's line is whole, that it comes first or behind Spark's words
alone, and that there is no traceback.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import (
    AnalysisException,
    PySparkException,
    PythonException,
    StreamingQueryException,
)

from pyspark_klog import testing
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from tests.support.spark.bare_python import workers_without
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LED_BY = (
    r"\[PYTHON_DATA_SOURCE_ERROR\] Failed to [a-z A-Z]+: ",
    r"\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: \[\w+\] [^:]*: ",
    r"",
)
"""Spark's words before klog's in the same line."""


@contextmanager
def _failing(kind: type[PySparkException] = PySparkException) -> Iterator[list[str]]:
    """The block fails with that kind; the list gets klog's line, the class's name in front."""
    found: list[str] = []
    with pytest.raises(kind) as caught:
        yield found
    text = str(caught.value)
    assert "Traceback" not in text, text
    assert "\tat " not in text, text
    lines = text.splitlines()
    [number] = [n for n, line in enumerate(lines) if "pyspark_klog." in line]
    assert number == 0 or lines[:number] == ["An exception was thrown from the Python worker:"]
    matches = [
        re.match(rf"{lead}pyspark_klog\.[\w.]*?(\w+: .+)", lines[number]) for lead in _LED_BY
    ]
    [match] = [found_match for found_match in matches if found_match]
    found.append(match[1])


def _read(topics: Topics, **options: Any) -> None:
    topics.batch(fetchOffset__retryIntervalMs=10, **options).collect()


def _stream(topics: Topics, folder: Path, **options: Any) -> None:
    frame = topics.stream(fetchOffset__retryIntervalMs=10, **options)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "c"))
    run(writer.trigger(availableNow=True).start())


def _save(frame: "DataFrame", topics: Topics, **options: Any) -> None:
    frame.write.format("klog").options(**topics.options(**options)).mode("append").save()


def _save_stream(frame: "DataFrame", topics: Topics, folder: Path, **options: Any) -> None:
    writer = frame.writeStream.format("klog").option("checkpointLocation", str(folder / "c"))
    writer = writer.options(**topics.options(**options))
    run(writer.trigger(availableNow=True).start())


@pytest.fixture
def rows(spark: "SparkSession") -> "DataFrame":
    return spark.range(2).selectExpr("string(id) AS value")


@pytest.fixture
def full(topics: Topics) -> str:
    """A topic with ten records in one partition."""
    topic = topics.create()
    topics.put_numbers(topic, range(10))
    return topic


def _values(topics: Topics, topic: str) -> "DataFrame":
    return topics.stream(subscribe=topic, startingOffsets="earliest").select("value")


# --- a wrong topic -------------------------------------------------------------------------------
_ABSENT = (
    "TopicMissing: topic absent does not exist; create it, or check option subscribe (brokers are "
    "asked up to 3 times, as fetchOffset.numRetries says)"
)


def test_a_topic_to_read_is_absent(topics: Topics, tmp_path: Path) -> None:
    with _failing(AnalysisException) as batch:
        _read(topics, subscribe="absent")
    with _failing(StreamingQueryException) as stream:
        _stream(topics, tmp_path, subscribe="absent")
    assert batch == stream == [_ABSENT]


def test_a_partition_to_read_is_absent(topics: Topics, full: str) -> None:
    with _failing(AnalysisException) as line:
        _read(topics, assign=json.dumps({full: [0, 7]}))
    assert line[0].startswith(
        f"TopicMissing: assign names partitions that do not exist: {full}-7; create it, or check "
        "option assign"
    )


def test_a_topic_to_write_to_is_absent(
    topics: Topics, rows: "DataFrame", full: str, tmp_path: Path
) -> None:
    with _failing(PythonException) as batch:
        _save(rows, topics, topic="absent", kafka__max__block__ms=300)
    with _failing(StreamingQueryException) as stream:
        frame = _values(topics, full)
        _save_stream(frame, topics, tmp_path, topic="absent", kafka__max__block__ms=300)
    expected = (
        "TopicMissing: topic absent does not exist, or has no partitions yet, after waiting 300 ms "
        "(max.block.ms); create it, or let brokers do so with auto.create.topics.enable"
    )
    assert batch == stream == [expected]


# --- no broker -----------------------------------------------------------------------------------
_NOBODY = {
    "kafka.bootstrap.servers": "127.0.0.1:1,localhost:2",
    "kafka.default.api.timeout.ms": "300",
    "kafka.max.block.ms": "300",
    "kafka.delivery.timeout.ms": "300",
    "kafka.request.timeout.ms": "300",
    "fetchOffset.numRetries": "1",
}


def _names_what_was_tried(line: str) -> None:
    assert line.startswith("TimedOut: asking for the cluster's metadata did not succeed in time: ")
    assert (
        "no broker could be reached: could not connect to 127.0.0.1:1: Connection refused" in line
    )
    assert "could not connect to localhost:2: " in line
    assert "; check kafka.bootstrap.servers, and whether these addresses can be reached" in line


def test_no_broker_to_read_from(topics: Topics, tmp_path: Path) -> None:
    with _failing(AnalysisException) as line:
        _read(topics, subscribe="t", **_NOBODY)
    _names_what_was_tried(line[0])
    with _failing(StreamingQueryException) as line:
        _stream(topics, tmp_path, subscribe="t", **_NOBODY)
    _names_what_was_tried(line[0])


def test_no_broker_to_write_to(
    topics: Topics, rows: "DataFrame", full: str, tmp_path: Path
) -> None:
    with _failing(PythonException) as line:
        _save(rows, topics, topic="t", **_NOBODY)
    _names_what_was_tried(line[0])
    with _failing(StreamingQueryException) as line:
        _save_stream(_values(topics, full), topics, tmp_path, topic="t", **_NOBODY)
    _names_what_was_tried(line[0])


def test_a_worker_says_that_it_waits_and_for_how_long(spark: "SparkSession") -> None:
    # Long enough for a first failed attempt on a busy machine.
    given = {**_NOBODY, "subscribe": "t", "kafka.default.api.timeout.ms": "2000"}

    def stderr_of_a_wait(_: int) -> str:
        from pyspark_klog.client.cluster.blocking_client import BlockingClient
        from pyspark_klog.client.errors import TimedOut
        from pyspark_klog.spark.options.reader import read_options

        settings = read_options(given).client
        with redirect_stderr(StringIO()) as stderr, BlockingClient(settings) as client:
            with suppress(TimedOut):
                client.refresh(["t"])
            return stderr.getvalue()

    [text] = spark.sparkContext.parallelize([0], 1).map(stderr_of_a_wait).collect()
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} level=WARNING "
        r"logger=pyspark_klog\.client\.cluster\.retry_warnings "
        r"asking for the cluster's metadata has failed and is tried again for up to \d+ m?s "
        r"\(kafka\.default\.api\.timeout\.ms\): no broker could be reached: ",
        text,
    )
    assert text.count("\n") == 1


def test_servers_that_are_no_addresses(topics: Topics) -> None:
    with _failing(AnalysisException) as line:
        _read(topics, subscribe="t", kafka__bootstrap__servers="localhost")
    assert line == [
        "SettingError: kafka.bootstrap.servers has 'localhost'; expected host:port, as in "
        "localhost:9092"
    ]


# --- data loss -----------------------------------------------------------------------------------
def test_data_loss_in_a_batch(topics: Topics, full: str) -> None:
    ends = {
        "startingOffsets": f'{{"{full}":{{"0":50}}}}',
        "endingOffsets": f'{{"{full}":{{"0":60}}}}',
    }
    with _failing(PythonException) as line:
        _read(topics, subscribe=full, **ends)
    assert line == [
        f"DataLost: offset 50 of {full}-0 is out of range: offsets 50 to 60 were to be read, and 0 "
        "to 10 are there (ends exclusive): startingOffsets is beyond the end; begin at offset 10 "
        "or before, and check the topic and kafka.bootstrap.servers"
    ]


def test_data_loss_in_a_stream(topics: Topics, full: str, tmp_path: Path) -> None:
    with _failing(StreamingQueryException) as line:
        _stream(topics, tmp_path, subscribe=full, startingOffsets=f'{{"{full}":{{"0":50}}}}')
    assert line == [
        f"DataLost: startingOffsets is beyond the end: it names offset 50 of {full}-0, which ends "
        "at offset 10; give offsets up to the end, or latest, and check the topic and "
        "kafka.bootstrap.servers"
    ]


@pytest.fixture
def with_open_transaction(topics: Topics) -> Iterator[str]:
    """A topic: two records, one of a transaction that is open, and one behind it."""
    topic = topics.create()
    topics.put_numbers(topic, range(2))
    client = BlockingClient({"bootstrap.servers": topics.servers})
    producer = TransactionalProducer(client, f"{topic}-open")
    producer.init_transactions()
    producer.begin_transaction()
    batch = BatchBuilder()
    batch.append(None, b"open", 1_700_000_000_000)
    producer.add(TopicPartition(topic, 0), batch.build(), 1)
    producer.flush()
    topics.put_numbers(topic, [3])
    yield topic
    producer.abort_transaction()
    client.close()


def test_a_batch_behind_an_open_transaction(topics: Topics, with_open_transaction: str) -> None:
    topic = with_open_transaction
    with _failing(AnalysisException) as line:
        committed = {"kafka.isolation.level": "read_committed"}
        _read(topics, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":4}}}}', **committed)
    assert line == [
        f"OffsetError: a batch would end before it begins: {topic}-0 from 4 to 2; {topic}-0 has an "
        "open transaction since 2023-11-14 22:13:20+00:00, which begins at offset 2; nothing is "
        "lost: run the query again when the transaction has ended (klog transactions list shows it)"
    ]


def test_records_behind_an_open_transaction(
    topics: Topics, with_open_transaction: str, tmp_path: Path
) -> None:
    topic = with_open_transaction
    committed = {"kafka.isolation.level": "read_committed", "subscribe": topic}
    what = (
        f"{topic}-0 has an open transaction since 2023-11-14 22:13:20+00:00, which begins at "
        "offset 2"
    )
    advice = (
        "nothing is lost: run the query again when the transaction has ended (klog transactions "
        "list shows it). Do not set failOnDataLoss=false, which leaves out records that are "
        "committed behind it"
    )
    with _failing(PythonException) as line:
        ends = {"endingOffsets": f'{{"{topic}":{{"0":4}}}}', "kafkaConsumer.pollTimeoutMs": 1_500}
        _read(topics, **committed, **ends)
    assert line == [
        f"DataLost: offsets 2 to 4 of {topic}-0 could not be read within 1500 ms, and the broker "
        f"sent no more records: 0 to 2 are committed (ends exclusive): {what}; {advice}"
    ]
    with _failing(StreamingQueryException) as line:
        _stream(topics, tmp_path, startingOffsets=f'{{"{topic}":{{"0":4}}}}', **committed)
    assert line == [f"DataLost: {what}, before offset 4, where reading was to begin; {advice}"]


# --- authorisation -------------------------------------------------------------------------------
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_user_who_may_not_read(
    topics: Topics, spark_broker: testing.Broker, full: str, tmp_path: Path
) -> None:
    with spark_broker.faults.answer("Metadata", _REFUSED, topic=full, times=None) as fault:
        with _failing(AnalysisException) as batch:
            _read(topics, subscribe=full)
        with _failing(StreamingQueryException) as stream:
            _stream(topics, tmp_path, subscribe=full)
    assert fault.fired >= 2
    expected = (
        f"BrokerError: TOPIC_AUTHORIZATION_FAILED: topic {full}: not authorized for the topic; a "
        "reader's user needs READ and DESCRIBE on the topic"
    )
    assert batch == stream == [expected]


def test_a_user_who_may_not_write(
    topics: Topics, spark_broker: testing.Broker, rows: "DataFrame", full: str, tmp_path: Path
) -> None:
    target = topics.create()
    may_not_write = (
        f"TOPIC_AUTHORIZATION_FAILED: this user may not write to topic {target}; it needs WRITE "
        "and DESCRIBE there"
    )
    faults = spark_broker.faults
    with faults.answer("Metadata", _REFUSED, topic=target, times=None):
        with _failing(PythonException) as batch:
            _save(rows, topics, topic=target)
        with _failing(StreamingQueryException) as stream:
            _save_stream(_values(topics, full), topics, tmp_path, topic=target)
    assert batch == stream == [f"BrokerError: {may_not_write}"]
    with (
        faults.answer("Produce", _REFUSED, topic=target, times=None),
        _failing(PythonException) as late,
    ):
        _save(rows.limit(1), topics, topic=target)
    assert late == [f"DeliveryFailed: a record was refused for {target}-0: {may_not_write}"]


# --- the sink's columns --------------------------------------------------------------------------
def test_columns_that_cannot_be_written(spark: "SparkSession", topics: Topics) -> None:
    with _failing(AnalysisException) as line:
        _save(spark.sql("SELECT 'v' AS payload"), topics, topic="t")
    assert line == [
        "SchemaError: column value is missing; expected it among ['payload']: rename the column to "
        "write, as in withColumnRenamed('payload', 'value')"
    ]


def test_columns_that_a_stream_cannot_write(topics: Topics, full: str, tmp_path: Path) -> None:
    frame = topics.stream(subscribe=full, startingOffsets="earliest").selectExpr("1 AS value")
    with _failing(StreamingQueryException) as line:
        _save_stream(frame, topics, tmp_path, topic="t")
    assert line == ["SchemaError: column value is int; expected string or binary: cast it"]


def test_rows_that_cannot_be_written(spark: "SparkSession", topics: Topics) -> None:
    rows = spark.sql("SELECT 'v' AS value, string(null) AS topic")
    with _failing(PythonException) as line:
        _save(rows, topics)
    assert line == [
        "SchemaError: column topic is null in a row; expected a topic in every row, or option topic"
    ]
    topic = topics.create(2)
    with _failing(PythonException) as line:
        _save(spark.sql("SELECT 'v' AS value, 5 AS partition"), topics, topic=topic)
    assert line == [
        f"SchemaError: column partition is 5 in a row for topic {topic}; expected 0 to 1"
    ]


# --- misspelt options ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("startingOffset", "OptionError: there is no option startingoffset; did you mean starting"),
        (
            "kafka__isolation__levels",
            "SettingError: kafka.isolation.levels is no setting of Kafka's",
        ),
    ],
)
def test_a_misspelt_option(topics: Topics, rows: "DataFrame", name: str, words: str) -> None:
    options = {"subscribe": "t", name: "1"}
    with _failing(AnalysisException) as line:
        topics.batch(**options)
    assert line[0].startswith(words)
    with _failing(AnalysisException) as line:
        topics.stream(**options)
    assert line[0].startswith(words)
    with _failing(AnalysisException) as line:
        _save(rows, topics, topic="t", **{name: "1"})
    assert line[0].startswith(words)


# --- packages that are missing -------------------------------------------------------------------
def test_no_pyarrow_where_it_is_planned(
    spark: "SparkSession", topics: Topics, rows: "DataFrame", full: str, tmp_path: Path
) -> None:
    stream = _values(topics, full)
    words = "PackageMissing: pyarrow is not installed in this Python, " + sys.executable
    with workers_without(spark, "pyarrow", tmp_path, everywhere=True):
        with _failing(AnalysisException) as line:
            topics.batch(subscribe="t")
        assert line[0].startswith(words)
        assert "on every executor, as by pip install 'pyspark-klog[arrow]', or let" in line[0]
        assert line[0].endswith("or let PYSPARK_PYTHON name a Python that has it")
        with _failing(AnalysisException) as line:
            topics.stream(subscribe="t")
        assert line[0].startswith(words)
        with _failing(AnalysisException) as line:
            _save(rows, topics, topic="t")
        assert line[0].startswith(words)
        with _failing(StreamingQueryException) as line:
            _save_stream(stream, topics, tmp_path, topic="t")
        assert line[0].startswith(words)


def test_no_pyarrow_on_the_executors_only(
    spark: "SparkSession", topics: Topics, rows: "DataFrame", full: str, tmp_path: Path
) -> None:
    """Spark's worker needs it before it knows of klog: the line is Spark's. Its traceback is left
    out by a setting, which docs/troubleshooting.md names."""
    hide = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
    spark.conf.set(hide, "true")
    try:
        with workers_without(spark, "pyarrow", tmp_path, everywhere=False):
            with pytest.raises(PythonException) as reading:
                _read(topics, subscribe=full)
            with pytest.raises(PythonException) as writing:
                _save(rows, topics, topic=full)
    finally:
        spark.conf.unset(hide)
    for caught in (reading, writing):
        assert str(caught.value).splitlines() == [
            "An exception was thrown from the Python worker:",
            "ModuleNotFoundError: No module named 'pyarrow'",
        ]


def test_no_numba_on_the_executors(
    spark: "SparkSession", topics: Topics, rows: "DataFrame", full: str, tmp_path: Path
) -> None:
    frame = _values(topics, full)
    with workers_without(spark, "numba", tmp_path, everywhere=False):
        with _failing(PythonException) as reading:
            _read(topics, subscribe=full)
        with _failing(PythonException) as writing:
            _save(rows, topics, topic=full)
        with _failing(StreamingQueryException) as streaming:
            _save_stream(frame, topics, tmp_path, topic=full)
        assert topics.batch(subscribe=full, allowSlow=True).count() == 10
    for [line] in (reading, writing, streaming):
        assert line.startswith("PackageMissing: numba is not installed in this Python, ")
        assert "install it on every executor, as by pip install pyspark-klog" in line
        assert line.endswith("set option allowSlow=true, which is orders of magnitude slower")
