"""The values of `pyspark_klog.kafka` behave as confluent_kafka's, which are asked each time."""

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import serialization as confluent_serialization
from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog import kafka
from pyspark_klog.errors import ErrorCode
from pyspark_klog.kafka import KafkaError, Message, Uuid, serialization

_CODES = {
    name: code
    for name in dir(confluent_kafka.KafkaError)
    if isinstance(code := getattr(confluent_kafka.KafkaError, name), int)
}


def outcome(call: Callable[[ModuleType], Any], module: ModuleType) -> Any:
    """Return what a call returns or raises, in values that do not name the package."""
    try:
        found = call(module)
    except Exception as error:
        return type(error).__name__
    return found if isinstance(found, int | str | bytes | tuple | list | None) else repr(found)


def _partition(module: ModuleType) -> Any:
    return module.TopicPartition("t", 1, 5, "metadata", 7)


def _error(module: ModuleType) -> Any:
    return module.KafkaError(3, "text", fatal=True)


def _message(module: ModuleType) -> Any:
    headers = [("h", b"v")]
    return module.Message("t", 1, 2, b"k", b"val", headers, None, (1, 33), 0.5, 4)


def _fields(message: Any) -> list[Any]:
    return [
        *(message.topic(), message.partition(), message.offset(), message.key(), message.value()),
        *(message.headers(), message.error(), message.timestamp(), message.latency()),
        *(message.leader_epoch(), message.delivery_count(), len(message), bool(message)),
        *(message.deserialized_key(), message.deserialized_value()),
    ]


def _changed(message: Any, error: Any) -> list[Any]:
    message.set_topic("other")
    message.set_key("k2")
    message.set_value("v2")
    message.set_headers(None)
    message.set_error(error)
    return [*_fields(message)[:6], message.error() == error]


CALLS: list[Callable[[ModuleType], Any]] = [
    lambda m: repr(_partition(m)),
    lambda m: str(m.TopicPartition("t")),
    lambda m: _partition(m).metadata,
    lambda m: _partition(m) == m.TopicPartition("t", 1, 99),
    lambda m: hash(_partition(m)) == hash(m.TopicPartition("t", 1)),
    lambda m: [str(each) for each in sorted([_partition(m), m.TopicPartition("a", 9)])],
    lambda m: _partition(m) <= _partition(m) >= _partition(m),
    lambda m: m.TopicPartition("t", 2) > _partition(m),
    lambda m: m.TopicPartition(1),
    lambda m: m.TopicPartition("t", "1"),
    lambda m: m.TopicPartition("t", 1, None),
    lambda m: setattr(_partition(m), "offset", "1"),
    lambda m: setattr(_partition(m), "unknown", 1),
    lambda m: (_error(m).code(), _error(m).name(), _error(m).str(), _error(m).fatal()),
    lambda m: repr(_error(m)),
    lambda m: (_error(m) == 3, _error(m) != 3, _error(m) < 4, _error(m) >= m.KafkaError(3)),
    lambda m: (_error(m) > 2, _error(m) <= 2, hash(_error(m)), bool(m.KafkaError(0))),
    lambda m: repr(m.KafkaError(9_999)),
    lambda m: m.KafkaError(-9_999).name(),
    lambda m: (m.KafkaError(3, "x", False, True, True).retriable(), _error(m).retriable()),
    lambda m: m.KafkaError(3, "x", False, True, True).txn_requires_abort(),
    lambda m: repr(pickle.loads(pickle.dumps(_error(m)))),
    lambda m: m.KafkaError("3"),
    lambda m: m.KafkaError(3, 3),
    lambda m: m.KafkaError(1 << 40),
    lambda m: setattr(_error(m), "unknown", 1),
    lambda m: repr(m.KafkaException(_error(m))),
    lambda m: m.KafkaException(_error(m)).args[0] == 3,
    lambda m: _fields(_message(m)),
    lambda m: _fields(m.Message()),
    lambda m: _fields(m.Message("t", -1, -1001, latency=-1.0, leader_epoch=-1, delivery_count=0)),
    lambda m: len(m.Message(value="text")),
    lambda m: len(m.Message(value=3)),
    lambda m: m.Message(timestamp=5),
    lambda m: m.Message(offset="5"),
    lambda m: _changed(_message(m), _error(m)),
    lambda m: pickle.loads(pickle.dumps(_message(m))) == _message(m),
    lambda m: _message(m) == m.Message("t"),
    lambda m: hash(_message(m)),
    lambda m: _message(m).unknown,
    lambda m: str(m.Uuid(1, 2)),
    lambda m: (m.Uuid(-1, 5).get_most_significant_bits(), m.Uuid(-1, 5) == 5),
    lambda m: m.Uuid(1 << 63, 0),
    lambda m: m.Uuid("1", 0),
    lambda m: (str(m.Node(1, "host", 9)), str(m.Node(1, "host", 9, "r")), m.Node(1, "h", 9).rack),
    lambda m: str(m.ThrottleEvent("host", 3, 0.25)),
    lambda m: [str(each) for each in m.ConsumerGroupState],
    lambda m: str(m.ConsumerGroupState.UNKOWN),
    lambda m: [(each.name, each.value) for each in m.ConsumerGroupType],
    lambda m: [(each.name, each.value) for each in m.IsolationLevel],
    lambda m: [(each.name, each.value) for each in m.ElectionType],
    lambda m: m.ElectionType.PREFERRED < m.ElectionType.UNCLEAN,
    lambda m: m.ElectionType.PREFERRED < 3,
    lambda m: m.TopicCollection(["a"]).topic_names,
    lambda m: m.ConsumerGroupTopicPartitions("g").topic_partitions,
    lambda m: (m.OFFSET_BEGINNING, m.OFFSET_END, m.OFFSET_STORED, m.OFFSET_INVALID),
    lambda m: (m.TIMESTAMP_NOT_AVAILABLE, m.TIMESTAMP_CREATE_TIME, m.TIMESTAMP_LOG_APPEND_TIME),
    lambda m: m.murmur2(b"k", 0),
    lambda m: m.consistent("k", 1),
    lambda m: m.fnv1a(None, 1),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_value_behaves_as_that_of_confluent_kafka(call: Callable[[ModuleType], Any]) -> None:
    assert outcome(call, kafka) == outcome(call, confluent_kafka)


def test_the_error_codes_are_those_of_confluent_kafka() -> None:
    own = {name: getattr(KafkaError, name, None) for name in _CODES}
    assert own == _CODES
    for name, code in _CODES.items():
        assert KafkaError(code).name() == name == confluent_kafka.KafkaError(code).name()


def test_every_code_has_a_text_that_says_who_found_the_error() -> None:
    for code in {*_CODES.values(), *ErrorCode} - {0}:
        text = KafkaError(code).str()
        assert text.startswith("Local: " if code < -1 else "Broker: ") and len(text) > 15, code
    assert KafkaError(ErrorCode.NEW_LEADER_ELECTED).name() == "NEW_LEADER_ELECTED"


def test_what_confluent_kafka_cannot_do() -> None:
    """There a TopicPartition and a Uuid cannot be pickled, equal ids differ, and to compare an
    error or a partition with another type raises an exception."""
    partition = _partition(kafka)
    assert str(copy.copy(partition)) == str(pickle.loads(pickle.dumps(partition))) == str(partition)
    assert pickle.loads(pickle.dumps(partition)).metadata == "metadata"
    assert pickle.loads(pickle.dumps(Uuid(1, -2))) == Uuid(1, -2) != Uuid(1, 2)
    assert str(Uuid(-1, -1)) == "_____________________w"  # as Kafka's tools print it
    assert KafkaError(3) != None and partition != ("t", 1)  # noqa: E711
    with pytest.raises(TypeError, match="not supported between"):
        sorted([partition, 3])


@given(st.binary(max_size=40), st.integers(1, 100_000))
def test_partitioners(key: bytes, partition_count: int) -> None:
    for name in ("murmur2", "consistent", "fnv1a"):
        own, other = getattr(kafka, name), getattr(confluent_kafka, name)
        assert own(key, partition_count) == other(key, partition_count)


SERIALIZED: list[tuple[str, Any]] = [
    *(("DoubleSerializer", value) for value in (None, 1.5, -0.0, 3, "1")),
    *(("IntegerSerializer", value) for value in (None, 5, -(2**31), 2**31, 1.5)),
    *(("StringSerializer", value) for value in (None, "", "ä", "\ud800", 5)),
    *(("DoubleDeserializer", value) for value in (None, bytes(8), b"12345678", b"", b"123456789")),
    *(("IntegerDeserializer", value) for value in (None, b"\xff\xff\xff\xff", b"", b"12345")),
    *(("StringDeserializer", value) for value in (None, b"", "ä".encode(), b"\xff", "ä")),
    *(("Serializer", 1), ("Deserializer", b"1")),
]


@pytest.mark.parametrize(("name", "value"), SERIALIZED)
def test_serializers(name: str, value: Any) -> None:
    def call(module: ModuleType) -> Any:
        context = module.SerializationContext("t", module.MessageField.VALUE)
        return getattr(module, name)()(value, ctx=context)

    assert outcome(call, serialization) == outcome(call, confluent_serialization)


def test_a_codec_of_strings() -> None:
    assert serialization.StringSerializer("utf_16_be")("ä") == b"\x00\xe4"
    assert serialization.StringDeserializer("utf_16_be")(b"\x00\xe4") == "ä"


def test_the_exceptions_of_serializers() -> None:
    from pyspark_klog.kafka import error

    cause, message = ValueError("why"), Message("t", 1, 2, b"k")
    found = error.KeyDeserializationError(cause, message)
    assert (found.code, found.name) == (KafkaError._KEY_DESERIALIZATION, "_KEY_DESERIALIZATION")
    assert (found.exception, found.kafka_message, found.args[0].str()) == (cause, message, "why")
    assert isinstance(found, serialization.SerializationError) and isinstance(
        found, error.ConsumeError
    )
    for kind in ("KeySerialization", "ValueSerialization", "ValueDeserialization"):
        raised = getattr(error, f"{kind}Error")(cause)
        assert raised.name == getattr(confluent_kafka.error, f"{kind}Error")(cause).name
        assert isinstance(raised, serialization.SerializationError | kafka.KafkaException)
