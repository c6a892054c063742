"""Formats v0 and v1: views of messages and wrappers, and the encoding of one message.

A message set is a sequence of messages. A message whose attributes name a codec is a wrapper: its
value is a compressed set of plain messages. A v0 wrapper and the messages in it carry absolute
offsets. In v1 the inner offsets count from 0, and the wrapper carries the absolute offset of its
last message.
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
    """A view of one v0 or v1 entry, a message or a wrapper, at ``position`` of a buffer.

    The constructor raises CorruptRecords unless the whole entry lies before ``end``, its format is
    0 or 1, and key and value fill the entry exactly. The CRC and the contents of a wrapper are
    checked on demand only. The constructor reads the fields of the header; the attributes of the
    view do not show later changes of the buffer.
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

    offset: int  # the stored offset: of the message, or of the last message in a wrapper
    crc: int  # the stored CRC-32, unsigned
    attributes: int
    timestamp_ms: int  # the stored timestamp, in a wrapper usually the largest; -1 in v0

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
                f"but its value ends at byte {self._value[1]}"
            )

    def _field(self, length_at: int, message_end: int) -> tuple[int, int, bool]:
        """Return (start, end, whether it is not null) of the key or value whose length field is at
        ``length_at``. Like in Kafka, any negative length means null.
        """
        start = length_at + 4
        if start > message_end:
            raise CorruptRecords(
                f"the message at byte {self.position} ends before the length of its key or value"
            )
        length: int = at.INT32.unpack_from(self._buffer, length_at)[0]
        if length < 0:
            return start, start, False
        if length > message_end - start:
            raise CorruptRecords(
                f"the message at byte {self.position} has a field of {length} bytes, "
                f"but only {message_end - start} bytes are left for its key or value"
            )
        return start, start + length, True

    def _bytes(self, field: tuple[int, int, bool]) -> bytes | None:
        start, end, is_there = field
        if not is_there:
            return None
        with memoryview(self._buffer) as view:
            return bytes(view[start:end])

    # --- the message header ----------------------------------------------------------------------
    @property
    def codec(self) -> Codec:
        """The codec of a wrapper; raises UnsupportedCodec for zstd and an unknown codec number."""
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

    # --- members that BatchView, the view of a v2 batch, has under the same names -----------------
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
        """Always -1: formats before v2 store no leader epoch."""
        return at.NO_LEADER_EPOCH

    @property
    def is_control(self) -> bool:
        """Always False: formats before v2 have no control batches."""
        return False

    def compute_crc(self) -> int:
        """Compute the CRC-32 of the bytes from the magic to the end of the message or wrapper,
        unsigned."""
        with (
            memoryview(self._buffer) as view,
            view[self.position + at.LEGACY_CRC_START_AT : self.position + self.size_bytes] as part,
        ):
            return crc32(part)

    def is_crc_valid(self) -> bool:
        return self.crc == self.compute_crc()

    def check_crc(self) -> None:
        """Raise CorruptRecords unless the stored CRC equals :meth:`compute_crc`."""
        computed = self.compute_crc()
        if self.crc != computed:
            raise CorruptRecords(
                f"the message at byte {self.position} (offset {self.offset}) carries "
                f"CRC {self.crc:#010x}, its bytes give {computed:#010x}"
            )

    def to_bytes(self) -> bytes:
        """A copy of the bytes of the whole message or wrapper."""
        with memoryview(self._buffer) as view:
            return bytes(view[self.position : self.position + self.size_bytes])

    def records(
        self, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, *, check_inner_crcs: bool = False
    ) -> Iterator[Record]:
        """Return the record of a plain message, or all records of a wrapper, with absolute offsets.

        The wrapper's timestamp type holds for all its records, and under log append time so does
        its timestamp. Raises CorruptRecords for damaged bytes, UnsupportedCodec,
        DecompressedTooLarge if the wrapper inflates to more than ``max_bytes``, and InvalidRecords
        for a wrapper that is null, is empty, mixes formats, contains a wrapper, or (in v1) has a
        smaller offset than the relative offset of its last message. The CRC of the plain message or
        wrapper itself is not checked; ``check_inner_crcs`` checks those of the messages in a
        wrapper.
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
        # Old librdkafka sends v1 wrappers with offset 0. Like in Kafka, the offsets of the messages
        # in such a wrapper start at 0.
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
        """Return the decompressed message set of a wrapper; InvalidRecords for a null value."""
        with self.value_view() as value:
            return decompress(self.codec, value, magic=self.magic, max_bytes=max_bytes)

    def value_view(self) -> memoryview:
        """Return a view of the wrapper's compressed set; InvalidRecords if the value is null."""
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
                    f"but a message in it is of format {message.magic}"
                )
            if message.attributes & at.CODEC_MASK:
                raise InvalidRecords(
                    f"the wrapper at byte {self.position} holds another wrapper; "
                    f"messages in a wrapper must not be compressed"
                )
        return inner


def split_messages(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[LegacyView]:
    """Yield the v0 and v1 messages and wrappers of ``buffer[start:end]``; CorruptRecords at
    anything else."""
    position = start
    stop = len(buffer) if end is None else end
    while position < stop:
        entry = LegacyView(buffer, position, stop)
        yield entry
        position += entry.size_bytes


def message_size(magic: int, key: bytes | None, value: bytes | None) -> int:
    """Return the size in bytes of a plain message in a set, including its offset and size field."""
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
    """Return the bytes of one message, with its offset, size field and CRC.

    With ``magic`` 0 the timestamp and the timestamp type are not written, because format v0 has
    neither of them.
    """
    if magic == at.MAGIC_V0:
        attributes &= at.CODEC_MASK
        header = at.INT8.pack(magic) + at.INT8.pack(attributes)
    else:
        header = at.INT8.pack(magic) + at.INT8.pack(attributes) + at.INT64.pack(timestamp_ms)
    body = b"".join((header, _nullable(key), _nullable(value)))
    return at.LOG_OVERHEAD.pack(offset, 4 + len(body)) + at.UINT32.pack(crc32(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return at.INT32.pack(-1) if data is None else at.INT32.pack(len(data)) + data
