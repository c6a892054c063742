"""Rules for a sink's options and columns, and the function for foreachBatch."""

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

import pyspark_klog
from pyspark_klog.client.errors import SettingError
from pyspark_klog.spark.errors import OptionError, SchemaError
from pyspark_klog.spark.options.exactly_once import ExactlyOnce, MicroBatch
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.options import LATER_MICRO_BATCH, check_sink
from pyspark_klog.spark.sink.schema import check_sink_schema

_SERVERS = {"kafka.bootstrap.servers": "host:9092"}


def _check(**options: str) -> None:
    given = _SERVERS | {name.replace("__", "."): value for name, value in options.items()}
    check_sink(read_options(given), given)


@pytest.mark.parity("own option: deadLetterTopic", "own option: deadLetterMax")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"deadLetterMax": "3"},
            "option deadLetterMax is given without deadLetterTopic: set both, or no limit",
        ),
        (
            {"deadLetterTopic": "d", "deadLetterMax": "-1"},
            "option deadLetterMax is '-1'; expected a whole number from 0 on",
        ),
        (
            {"topic": "t", "deadLetterTopic": " t "},
            "options topic and deadLetterTopic are both 't'; expected two topics",
        ),
        (
            {"deadLetterTopic": " "},
            "option deadLetterTopic is empty; expected the name of a topic",
        ),
        (
            {"deadLetterTopic": "d", "kafka__acks": "0"},
            "option deadLetterTopic needs brokers' answers, and kafka.acks is 0; expected all or 1",
        ),
    ],
)
def test_options_for_dead_letters(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        _check(**options)
    assert str(caught.value) == text


@pytest.mark.parity("own option: deadLetterTopic", "own option: deadLetterMax")
def test_options_for_dead_letters_are_read() -> None:
    options = read_options({**_SERVERS, "deadlettertopic": " d ", "deadlettermax": "0"})
    assert (options.dead_letter_topic, options.dead_letter_max) == ("d", 0)
    _check(deadLetterTopic="d", topic="t")


# --- exactly once --------------------------------------------------------------------------------
def test_exactly_once_is_off_unless_asked_for() -> None:
    assert read_options(_SERVERS).exactly_once is None
    off = {**_SERVERS, "exactlyonce": "false", "exactlyoncename": "a", "topic": "t"}
    assert read_options(off).exactly_once is None
    check_sink(read_options(off), off)


def test_options_of_exactly_once_are_read() -> None:
    plain = read_options({**_SERVERS, "exactlyonce": " TRUE ", "topic": "t"})
    assert plain.exactly_once == ExactlyOnce("klog-sink", "sink", "t")
    assert plain.client.number("transaction.timeout.ms") == 900_000
    given = {
        "exactlyOnce": "true",
        "exactlyOncePrefix": "team.a",
        "exactlyOnceName": " bills-2 ",
        "exactlyOnceTopic": " p ",
        "exactlyOnceMismatch": "Keep",
        "exactlyOnceMissing": "continue",
        "exactlyOnceQuery": "nightly",
        "kafka.transaction.timeout.ms": "60000",
        "topic": "t",
    }
    micro_batch = MicroBatch("q", 7, "r")
    full = read_options({**_SERVERS, **given, **micro_batch.as_options()})
    assert full.exactly_once == ExactlyOnce(
        "team.a", "bills-2", "p", True, True, "nightly", micro_batch
    )
    assert full.client.number("transaction.timeout.ms") == 60_000


_PART = "expected 1 to 100 letters of a to z, A to Z, digits, '_' and '-'"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"exactlyOnce": "yes"}, "option exactlyOnce is 'yes'; expected true or false"),
        (
            {"exactlyOnceName": "a.b"},
            f"option exactlyOnceName is 'a.b'; {_PART}: it becomes a part of transactional ids",
        ),
        ({"exactlyOnceName": ""}, f"option exactlyOnceName is ''; {_PART}"),
        ({"exactlyOnceName": "n" * 101}, _PART),
        ({"exactlyOncePrefix": "a b"}, f"option exactlyOncePrefix is 'a b'; {_PART}, '.'"),
        ({"exactlyOnceQuery": "ä"}, f"option exactlyOnceQuery is 'ä'; {_PART}"),
        ({"exactlyOnceTopic": " "}, "option exactlyOnceTopic is empty; expected the name of a"),
        (
            {"exactlyOnceMismatch": "skip"},
            "option exactlyOnceMismatch is 'skip'; expected fail or keep",
        ),
        (
            {"exactlyOnceMissing": "skip"},
            "option exactlyOnceMissing is 'skip'; expected fail or continue",
        ),
        ({"exactlyOnceNmae": "a"}, "there is no option exactlyoncenmae; did you mean exactlyOnceN"),
    ],
)
def test_wrong_values_of_exactly_once_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**_SERVERS, "topic": "t", **options})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"kafka__acks": "1"},
            "option exactlyOnce needs kafka.acks=all, but kafka.acks is 1: leave kafka.acks out",
        ),
        (
            {"kafka__enable.idempotence": "false"},
            "option exactlyOnce needs kafka.enable.idempotence=true, with at most 5 in "
            "kafka.max.in.flight.requests.per.connection: leave both out",
        ),
        (
            {"kafka__max.in.flight.requests.per.connection": "6"},
            "option exactlyOnce needs kafka.enable.idempotence=true, with at most 5 in "
            "kafka.max.in.flight.requests.per.connection: leave both out",
        ),
        (
            {"kafka__transactional.id": "mine"},
            "option kafka.transactional.id is not supported: use exactlyOnce=true; the sink makes "
            "an id for each task",
        ),
        (
            {"topic": None},
            "option exactlyOnce stores its progress under a topic, and option topic, which "
            "could name it, is not given: set option exactlyOnceTopic to a topic that "
            "will not be deleted",
        ),
        (
            {"exactlyOnceQuery": "mine"},
            "option exactlyOnceQuery is only for batch_writer: leave it out; a stream has the id "
            "of its checkpoint, a batch write an id of its own",
        ),
        (
            {"exactlyOnce": None, "exactlyOnceName": "a"},
            "option exactlyOnceName is given without exactlyOnce; expected exactlyOnce=true as "
            "well, or exactlyOnce=false to leave it without effect",
        ),
    ],
)
def test_what_does_not_go_with_exactly_once_is_refused(
    options: dict[str, str | None], text: str
) -> None:
    given = {"topic": "t", "exactlyOnce": "true", **options}
    with pytest.raises(OptionError) as caught:
        _check(**{name: value for name, value in given.items() if value is not None})
    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["exactlyOnceName", "exactlyoncename", "EXACTLYONCENAME"])
def test_an_option_that_needs_exactly_once_is_named_as_documented(name: str) -> None:
    given = {**_SERVERS, "topic": "t", name: "a"}
    for options in (given, CaseInsensitiveDict(given)):
        with pytest.raises(OptionError) as caught:
            check_sink(read_options(options), options)
        assert "option exactlyOnceName is given without exactlyOnce;" in str(caught.value)


def test_what_goes_with_exactly_once() -> None:
    _check(topic="t", exactlyOnce="true", kafka__acks="-1", deadLetterTopic="d")
    _check(exactlyOnce="true", exactlyOnceTopic="p")


def test_a_batch_writer_must_name_its_sink() -> None:
    given = {**_SERVERS, "topic": "t", "exactlyOnce": "true"}
    with pytest.raises(OptionError, match="batch_writer with exactlyOnce needs option exactlyOnce"):
        check_sink(read_options(given), given, is_batch_writer=True)
    named = {**given, "exactlyOnceName": "sink", "exactlyOnceQuery": "mine"}
    check_sink(read_options(named), named, is_batch_writer=True)
    # The batch write that it makes has the same options, and says for which micro-batch it is.
    write = named | MicroBatch("mine", 0, "run").as_options()
    check_sink(read_options(write), write)


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "column value is missing; expected it among []: rename the column to write"),
        (
            {"x": IntegerType()},
            "column value is missing; expected it among ['x']: rename the column to write, as in "
            "withColumnRenamed('x', 'value')",
        ),
        ({"value": IntegerType()}, "column value is int; expected string or binary: cast it"),
        (
            {"value": StringType(), "key": LongType()},
            "column key is bigint; expected string or binary: cast it",
        ),
        (
            {"value": StringType(), "partition": StringType()},
            "column partition is string; expected int: cast it",
        ),
        (
            {"value": StringType(), "partition": LongType()},
            "column partition is bigint; expected int: cast it",
        ),
        (
            {"value": BinaryType(), "topic": IntegerType()},
            "column topic is int; expected string: cast it",
        ),
        (
            {"value": StringType(), "headers": MapType(StringType(), StringType())},
            "column headers is map<string,string>; expected array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_that_cannot_be_written(columns: dict[str, DataType], text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_sink_schema(_schema(**columns), read_options({**_SERVERS, "topic": "t"}))
    assert str(caught.value) == text


def test_a_topic_must_be_named_by_the_option_or_a_column() -> None:
    options = read_options(_SERVERS)
    check_sink_schema(_schema(value=StringType(), topic=StringType()), options)
    with pytest.raises(OptionError) as caught:
        check_sink_schema(_schema(value=StringType()), options)
    assert str(caught.value) == "no topic is named; expected option topic, or a column topic"


def test_a_serializer_is_refused_because_spark_gives_bytes() -> None:
    for name in ("key", "value"):
        with pytest.raises(OptionError) as caught:
            _check(topic="t", **{f"kafka__{name}__serializer": "x"})
        assert str(caught.value) == (
            f"option kafka.{name}.serializer is not supported: {name}s are string or binary: cast "
            "the column"
        )


@pytest.mark.parity("own option: timestampColumn")
def test_the_timestamp_column_must_be_there_and_be_a_timestamp() -> None:
    options = read_options({**_SERVERS, "topic": "t", "timestampColumn": "At"})
    check_sink_schema(_schema(value=StringType(), At=TimestampType()), options)
    for kind in (TimestampNTZType(), StringType(), LongType(), DateType()):
        with pytest.raises(SchemaError) as caught:
            check_sink_schema(_schema(value=StringType(), At=kind), options)
        assert str(caught.value) == (
            f"option timestampColumn names column At, which is {kind.simpleString()}; expected "
            "timestamp: cast it, as in withColumn('At', col('At').cast('timestamp'))"
        )
    with pytest.raises(SchemaError) as caught:
        check_sink_schema(_schema(value=StringType(), at=TimestampType()), options)
    assert str(caught.value) == (
        "option timestampColumn names column At, which is missing; expected it among "
        "['value', 'at']"
    )
    with pytest.raises(OptionError, match="timestampColumn is empty; expected the name of a col"):
        read_options({**_SERVERS, "timestampColumn": ""})


@pytest.mark.parity("sink: column timestamp")
def test_without_the_option_a_column_timestamp_may_have_any_type() -> None:
    options = read_options({**_SERVERS, "topic": "t"})
    for kind in (TimestampType(), TimestampNTZType(), StringType(), LongType(), DateType()):
        check_sink_schema(_schema(value=StringType(), timestamp=kind), options)


@pytest.mark.parity("python source: two columns of one name")
def test_of_two_columns_of_one_name_the_first_has_the_type_that_counts() -> None:
    options = read_options({**_SERVERS, "topic": "t"})
    one, other = StructField("value", StringType()), StructField("value", LongType())
    check_sink_schema(StructType([one, other]), options)
    with pytest.raises(SchemaError, match="column value is bigint; expected string or binary"):
        check_sink_schema(StructType([other, one]), options)


@pytest.mark.parity("sink: headers column", "sink: wrong type: headers")
def test_headers_are_recognized_by_position_and_name_in_any_case() -> None:
    options = read_options({**_SERVERS, "topic": "t"})

    def headers(**fields: DataType) -> StructType:
        return _schema(value=StringType(), headers=ArrayType(_schema(**fields)))

    check_sink_schema(headers(key=StringType(), value=BinaryType()), options)
    check_sink_schema(headers(KEY=StringType(), Value=BinaryType()), options)
    wrong = [
        headers(value=BinaryType(), key=StringType()),
        headers(key=StringType(), value=StringType()),
        headers(name=StringType(), value=BinaryType()),
        _schema(value=StringType(), headers=ArrayType(StringType())),
    ]
    for schema in wrong:
        with pytest.raises(SchemaError, match="expected array<struct<key:string,value:binary>>"):
            check_sink_schema(schema, options)


# --- batch_writer --------------------------------------------------------------------------------
class _Frame:
    """A DataFrame that notes how it is written; without a JVM, as under Spark Connect."""

    sparkSession = None  # noqa: N815
    columns = ("value", "key")

    def __init__(self) -> None:
        self.calls: list[object] = []

    def __getattr__(self, name: str) -> "_Frame":
        self.calls.append(name)
        return self

    def __call__(self, *args: object, **options: object) -> "_Frame":
        self.calls.append((*args, *sorted(options.items())))
        return self


@pytest.mark.parity("sink: batch_writer")
def test_a_batch_writer_appends_with_all_options_and_pickles() -> None:
    made = pyspark_klog.batch_writer(
        **{"kafka.bootstrap.servers": "host:1", "topic": "t", "deadLetterMax": None},
        allowSlow=True,
        deadLetterTopic="d",
        **{"kafka.batch.size": 1000},
    )
    frame = _Frame()
    writer = pickle.loads(pickle.dumps(made))
    writer(frame, 7)
    assert frame.calls == [
        *("write", "format", ("klog",), "options"),
        (
            ("allowSlow", "true"),
            ("deadLetterTopic", "d"),
            ("kafka.batch.size", "1000"),
            ("kafka.bootstrap.servers", "host:1"),
            ("topic", "t"),
        ),
        *("mode", ("append",), "save", ()),
    ]


@pytest.mark.parity("sink: batch_writer")
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"topic": "t"}, OptionError, "kafka.bootstrap.servers is missing"),
        (
            {**_SERVERS, "topics": "t"},
            OptionError,
            "there is no option topics; expected subscribe",
        ),
        ({**_SERVERS, "kafka.acks": "2"}, SettingError, "kafka.acks is '2'"),
        ({**_SERVERS, "deadLetterMax": 1}, OptionError, "without deadLetterTopic"),
    ],
)
def test_a_batch_writer_checks_its_options_when_it_is_made(
    options: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        pyspark_klog.batch_writer(**options)


def test_a_batch_writer_shows_no_secrets() -> None:
    made = pyspark_klog.batch_writer(**{"bootstrap.servers": "host:1", "topic": "secret"})
    assert repr(made) == "batch_writer(bootstrap.servers, topic)"


@pytest.mark.parity("python source: two columns of one name")
def test_a_batch_writer_renames_later_columns_of_one_name() -> None:
    frame = _Frame()
    frame.columns = ("value", "x", "value", "x", "X")
    pyspark_klog.batch_writer(**_SERVERS, topic="t")(frame, 0)
    assert frame.calls[:2] == [
        "toDF",
        ("value", "x", "klog.ignored.2", "klog.ignored.3", "X"),
    ]


def test_a_batch_writer_has_the_driver_log_its_options_once() -> None:
    made = pyspark_klog.batch_writer(**_SERVERS, topic="t")
    given = []
    for batch_id in range(3):
        frame = _Frame()
        made(frame, batch_id)
        (options,) = (call for call in frame.calls if isinstance(call, tuple) and len(call) > 1)
        given.append(dict(options).get(LATER_MICRO_BATCH))
    assert given == [None, "true", "true"]
