"""Message: a record that was consumed, or whose delivery is reported."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Generic

from pyspark_klog.kafka._errors import KafkaError
from pyspark_klog.kafka._headers import Headers

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:  # Python has defaults of type variables from 3.13 on.
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_NO_TIMESTAMP = (0, 0)


class Message(Generic[K, V]):
    """A record with its place in the log, or with the error that took its place.

    A message of a consumer is a record unless `error` is set; then `value` is the error's text.
    """

    __slots__ = (
        *("_delivery_count", "_error", "_headers", "_key", "_latency", "_leader_epoch", "_offset"),
        *("_partition", "_timestamp", "_topic", "_value"),
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Headers | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = _number(partition)
        self._offset = _number(offset)
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        if not (timestamp is None or isinstance(timestamp, tuple)):
            raise TypeError("timestamp must be a tuple of (int, int)")
        self._timestamp = _NO_TIMESTAMP if timestamp is None else timestamp
        self._latency = None if latency is None or latency < 0 else latency
        self._leader_epoch = _number(leader_epoch)
        self._delivery_count = _number(delivery_count) or None

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset; None if the record was not written."""
        return self._offset

    def key(self) -> bytes | None:
        """Return the key: bytes, or what a deserializer has made of them."""
        return self._key  # type: ignore[no-any-return]

    def value(self) -> bytes | None:
        """Return the value: bytes, or what a deserializer has made of them."""
        return self._value  # type: ignore[no-any-return]

    def deserialized_key(self) -> K | None:
        """Return `key`, with the deserializer's type."""
        return self._key  # type: ignore[no-any-return]

    def deserialized_value(self) -> V | None:
        """Return `value`, with the deserializer's type."""
        return self._value  # type: ignore[no-any-return]

    def headers(self) -> Headers | None:
        """Return the headers, in their order; None if there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return the error in place of a record, or the error of its delivery."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the time (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, or
        TIMESTAMP_NOT_AVAILABLE), and the time in ms since 1970."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from `produce` to the acknowledgement; None for consumed records."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return the leader epoch of the record's batch; None if it is not known."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return None: only consumers of share groups count deliveries."""
        return self._delivery_count

    def set_topic(self, topic: Any) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_headers(self, headers: Headers | None) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        """The size of the value, 0 without a value."""
        return 0 if self._value is None else len(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def _fields(self) -> tuple[Any, ...]:
        return (
            *(self._topic, self._partition, self._offset, self._key, self._value, self._headers),
            *(self._error, self._timestamp, self._latency, self._leader_epoch),
            self._delivery_count,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields()


def _number(value: int | None) -> int | None:
    """Check an integer. A negative one stands for None, as -1 does in the protocol."""
    return None if value is None or index(value) < 0 else index(value)
