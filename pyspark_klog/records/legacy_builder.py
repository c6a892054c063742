"""Builds v0 and v1 message sets: plain messages, or one compressed wrapper around them."""

from pyspark_klog.records import layout as at
from pyspark_klog.records.compression import Codec, check_codec_fits, compress
from pyspark_klog.records.errors import BatchTooLarge, InvalidRecords
from pyspark_klog.records.layout import INT32_MAX, INT64_MAX, NO_TIMESTAMP_MS
from pyspark_klog.records.legacy import encode_message, message_size
from pyspark_klog.records.record import TimestampType


class LegacyBuilder:
    """Collects records and writes them as a message set of format ``magic`` (0 or 1).

    With a codec the set is one wrapper that carries the last offset. In v1 the wrapper also carries
    the largest timestamp, and the offsets of the messages in it are relative to ``base_offset``.
    Under LOG_APPEND_TIME (v1) every message has ``log_append_time_ms``. ``max_bytes`` bounds
    :attr:`size_bytes`, the size before compression. These formats have no record headers.
    """

    def __init__(
        self,
        magic: int,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        *,
        log_append_time_ms: int | None = None,
        max_bytes: int | None = None,
        compression_level: int | None = None,
    ) -> None:
        if magic not in (at.MAGIC_V0, at.MAGIC_V1):
            raise ValueError(f"magic {magic}: LegacyBuilder writes only format 0 or 1")
        check_codec_fits(codec, magic)
        if (timestamp_type is TimestampType.LOG_APPEND_TIME) != (log_append_time_ms is not None):
            raise ValueError("log_append_time_ms must be set with LOG_APPEND_TIME, and only then")
        self.magic = magic
        self.base_offset = base_offset
        self.codec = codec
        self.record_count = 0
        self._log_append_time_ms = log_append_time_ms
        self._max_bytes = INT32_MAX if max_bytes is None else max_bytes
        self._compression_level = compression_level
        self._last_offset = base_offset - 1
        self._max_timestamp_ms = NO_TIMESTAMP_MS
        self._messages = bytearray()
        has_type_bit = magic == at.MAGIC_V1 and log_append_time_ms is not None
        self._type_bit = at.TIMESTAMP_TYPE_BIT if has_type_bit else 0

    @property
    def size_bytes(self) -> int:
        """Size of the messages added so far, before compression."""
        return len(self._messages)

    @property
    def next_offset(self) -> int:
        """The offset of the next record, if ``append`` is called without an offset."""
        return self._last_offset + 1

    def append(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, offset: int | None = None
    ) -> int:
        """Add a record and return its offset; offsets must rise, and gaps are allowed.

        Raises BatchTooLarge if the record does not fit into the set's ``max_bytes``, and
        InvalidRecords for an offset or a timestamp that the set cannot hold. After an error the set
        is unchanged.
        """
        own = self.next_offset if offset is None else offset
        if not self._last_offset < own <= INT64_MAX:
            raise InvalidRecords(f"offset {own} cannot follow {self._last_offset}: offsets rise")
        if not NO_TIMESTAMP_MS <= timestamp_ms <= INT64_MAX:
            raise InvalidRecords(f"timestamp {timestamp_ms} ms: expected -1 (none) to 2^63 - 1")
        size = message_size(self.magic, key, value)
        if len(self._messages) + size > self._max_bytes:
            raise BatchTooLarge(
                f"a message of {size} bytes does not fit into a message set of "
                f"{len(self._messages)} bytes: the limit is {self._max_bytes}"
            )
        is_relative = self.magic == at.MAGIC_V1 and self.codec is not Codec.NONE
        written_ms = timestamp_ms if self._log_append_time_ms is None else self._log_append_time_ms
        self._messages += encode_message(
            self.magic,
            own - self.base_offset if is_relative else own,
            written_ms,
            key,
            value,
            self._type_bit,
        )
        self._last_offset = own
        self._max_timestamp_ms = max(self._max_timestamp_ms, written_ms)
        self.record_count += 1
        return own

    def build(self) -> bytes:
        """Return the message set; InvalidRecords if it is empty. Later calls of `append` are
        allowed."""
        if not self.record_count:
            raise InvalidRecords("a message set needs at least one record; append a record first")
        if self.codec is Codec.NONE:
            return bytes(self._messages)
        return encode_message(
            self.magic,
            self._last_offset,
            self._max_timestamp_ms,
            None,
            compress(self.codec, self._messages, magic=self.magic, level=self._compression_level),
            self.codec | self._type_bit,
        )
