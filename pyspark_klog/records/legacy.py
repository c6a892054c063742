"""Formats v0 and v1: views of messages and wrappers, and a builder.

A set is a row of messages. A message whose attributes name a codec is a wrapper: its value is a
compressed set of plain messages. A v0 wrapper and the messages in it carry absolute offsets. In v1
the inner offsets count from 0 and the wrapper carries the last one's absolute offset.
"""

from collections.abc import Iterator

from pyspark_klog.records import layout as at
from pyspark_klog.records.checksums import crc32
from pyspark_klog.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Codec,
    check_codec_fits,
    codec_of,
    decompress,
)
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_section import wrap_int64


class LegacyView:
    """One v0 or v1 entry of a set, a message or a wrapper, at ``position`` of a buffer.

    Making one checks that it lies whole before ``end``, that its format is 0 or 1 and that key and
    value fill it exactly (CorruptRecords); the CRC and what a wrapper holds are checked on demand.
    The header's fields are read once: a message is not patched in place.
    """

    __slots__ = (
        "_buffer",
        "_key",
        "_value",
        "attributes",
        "crc",
        "magic",
        "offset",
        "position",
        "size_bytes",
        "timestamp_ms",
    )

    offset: int  # as stored: a message's own, or the last one's of a wrapper
    crc: int  # the stored CRC-32, unsigned
    attributes: int
    timestamp_ms: int  # as stored (a wrapper's: its largest, or the append time); v0: -1

    def __init__(self, buffer: Buffer, position: int = 0, end: int | None = None) -> None:
        available = (len(buffer) if end is None else end) - position
        if available < at.MESSAGE_V0.size:
            raise CorruptRecords(
                f"the message at byte {position} is cut off after {max(available, 0)} bytes"
            )
        self.offset, size, self.crc, magic, self.attributes = at.MESSAGE_V0.unpack_from(
            buffer, position
        )
        if magic not in (at.MAGIC_V0, at.MAGIC_V1):
            raise CorruptRecords(f"the message at byte {position} has magic {magic}, not 0 or 1")
        if not at.MIN_MESSAGE_SIZE[magic] <= size <= available - at.LOG_OVERHEAD_BYTES:
            raise CorruptRecords(
                f"the message at byte {position} gives its size as {size}, expected "
                f"{at.MIN_MESSAGE_SIZE[magic]} to {available - at.LOG_OVERHEAD_BYTES}"
            )
        self._buffer = buffer
        self.position = position
        self.magic: int = magic
        self.size_bytes: int = at.LOG_OVERHEAD_BYTES + size
        self.timestamp_ms = at.NO_TIMESTAMP_MS
        if magic == at.MAGIC_V1:
            self.timestamp_ms = at.INT64.unpack_from(buffer, position + at.LEGACY_TIMESTAMP_AT)[0]
        message_end = position + self.size_bytes
        self._key = self._field(position + at.LEGACY_KEY_AT[magic], message_end)
        self._value = self._field(self._key[1], message_end)
        if self._value[1] != message_end:
            raise CorruptRecords(
                f"the message at byte {position} should end at byte {message_end}, "
                f"its value ends at {self._value[1]}"
            )

    def _field(self, length_at: int, message_end: int) -> tuple[int, int, bool]:
        """Start, end, and whether there is one: null is any negative length, as in Kafka."""
        start = length_at + 4
        if start > message_end:
            raise CorruptRecords(f"the message at byte {self.position} has no room for a length")
        length: int = at.INT32.unpack_from(self._buffer, length_at)[0]
        if length < 0:
            return start, start, False
        if length > message_end - start:
            raise CorruptRecords(
                f"the message at byte {self.position} has a field of {length} bytes, "
                f"{message_end - start} are left in it"
            )
        return start, start + length, True

    def _bytes(self, field: tuple[int, int, bool]) -> bytes | None:
        start, end, is_there = field
        if not is_there:
            return None
        with memoryview(self._buffer) as view:
            return bytes(view[start:end])

    # --- the header ------------------------------------------------------------------------------
    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCodec for a number that names none, and for zstd."""
        codec = codec_of(self.attributes)
        check_codec_fits(codec, self.magic)
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == at.MAGIC_V0:
            return TimestampType.NO_TIMESTAMP
        if self.attributes & at.TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    # --- what it has in common with BatchView ----------------------------------------------------
    @property
    def last_offset(self) -> int:
        return self.offset

    @property
    def next_offset(self) -> int:
        return self.offset + 1

    @property
    def max_timestamp_ms(self) -> int:
        return self.timestamp_ms

    @property
    def partition_leader_epoch(self) -> int:
        """None before v2."""
        return at.NO_LEADER_EPOCH

    @property
    def is_control(self) -> bool:
        """Never before v2."""
        return False

    def compute_crc(self) -> int:
        """The CRC-32 that the bytes should carry."""
        with (
            memoryview(self._buffer) as view,
            view[self.position + at.LEGACY_CRC_START_AT : self.position + self.size_bytes] as part,
        ):
            return crc32(part)

    def is_crc_valid(self) -> bool:
        return self.crc == self.compute_crc()

    def check_crc(self) -> None:
        """Raise CorruptRecords unless the CRC fits."""
        computed = self.compute_crc()
        if self.crc != computed:
            raise CorruptRecords(
                f"the message at byte {self.position} (offset {self.offset}) carries "
                f"CRC {self.crc:#010x}, its bytes give {computed:#010x}"
            )

    def to_bytes(self) -> bytes:
        """A copy of the whole entry."""
        with memoryview(self._buffer) as view:
            return bytes(view[self.position : self.position + self.size_bytes])

    def records(
        self, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, *, check_inner_crcs: bool = False
    ) -> Iterator[Record]:
        """The record, or the wrapper's records with absolute offsets.

        A wrapper's timestamp type holds for all in it; under log append time its timestamp too.
        Raises CorruptRecords or DecompressedTooLarge for what does not fit the bytes,
        InvalidRecords for a wrapper that is null, empty, of mixed formats, holds a wrapper, or
        whose offset is less than its messages'. The entry's own CRC is not checked here.
        """
        if self.codec is Codec.NONE:
            return iter((self._record(self.offset, self.timestamp_ms, self.timestamp_type),))
        return self._inner_records(max_bytes, check_inner_crcs)

    def _record(self, offset: int, timestamp_ms: int, timestamp_type: TimestampType) -> Record:
        key, value = self._bytes(self._key), self._bytes(self._value)
        return Record(offset, timestamp_ms, timestamp_type, key, value)

    def _inner_records(self, max_bytes: int, check_inner_crcs: bool) -> Iterator[Record]:
        inner = self._inner_messages(max_bytes)
        base_offset = 0
        # librdkafka once sent v1 wrappers with offset 0, whatever they held: then from 0, as Kafka.
        if self.magic == at.MAGIC_V1 and self.offset != 0:
            base_offset = wrap_int64(self.offset - inner[-1].offset)
            if self.offset < inner[-1].offset:
                raise InvalidRecords(
                    f"the wrapper at byte {self.position} has offset {self.offset}, less than "
                    f"the relative offset {inner[-1].offset} of its last message"
                )
        timestamp_type = self.timestamp_type
        for message in inner:
            if check_inner_crcs:
                message.check_crc()
            timestamp_ms = message.timestamp_ms
            if timestamp_type is TimestampType.LOG_APPEND_TIME:
                timestamp_ms = self.timestamp_ms
            offset = wrap_int64(base_offset + message.offset)
            yield message._record(offset, timestamp_ms, timestamp_type)

    def inflate(self, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes | bytearray:
        """The set in a wrapper, as ``decompress`` gives it; InvalidRecords if it is null."""
        with self.value_view() as value:
            return decompress(self.codec, value, magic=self.magic, max_bytes=max_bytes)

    def value_view(self) -> memoryview:
        """Where a wrapper's compressed set lies; InvalidRecords if the value is null."""
        start, end, is_there = self._value
        if not is_there:
            raise InvalidRecords(f"the wrapper at byte {self.position} has a null value")
        return memoryview(self._buffer)[start:end]

    def _inner_messages(self, max_bytes: int) -> list["LegacyView"]:
        inner = list(split_messages(self.inflate(max_bytes)))
        if not inner:
            raise InvalidRecords(f"the wrapper at byte {self.position} holds no message")
        for message in inner:
            if message.magic != self.magic:
                raise InvalidRecords(
                    f"the wrapper at byte {self.position} is of format {self.magic}, "
                    f"a message in it of format {message.magic}"
                )
            if message.attributes & at.CODEC_MASK:
                raise InvalidRecords(
                    f"the wrapper at byte {self.position} holds another wrapper; "
                    f"messages in a wrapper must not be compressed"
                )
        return inner


def split_messages(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[LegacyView]:
    """Walk the v0 and v1 entries of ``buffer[start:end]``; CorruptRecords at anything else."""
    position = start
    stop = len(buffer) if end is None else end
    while position < stop:
        entry = LegacyView(buffer, position, stop)
        yield entry
        position += entry.size_bytes


def message_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """Bytes that a plain message takes in a set, its offset and size included."""
    overhead = at.LOG_OVERHEAD_BYTES + at.MIN_MESSAGE_SIZE[magic]
    return overhead + len(key or b"") + len(value or b"")


def encode_message(
    magic: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    attributes: int = 0,
) -> bytes:
    """One entry of a set with its CRC; format 0 leaves out timestamp and timestamp type."""
    if magic == at.MAGIC_V0:
        attributes &= at.CODEC_MASK
        header = at.INT8.pack(magic) + at.INT8.pack(attributes)
    else:
        header = at.INT8.pack(magic) + at.INT8.pack(attributes) + at.INT64.pack(timestamp_ms)
    body = b"".join((header, _nullable(key), _nullable(value)))
    return at.LOG_OVERHEAD.pack(offset, 4 + len(body)) + at.UINT32.pack(crc32(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return at.INT32.pack(-1) if data is None else at.INT32.pack(len(data)) + data
