"""The options of the data source: accepted values, refused values, and the errors' words."""

import pickle

import pytest

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError, OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST
from pyspark_klog.spark.options.bounds import AtTimestamp, AtTimestamps, check_partitions, option_of
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.options.rows import BY_KEY
from pyspark_klog.spark.options.unknown import note_on_unknown

_SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def _read(**options: str) -> Options:
    return read_options(_SERVERS | options)


def test_defaults() -> None:
    options = _read(subscribe="t")
    assert options.topics == ("t",)
    assert options.fail_on_data_loss and not options.include_headers
    assert options.max_offsets_per_trigger is None
    assert (options.offset_attempts, options.offset_retry_interval_ms) == (3, 1_000)
    assert options.for_stream().starting == LATEST
    assert (options.for_batch().starting, options.for_batch().ending) == (EARLIEST, LATEST)


def test_keys_are_case_insensitive_and_values_are_trimmed() -> None:
    options = _read(SUBSCRIBE=" a , b,a,", StartingOffsets=" Earliest ", failondataloss="FALSE")
    assert options.topics == ("a", "b")
    assert options.starting == EARLIEST
    assert options.fail_on_data_loss is False


def test_kafka_settings_go_to_the_client() -> None:
    options = _read(subscribe="t", **{"kafka.isolation.level": "read_committed"})
    assert options.read_committed
    assert options.client["bootstrap.servers"] == "localhost:9092"


def test_bootstrap_servers_without_prefix() -> None:
    options = read_options({"bootstrap.servers": "h:1", "subscribe": "t"})
    assert options.client["bootstrap.servers"] == "h:1"


def test_what_spark_repeats_for_a_table_of_sql_is_no_misspelt_option() -> None:
    given = {**_SERVERS, "subscribe": "t", "startingOffsets": "earliest"}
    twins = {f"option.{name}": value for name, value in given.items()}
    assert read_options(given | twins | {"provider": "klog"}) == read_options(given)


def test_assign_and_offsets() -> None:
    options = _read(
        assign='{"t":[0,1]}',
        startingOffsets='{"t":{"0":5,"1":-2}}',
        endingOffsets='{"t":{"0":-1,"1":9}}',
    )
    assert options.assigned == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert options.starting == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}
    assert options.ending == {TopicPartition("t", 0): -1, TopicPartition("t", 1): 9}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["kafka.bootstrap.servers is missing", "a table of SQL", "SELECT * FROM t WITH (`"]),
        ({"owner": "me", "provider": "klog"}, ["servers is missing", "a table of SQL"]),
        ({**_SERVERS, "bootstrap.servers": "other:1"}, ["expected one of them"]),
        ({"kafka.bootstrap.servers": "x"}, ["'x'", "host:port"]),
        ({**_SERVERS, "assign": '{"t":[0]}', "subscribe": "t"}, ["assign and subscribe"]),
        ({**_SERVERS, "subscribe": " , "}, ["names no topic"]),
        ({**_SERVERS, "topic": " "}, ["topic is empty"]),
        ({**_SERVERS, "assign": "{}"}, ["assign is '{}'", '{"topicA":[0,1]']),
        ({**_SERVERS, "assign": '{"t":[-1]}'}, ["partition -1", "'t'"]),
        ({**_SERVERS, "assign": '{"t":0}'}, ["expected JSON like"]),
        ({**_SERVERS, "startingOffsets": "newest"}, ["'newest'", "latest, committed, or JSON"]),
        ({**_SERVERS, "startingOffsets": '{"t":{"0":-3}}'}, ["-3 for t-0", "-2 (earliest)"]),
        ({**_SERVERS, "startingOffsets": '{"t":{"x":1}}'}, ["'x'", "expected a partition"]),
        ({**_SERVERS, "startingOffsets": '{"t":{"0":1.5}}'}, ["1.5", "expected a partition"]),
        ({**_SERVERS, "startingOffsets": '{"t":{"0":1,"0":2}}'}, ["twice"]),
        ({**_SERVERS, "startingOffsets": '{"t":'}, ["expected JSON like"]),
        ({**_SERVERS, "endingOffsets": "earliest"}, ["expected latest or JSON"]),
        ({**_SERVERS, "endingOffsets": '{"t":{"0":-2}}'}, ["endingOffsets has -2"]),
        ({**_SERVERS, "maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger is '0'", "from 1 on"]),
        ({**_SERVERS, "maxOffsetsPerTrigger": "many"}, ["'many'", "whole number"]),
        ({**_SERVERS, "minOffsetsPerTrigger": "-1"}, ["minOffsetsPerTrigger is '-1'", "from 1 on"]),
        (
            {**_SERVERS, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            ["minOffsetsPerTrigger is 9", "maxOffsetsPerTrigger is 8", "at most the maximum"],
        ),
        ({**_SERVERS, "maxTriggerDelay": "1.5h"}, ["maxTriggerDelay is '1.5h'", "15m, 90s or 1h"]),
        ({**_SERVERS, "minPartitions": "0"}, ["minPartitions is '0'", "from 1 to 2147483647"]),
        ({**_SERVERS, "maxRecordsPerPartition": "0"}, ["maxRecordsPerPartition is '0'"]),
        ({**_SERVERS, "subscribePattern": " "}, ["subscribePattern is empty", "orders-.*"]),
        ({**_SERVERS, "subscribePattern": "a(b"}, ["'a(b'", "a group is not closed"]),
        ({**_SERVERS, "startingTimestamp": "-1"}, ["'-1'", "milliseconds since 1970"]),
        ({**_SERVERS, "endingTimestamp": "now"}, ["'now'", "milliseconds since 1970"]),
        ({**_SERVERS, "startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, ["timestamp -1 for t-0"]),
        ({**_SERVERS, "endingOffsetsByTimestamp": "{}"}, ["names no partition", "1700000000000"]),
        ({**_SERVERS, "startingOffsetsByTimestampStrategy": "x"}, ["'x'", "error or latest"]),
        ({**_SERVERS, "failOnDataLoss": "yes"}, ["true or false"]),
        ({**_SERVERS, "columns": ""}, ["columns is ''", "some of key, value, topic"]),
        ({**_SERVERS, "columns": "key,KEY"}, ["'key,KEY'", "each at most once"]),
        ({**_SERVERS, "columns": "key,vlaue"}, ["'key,vlaue'", "timestampType, headers"]),
        ({**_SERVERS, "columns": "key", "includeHeaders": "true"}, ["headers among the columns"]),
        ({**_SERVERS, "pushdown": "times"}, ["pushdown was removed", "startingTimestamp", "keys"]),
        ({**_SERVERS, "keys": "a"}, ["keys is 'a'", 'list of texts like ["customer-1"]']),
        ({**_SERVERS, "keys": "[]"}, ["keys is '[]'"]),
        ({**_SERVERS, "keys": '{"a":1}'}, ["expected a JSON list"]),
        ({**_SERVERS, "keys": '["a",1]'}, ["expected a JSON list"]),
        ({**_SERVERS, "startingOffset": "latest"}, ["did you mean startingOffsets?"]),
        ({**_SERVERS, "subcribe": "t"}, ["did you mean subscribe?"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    options: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(KlogError) as caught:
        read_options(options)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("maxFilesPerTrigger", "maxOffsetsPerTrigger"),
        ("maxFilePerTrigger", "maxOffsetsPerTrigger"),
        ("maxRowsPerTrigger", "maxOffsetsPerTrigger"),
        ("maxRecordsPerTriggers", "maxOffsetsPerTrigger"),
        ("maxMessagesPerTrigger", "maxOffsetsPerTrigger"),
        ("minRecordsPerTrigger", "minOffsetsPerTrigger"),
        ("maxByesPerTrigger", "maxBytesPerTrigger"),
    ],
)
def test_another_sources_limit_of_a_micro_batch_is_refused_with_klogs(
    name: str, meant: str
) -> None:
    with pytest.raises(OptionError) as caught:
        _read(subscribe="t", **{name: "5"})
    assert str(caught.value) == f"there is no option {name.lower()}; did you mean {meant}?"
    assert note_on_unknown(name.lower(), "kafka.") == f"did you mean option {meant}?"


def test_options_that_spark_passes_are_no_misspellings() -> None:
    options = _read(subscribe="t", checkpointLocation="/x", queryName="q", header="true")
    assert options.topics == ("t",)


def test_no_two_options_look_alike_to_the_misspelling_check() -> None:
    for key in BY_KEY:
        value = "{}" if key == "assign" else "h:1"
        try:
            read_options(_SERVERS | {key: value})
        except KlogError as error:
            assert "did you mean" not in str(error), key


def test_nothing_to_read() -> None:
    with pytest.raises(OptionError) as caught:
        _read(topic="t").check_source()
    assert str(caught.value) == (
        "none of the options assign, subscribe, subscribePattern is given (option topic is for "
        "writing); expected one, as in option('subscribe', 'topicA,topicB')"
    )


def test_the_option_topics_is_answered_with_the_options_that_select_topics() -> None:
    with pytest.raises(OptionError) as caught:
        _read(topics="t")
    assert str(caught.value) == (
        "there is no option topics; expected subscribe (names), subscribePattern or assign to "
        "read, topic to write"
    )


def test_a_web_address_is_no_address_of_brokers() -> None:
    options = {"kafka.bootstrap.servers": "http://host:8080", "subscribe": "t"}
    with pytest.raises(KlogError, match=r"^kafka\.bootstrap\.servers has 'http://host:8080'; "):
        read_options(options)


def test_of_each_sides_options_the_first_counts() -> None:
    by_time, offsets = '{"t":{"0":8}}', '{"t":{"0":9}}'
    options = _read(
        subscribe="t",
        startingTimestamp="7",
        startingOffsetsByTimestamp=by_time,
        startingOffsets=offsets,
        endingOffsetsByTimestamp='{"t":{"0":28}}',
        endingOffsets='{"t":{"0":29}}',
    )
    assert options.starting == AtTimestamp(7)
    assert options.ending == AtTimestamps({TopicPartition("t", 0): 28})
    options = _read(subscribe="t", startingOffsetsByTimestamp=by_time, startingOffsets=offsets)
    assert options.starting == AtTimestamps({TopicPartition("t", 0): 8})
    assert options_named(options) == "startingOffsetsByTimestamp"


def options_named(options: Options) -> str:
    assert options.starting is not None
    return option_of(options.starting, "starting")


@pytest.mark.parametrize(
    ("given", "moves"),
    [
        ({}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"t":{"0":5,"1":-2}}'}, False),
        ({"startingOffsets": '{"t":{"0":5,"1":-1}}'}, True),
        ({"startingTimestamp": "5"}, False),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "LATEST"}, True),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestampStrategy": "latest"}, False),
    ],
)
def test_which_starts_can_move(given: dict[str, str], moves: bool) -> None:
    assert _read(subscribe="t", **given).for_stream().start_can_move is moves


def test_limits_are_known_by_name() -> None:
    options = _read(subscribe="t", maxTriggerDelay="90s", minOffsetsPerTrigger="4")
    assert options.limits == ("minOffsetsPerTrigger", "maxTriggerDelay")
    assert options.max_trigger_delay_ms == 90_000
    assert _read(subscribe="t").limits == ()


def test_limits_in_a_batch_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    options = _read(subscribe="t", maxTriggerDelay="90s", minOffsetsPerTrigger="4")
    with caplog.at_level("WARNING"):
        options.for_batch().check_batch()
    assert [record.getMessage() for record in caplog.records] == [
        "option=minOffsetsPerTrigger has no effect in a batch",
        "option=maxTriggerDelay has no effect in a batch",
    ]


@pytest.mark.parity("source option: groupIdPrefix")
@pytest.mark.parity("source option: kafka.group.id")
def test_groups_are_said_to_have_no_effect(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_klog.client.settings.client_settings._warned", set())
    with caplog.at_level("DEBUG"):
        options = _read(subscribe="t", groupIdPrefix="mine", **{"kafka.group.id": "mine"})
        options.client.warn_of_ignored()
    text = caplog.text
    assert "option=groupIdPrefix has no effect: klog reads given offsets: it joins no group" in text
    assert "setting=kafka.group.id is accepted without effect: klog reads given offsets" in text


def test_what_a_batch_cannot_have() -> None:
    with pytest.raises(OptionError, match="cannot begin at the end"):
        _read(subscribe="t", startingOffsets="latest").check_batch()
    with pytest.raises(OptionError, match=r"-1 \(latest\)"):
        _read(subscribe="t", startingOffsets='{"t":{"0":-1}}').check_batch()


def test_what_a_stream_cannot_have() -> None:
    for name, value in (
        ("endingOffsets", "latest"),
        ("endingOffsetsByTimestamp", '{"t":{"0":5}}'),
        ("endingTimestamp", "5"),
    ):
        with pytest.raises(OptionError, match=f"^{name} is not for streams, which have no end"):
            _read(subscribe="t", **{name: value}).check_stream()


def test_offsets_must_be_for_exactly_what_is_read() -> None:
    with pytest.raises(
        OffsetError, match=r'without t-1 and with u-0.*\{"t": \{"0": -2, "1": -2\}\}'
    ):
        _read(assign='{"t":[0,1]}', startingOffsets='{"t":{"0":5},"u":{"0":5}}')
    with pytest.raises(OffsetError, match="expected exactly those of subscribe"):
        _read(subscribe="t", startingOffsets='{"u":{"0":5}}')
    with pytest.raises(OffsetError, match="endingOffsets is given without t-1"):
        _read(
            subscribe="t",
            startingOffsets='{"t":{"0":5,"1":5}}',
            endingOffsets='{"t":{"0":5}}',
        )
    with pytest.raises(OffsetError, match="with t-1, which startingOffsets does not name"):
        _read(
            subscribe="t",
            startingOffsets='{"t":{"0":5}}',
            endingOffsets='{"t":{"0":5,"1":5}}',
        )
    check_partitions(
        {TopicPartition("t", 0): 1}, frozenset({TopicPartition("t", 0)}), "startingOffsets"
    )


def test_columns() -> None:
    assert _read(subscribe="t").columns is None
    options = _read(subscribe="t", columns=" VALUE , timestamptype")
    assert options.columns == ("value", "timestampType")


@pytest.mark.parity("own option: keys")
def test_keys_are_texts_for_a_batch() -> None:
    assert _read(subscribe="t").keys is None
    options = _read(subscribe="t", keys='["a", "\u00e4", "a"]')
    assert options.keys == {b"a", "\u00e4".encode()}
    with pytest.raises(OptionError, match=r"^option keys is for batches"):
        options.check_stream()


def test_options_travel_to_tasks() -> None:
    options = _read(subscribe="t", startingOffsets='{"t":{"0":5}}')
    assert pickle.loads(pickle.dumps(options)) == options
