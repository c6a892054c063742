"""The values of `produce`: keys, values and headers as bytes, and the settings of a producer."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from pyspark_klog.client.producer.out_records import OutRecord, ProducerSettings
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.kafka import _partitioners
from pyspark_klog.kafka._settings import KafkaSettings
from pyspark_klog.records.compression import Codec

_RECORD_OVERHEAD_BYTES = 100
"""More than a record's lengths, times and counts need in a batch, the batch's header included."""
_HASHES = {
    "murmur2": _partitioners.murmur2,
    "murmur2_random": _partitioners.murmur2,
    "consistent": _partitioners.consistent,
    "consistent_random": _partitioners.consistent,
    "fnv1a": _partitioners.fnv1a,
    "fnv1a_random": _partitioners.fnv1a,
}
_PARTS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("value", (bytes, str, type(None)), "bytes or str"),
    ("key", (bytes, str, type(None)), "bytes or str"),
    ("partition", (int, type(None)), "int"),
    ("timestamp", (int, type(None)), "int"),
)
"""The parts of a message of `produce_batch`, with their types."""


def size_of(record: OutRecord) -> int:
    headers = sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def bytes_of(value: object) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"a bytes-like object is required, not {type(value).__name__!r}")


def check_message(number: int, message: object) -> None:
    """Check the types in a message of `produce_batch`, a dict.

    :raises TypeError: naming the wrong part and the message's number in the list
    """
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {number} must be a dict")
    for part, kinds, expected in _PARTS:
        if not isinstance(message.get(part), kinds):
            raise TypeError(f"Message {part} at index {number} must be {expected}")
    header_list(message.get("headers"))


def header_list(headers: Any) -> Sequence[tuple[str, bytes | None]]:
    if not headers:
        return ()
    if not isinstance(headers, dict | list):
        raise TypeError(
            "expected headers to be dict or list of (key, value) tuples, not "
            f"{type(headers).__name__}"
        )
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(_header_name(name), _header_value(value)) for name, value in pairs]


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"expected header key to be a string, not {type(name).__name__}")
    return name


def _header_value(value: object) -> bytes | None:
    try:
        return bytes_of(value)
    except TypeError:
        raise TypeError(
            "expected header value to be None, binary, or unicode string, not "
            f"{type(value).__name__}"
        ) from None


def producer_settings(settings: KafkaSettings) -> ProducerSettings:
    given = settings.client_settings
    kind = given.text("compression.type")
    level_name = f"compression.{kind}.level"
    return ProducerSettings(
        acks={"all": -1, "1": 1, "0": 0}[given.text("acks")],
        is_idempotent=given.flag("enable.idempotence"),
        max_in_flight=given.number("max.in.flight.requests.per.connection"),
        batch_bytes=min(settings.number("batch.size"), settings.number("max.request.size")),
        linger_ms=round(settings.fraction("linger.ms")),
        max_request_bytes=settings.number("max.request.size"),
        retries=given.number("retries"),
        delivery_timeout_ms=settings.number("delivery.timeout.ms"),
        request_timeout_ms=given.number("request.timeout.ms"),
        topic_patience_ms=settings.number("topic.metadata.propagation.max.ms"),
        retry=Backoff(given.number("retry.backoff.ms"), given.number("retry.backoff.max.ms")),
        codec=Codec[kind.upper()],
        level=given.number(level_name) if given.is_given(level_name) else None,
        choose=_chooser(settings),
    )


def _chooser(settings: KafkaSettings) -> Callable[[str, OutRecord, int], int | None]:
    """Return the function that chooses partitions (`ProducerSettings.choose`)."""
    partitioner = settings["partitioner"]
    if callable(partitioner):
        own = cast("Callable[[str, bytes | None, bytes | None, int], int]", partitioner)
        return lambda topic, record, count: own(topic, record.key, record.value, count)
    name = str(partitioner)
    hash_key = _HASHES.get(name)
    if hash_key is None or settings.flag("partitioner.ignore.keys"):
        return lambda _topic, _record, _count: None
    # "random": a record without a key goes to the sticky partition; otherwise a missing key is
    # hashed as an empty one. Only consistent_random treats an empty key like a missing one.
    is_random, is_crc = name.endswith("random"), name == "consistent_random"

    def choose(_topic: str, record: OutRecord, count: int) -> int | None:
        if is_random and (record.key is None or (is_crc and not record.key)):
            return None
        return hash_key(record.key or b"", count)

    return choose
