"""The settings of `pyspark_klog.kafka` are those of confluent_kafka, which is asked each time."""

import logging
from itertools import chain
from typing import Any

import pytest

from pyspark_klog.client.settings.setting_rows import SETTINGS
from pyspark_klog.kafka import KafkaError, KafkaException
from pyspark_klog.kafka._setting_rows import BY_NAME, ROWS
from pyspark_klog.kafka._setting_types import Kind
from pyspark_klog.kafka._settings import ClientKind
from tests.support.kafka.confluent_settings import (
    confluent_refusal,
    kind_of_refusal,
    names_of_confluent,
    own_refusal,
    own_settings,
    refusal_of_value,
)

_LOGGER = logging.getLogger("a program")

# --- names ----------------------------------------------------------------------------------------
SHARED_NAMES = names_of_confluent()


def test_every_setting_of_confluent_kafka_is_a_setting_here() -> None:
    assert len(SHARED_NAMES) > 170 and {"linger.ms", "acks", "ssl.ca.pem"} <= set(SHARED_NAMES)
    assert set(SHARED_NAMES) - set(BY_NAME) == set()


def test_every_setting_of_javas_clients_is_a_setting_here() -> None:
    assert set(SETTINGS) - set(BY_NAME) == set()


def test_a_name_is_in_one_row() -> None:
    names = list(chain.from_iterable((row.name, *row.aliases) for row in ROWS))
    assert sorted(names) == sorted(BY_NAME)


REFUSED_NAMES = [
    *("no.such.setting", "linger_ms", "", "topic.", "topic.linger.ms", "topic.no.such", "dr_cb"),
    *("partitioner_cb", "rebalance_cb", "opaque", "ssl_key", "log_cb", "on_commit", "conf", 1),
]


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_a_name_that_neither_client_has(name: Any) -> None:
    for value in ("1", print):
        refusal = own_refusal("producer", {name: value})
        assert refusal.startswith("KafkaException _INVALID_ARG") and f'"{name}"' in refusal
        assert confluent_refusal("producer", {name: value})


def test_a_misspelled_name_is_explained() -> None:
    assert "did you mean linger.ms?" in own_refusal("producer", {"linger_ms": 5})
    assert "did you mean session.timeout.ms?" in own_refusal("consumer", {"sesion.timeout.ms": 5})


# --- values ---------------------------------------------------------------------------------------
BOOLS = [
    *("true", "True", "TRUE", "t", "T", "1", 1, True, "false", "f", "0", 0, False, "yes", "on"),
    *("", " true", "true ", "2", None, "tru", 1.0),
]
NUMBERS = [
    *("5", " 5", "5 ", "+5", "0", 5.0, "", None, True, False, "-5", -1, "none", "٥", 10**30),
    *("99999999999999999999", "x5", "--5", [], 2**31 - 1, 2**31),
]
FRACTIONS = [
    *("5", " 5", "5 ", "1e3", "1.5", 1.5, 0.5, 5, True, "", "inf", None, "-0.0", "-1", 900_000),
    *(900_000.5, 900_001, ".5", "x"),
]
ACKS = ["all", "ALL", "All", "-1", -1, 0, 1, 1_001, "", None, "none", "leader", True, "1"]
CODECS = ["gzip", "GZIP", "lz4", "zstd", "snappy", "none", " gzip", "inherit", "", None, 1, "zst"]
PARTITIONERS = [
    *("murmur2", "murmur2_random", "consistent", "consistent_random", "random", "fnv1a"),
    *("fnv1a_random", "MURMUR2", "murmur", "", None),
]
CONTEXTS = ["broker", "all", "broker, topic", "broker,,topic", "BROKER", "-broker", "", "bogus"]
CONTEXTS += ["all,bogus", "broker|topic"]
RESETS = [
    *("latest", "earliest", "smallest", "largest", "beginning", "end", "error", "LATEST", "", None),
    "newest",
]
CASES: list[tuple[str, Any]] = [
    *(("socket.keepalive.enable", value) for value in BOOLS),
    *(("enable.auto.commit", value) for value in BOOLS),
    *(("queue.buffering.max.messages", value) for value in NUMBERS),
    *(("linger.ms", value) for value in FRACTIONS),
    *(("acks", value) for value in ACKS),
    *(("topic.acks", value) for value in ACKS),
    *(("compression.type", value) for value in CODECS),
    ("topic.compression.type", "inherit"),
    *(("security.protocol", value) for value in ("SSL", "plaintext", "", None, "3", 0)),
    *(("partitioner", value) for value in PARTITIONERS),
    *(("debug", value) for value in (*CONTEXTS, None)),
    *(("auto.offset.reset", value) for value in RESETS),
    *(("isolation.level", value) for value in ("read_committed", "READ_COMMITTED", 1, "x", None)),
    *(("client.id", value) for value in ("", None, "x", 5)),
    *(("builtin.features", value) for value in ("ssl", "sasl_gssapi", "ssl,zstd", "", None)),
    *(("plugin.library.paths", value) for value in ("", "no-such-plugin")),
    *(("delivery.report.only.error", value) for value in (True, False, 1, "true", None)),
    *((name, value) for name in ("error_cb", "oauth_cb") for value in (print, None, 5)),
    *((name, value) for name in ("stats_cb", "throttle_cb") for value in (print, None, 5)),
    *(("on_delivery", value) for value in (print, None, 5)),
    *(("logger", value) for value in (None, _LOGGER)),
]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_value_is_read_as_by_confluent_kafka(name: str, value: Any) -> None:
    own, theirs = own_refusal("producer", {name: value}), refusal_of_value(name, value)
    assert kind_of_refusal(own) == kind_of_refusal(theirs)


DIFFERENCES: list[tuple[str, Any, str]] = [
    # librdkafka ignores what follows a number, and reads 0x10 and 010 as C does.
    *(("queue.buffering.max.messages", value, "a whole number") for value in ("5x", "1e3", "5_0")),
    *(("queue.buffering.max.messages", value, "a whole number") for value in ("0x10", "010", 1.5)),
    *(("linger.ms", value, "a number") for value in ("5x", "nan", "0x10", "1,5")),
    # Brokers know no other acks.
    *(("acks", value, "all (also -1), 1 or 0") for value in (2, 1_000, "1x", "0x1")),
    # librdkafka takes the text of any object.
    *(("client.id", value, "text, not") for value in (b"x", object, ["x"])),
    *(("bootstrap.servers", value, "expected") for value in (["a:1"], "a:b:c", "a:0", "a:99999")),
    *(("bootstrap.servers", value, "expected") for value in ("http://a:1", "plaintext://a:1")),
    ("logger", 5, "a logging.Logger"),
    # Settings that klog cannot obey.
    ("enable.gapless.guarantee", True, "is not supported"),
    ("test.mock.num.brokers", 3, "is not supported"),
]


@pytest.mark.parametrize(("name", "value", "text"), DIFFERENCES)
def test_a_value_that_only_confluent_kafka_accepts(name: str, value: Any, text: str) -> None:
    assert refusal_of_value(name, value) == ""
    refusal = own_refusal("producer", {name: value})
    assert name in refusal and text in refusal


ONLY_HERE: list[tuple[str, Any, Any]] = [
    ("auto.offset.reset", "none", "error"),
    ("auto.offset.reset", "by_duration:PT1H30M", "by_duration:PT1H30M"),
    ("partitioner", "my.module:choose", "my.module:choose"),
    ("partitioner", print, print),
    ("partition.assignment.strategy", ["sticky", "range"], ("sticky", "range")),
    ("connections.max.idle.ms", -1, -1),
    ("send.buffer.bytes", -1, -1),
    ("ssl.endpoint.identification.algorithm", "", ""),
]


@pytest.mark.parametrize(("name", "value", "expected"), ONLY_HERE)
def test_a_value_that_only_klog_accepts(name: str, value: Any, expected: Any) -> None:
    assert confluent_refusal("consumer", {name: value})
    assert own_settings("consumer", {name: value})[name] == expected


def _numbers() -> list[str]:
    rows = (row for row in ROWS if row.kind is Kind.NUMBER and row.name != "acks")
    return [name for row in rows for name in (row.name, *row.aliases) if name in SHARED_NAMES]


WIDER = {
    "socket.timeout.ms": "request.timeout.ms of Java may be more",
    "connections.max.idle.ms": "-1 as in Java",
    "socket.send.buffer.bytes": "-1 as in Java",
    "socket.receive.buffer.bytes": "-1 as in Java",
    "fetch.min.bytes": "confluent_kafka checks the bound only when it makes a client",
    "reconnect.backoff.ms": "more than the default of reconnect.backoff.max.ms",
    "reconnect.backoff.max.ms": "less than the default of reconnect.backoff.ms",
    "test.mock.num.brokers": "refused",
    "test.mock.broker.rtt": "refused",
}
"""The settings whose bounds are not those of librdkafka, with the reason."""


@pytest.mark.parametrize("name", sorted(set(_numbers()) - set(WIDER)))
def test_the_bounds_of_a_number_are_those_of_librdkafka(name: str) -> None:
    row = BY_NAME[name]
    for value in (row.low, row.high):
        assert own_refusal("producer", {name: value}) == refusal_of_value(name, value) == ""
    for value in (row.low - 1, row.high + 1):
        assert f"{row.low} to {row.high}" in own_refusal("producer", {name: value})
        assert refusal_of_value(name, value)


def test_an_error_says_the_setting_the_value_and_what_is_expected() -> None:
    with pytest.raises(KafkaException) as raised:
        own_settings("producer", {"socket.timeout.ms": "soon"})
    error = raised.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG and not error.fatal()
    assert error.str() == (
        'Invalid value for configuration property "socket.timeout.ms": soon; expected a whole '
        "number, 1 to 900000"
    )


# --- names of one row -----------------------------------------------------------------------------
ALIASES = [(row.name, alias) for row in ROWS for alias in row.aliases]


@pytest.mark.parametrize(("name", "alias"), ALIASES)
def test_an_alias(name: str, alias: str) -> None:
    row = BY_NAME[name]
    first, second = _two_values(name)
    kind: ClientKind = "producer" if "producer" in row.clients else "consumer"
    found = own_settings(kind, {alias: first})
    assert str(found[name]) == str(found[alias]) == str(first) and found.is_given(name)
    same = own_settings(kind, {alias: first, name: first})
    assert str(same[name]) == str(first)
    refusal = own_refusal(kind, {alias: first, name: second})
    assert alias in refusal and name in refusal and "different values" in refusal


def _two_values(name: str) -> tuple[Any, Any]:
    row = BY_NAME[name]
    if row.kind is Kind.FRACTION:
        return 0.5, 5.0
    if row.kind is Kind.NUMBER:
        return (1, 0) if name == "acks" else (row.high, row.high - 1)
    if row.kind is Kind.FLAG:
        return True, False
    if row.kind is Kind.SECRET:
        return "***", "other"
    if name == "bootstrap.servers":
        return "a:1", "b:1"
    choices = row.choices or (("random", "fnv1a") if name == "partitioner" else ("x", "y"))
    return choices[1], choices[0]


def test_librdkafkas_and_javas_defaults() -> None:
    assert _defaults("producer") == {
        "linger.ms": 5.0,
        "delivery.timeout.ms": 300_000,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "session.timeout.ms": 45_000,
        "isolation.level": "read_committed",
        "auto.offset.reset": "latest",
        "request.timeout.ms": 60_000,
        "acks": -1,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "max.block.ms": None,
        "allow.auto.create.topics": True,
    }
    assert _defaults("consumer") == {
        **_defaults("producer"),
        "allow.auto.create.topics": False,
    }


def _defaults(kind: ClientKind) -> dict[str, Any]:
    settings = own_settings(kind)
    names = (
        *("linger.ms", "delivery.timeout.ms", "batch.size", "queue.buffering.max.messages"),
        *("queue.buffering.max.kbytes", "session.timeout.ms", "isolation.level", "acks"),
        *("auto.offset.reset", "request.timeout.ms", "partitioner", "enable.idempotence"),
        *("max.block.ms", "allow.auto.create.topics"),
    )
    return {name: settings[name] for name in names}
