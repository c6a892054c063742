"""Views of v2 batches, which read and patch a batch header in place, without a copy."""

from collections.abc import Iterator
from typing import cast

from pyspark_klog.records import layout as at
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Codec,
    codec_of,
    decompress,
)
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_section import read_records, wrap_int64


class BatchView:
    """A view of one v2 batch at ``position`` of a buffer (bytes, bytearray or memoryview).

    The constructor raises CorruptRecords unless the whole batch lies before ``end`` and has format
    v2. CRC and records are checked on demand only. Each property reads the buffer, so it shows
    later patches. The ``set_*`` methods need a writable buffer, and update the CRC where the CRC
    covers the field.
    """

    __slots__ = ("_buffer", "position", "size_bytes")

    def __init__(self, buffer: Buffer, position: int = 0, end: int | None = None) -> None:
        available = (len(buffer) if end is None else end) - position
        if available < at.BATCH_HEADER_BYTES:
            raise CorruptRecords(
                f"the header of a batch takes {at.BATCH_HEADER_BYTES} bytes, "
                f"at byte {position} only {max(available, 0)} are left"
            )
        magic = at.INT8.unpack_from(buffer, position + at.MAGIC_AT)[0]
        if magic != at.MAGIC_V2:
            raise CorruptRecords(f"the batch at byte {position} has magic {magic}, expected 2")
        length: int = at.INT32.unpack_from(buffer, position + at.BATCH_LENGTH_AT)[0]
        if not at.MIN_BATCH_LENGTH <= length <= available - at.LOG_OVERHEAD_BYTES:
            raise CorruptRecords(
                f"the batch at byte {position} gives its length as {length}, expected "
                f"{at.MIN_BATCH_LENGTH} to {available - at.LOG_OVERHEAD_BYTES}"
            )
        self._buffer = buffer
        self.position = position
        self.size_bytes = at.LOG_OVERHEAD_BYTES + length

    def __repr__(self) -> str:
        return (
            f"BatchView(position={self.position}, size_bytes={self.size_bytes}, "
            f"base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"record_count={self.record_count}, codec={self.attributes & at.CODEC_MASK})"
        )

    # --- the header's fields ---------------------------------------------------------------------
    def _int64(self, field_at: int) -> int:
        return cast(int, at.INT64.unpack_from(self._buffer, self.position + field_at)[0])

    def _int32(self, field_at: int) -> int:
        return cast(int, at.INT32.unpack_from(self._buffer, self.position + field_at)[0])

    def _int16(self, field_at: int) -> int:
        return cast(int, at.INT16.unpack_from(self._buffer, self.position + field_at)[0])

    @property
    def base_offset(self) -> int:
        return self._int64(at.BASE_OFFSET_AT)

    @property
    def batch_length(self) -> int:
        """Number of bytes after the length field: ``size_bytes`` - 12."""
        return self._int32(at.BATCH_LENGTH_AT)

    @property
    def partition_leader_epoch(self) -> int:
        return self._int32(at.LEADER_EPOCH_AT)

    @property
    def magic(self) -> int:
        return at.MAGIC_V2

    @property
    def crc(self) -> int:
        """The stored CRC-32C, unsigned."""
        return cast(int, at.UINT32.unpack_from(self._buffer, self.position + at.CRC_AT)[0])

    @property
    def attributes(self) -> int:
        return self._int16(at.ATTRIBUTES_AT)

    @property
    def codec(self) -> Codec:
        """The codec of the records; raises UnsupportedCodec for an unknown codec number."""
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & at.TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & at.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & at.CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp_ms`` is the delete horizon.

        The delete horizon is the time from which the log cleaner may delete the batch's tombstones
        or transaction marker (KIP-534).
        """
        return bool(self.attributes & at.DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp_ms if self.has_delete_horizon else None

    @property
    def last_offset_delta(self) -> int:
        return self._int32(at.LAST_OFFSET_DELTA_AT)

    @property
    def last_offset(self) -> int:
        return wrap_int64(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> int:
        return wrap_int64(self.last_offset + 1)

    @property
    def base_timestamp_ms(self) -> int:
        """The timestamp that the records' deltas count from; the delete horizon if one is set."""
        return self._int64(at.BASE_TIMESTAMP_AT)

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the records; under log append time the timestamp of every record."""
        return self._int64(at.MAX_TIMESTAMP_AT)

    @property
    def producer_id(self) -> int:
        return self._int64(at.PRODUCER_ID_AT)

    @property
    def producer_epoch(self) -> int:
        return self._int16(at.PRODUCER_EPOCH_AT)

    @property
    def base_sequence(self) -> int:
        return self._int32(at.BASE_SEQUENCE_AT)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 without sequences; 0 follows 2^31 - 1."""
        base = self.base_sequence
        if base == at.NO_SEQUENCE:
            return at.NO_SEQUENCE
        return add_to_sequence(base, self.last_offset_delta)

    @property
    def record_count(self) -> int:
        """Number of records according to the header; 0 for a batch that compaction emptied."""
        return self._int32(at.RECORD_COUNT_AT)

    # --- the CRC ---------------------------------------------------------------------------------
    def compute_crc(self) -> int:
        """Compute the CRC-32C from the attributes to the end of the batch, unsigned."""
        with (
            memoryview(self._buffer) as view,
            view[self.position + at.CRC_START_AT : self.position + self.size_bytes] as covered,
        ):
            return crc32c(covered)

    def is_crc_valid(self) -> bool:
        return self.crc == self.compute_crc()

    def check_crc(self) -> None:
        """Raise CorruptRecords unless the stored CRC equals :meth:`compute_crc`."""
        computed = self.compute_crc()
        if self.crc != computed:
            raise CorruptRecords(
                f"the batch at byte {self.position} (base offset {self.base_offset}) carries "
                f"CRC {self.crc:#010x}, its bytes give {computed:#010x}"
            )

    # --- changes of the header in place ----------------------------------------------------------
    def set_base_offset(self, base_offset: int) -> None:
        """Set the base offset, which the CRC does not cover."""
        at.INT64.pack_into(self._writable(), self.position + at.BASE_OFFSET_AT, base_offset)

    def set_max_timestamp(self, timestamp_ms: int, timestamp_type: TimestampType) -> None:
        """Set max timestamp and timestamp type, and update the CRC unless both are unchanged.

        Raises ValueError for NO_TIMESTAMP, because a v2 batch always has a timestamp type.
        """
        if timestamp_type is TimestampType.NO_TIMESTAMP:
            raise ValueError("a v2 batch has a timestamp type: CREATE_TIME or LOG_APPEND_TIME")
        if timestamp_type is self.timestamp_type and timestamp_ms == self.max_timestamp_ms:
            return
        attributes = self.attributes & ~at.TIMESTAMP_TYPE_BIT
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= at.TIMESTAMP_TYPE_BIT
        target = self._writable()
        at.INT16.pack_into(target, self.position + at.ATTRIBUTES_AT, attributes)
        at.INT64.pack_into(target, self.position + at.MAX_TIMESTAMP_AT, timestamp_ms)
        self.update_crc()

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool
    ) -> None:
        """Set the producer fields and the transactional bit, and update the CRC.

        klog's idempotent producer calls this method when it puts the batch into a Produce request.
        """
        target = self._writable()
        attributes = self.attributes & ~at.TRANSACTIONAL_BIT
        if is_transactional:
            attributes |= at.TRANSACTIONAL_BIT
        at.INT16.pack_into(target, self.position + at.ATTRIBUTES_AT, attributes)
        at.INT64.pack_into(target, self.position + at.PRODUCER_ID_AT, producer_id)
        at.INT16.pack_into(target, self.position + at.PRODUCER_EPOCH_AT, producer_epoch)
        at.INT32.pack_into(target, self.position + at.BASE_SEQUENCE_AT, base_sequence)
        self.update_crc()

    def set_times(self, timestamp_ms: int) -> None:
        """Set the timestamp of all records, and update the CRC.

        All records of the batch must have the same timestamp before, so that their deltas are 0.
        """
        target = self._writable()
        at.INT64.pack_into(target, self.position + at.BASE_TIMESTAMP_AT, timestamp_ms)
        at.INT64.pack_into(target, self.position + at.MAX_TIMESTAMP_AT, timestamp_ms)
        self.update_crc()

    def update_crc(self) -> None:
        """Compute the CRC of the batch and store it in the header."""
        at.UINT32.pack_into(self._writable(), self.position + at.CRC_AT, self.compute_crc())

    def _writable(self) -> bytearray | memoryview:
        """Return the buffer, typed as writable; struct raises TypeError if it is read-only."""
        return cast(bytearray | memoryview, self._buffer)

    # --- bytes and records of the batch ----------------------------------------------------------
    def to_bytes(self) -> bytes:
        """A copy of the whole batch."""
        with memoryview(self._buffer) as view:
            return bytes(view[self.position : self.position + self.size_bytes])

    def records_section(self, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes | bytearray:
        """Return the uncompressed record section; DecompressedTooLarge above ``max_bytes`` bytes.

        The bound holds for compressed batches only.
        """
        with (
            memoryview(self._buffer) as view,
            view[self.position + at.RECORDS_AT : self.position + self.size_bytes] as section,
        ):
            codec = self.codec
            if codec is Codec.NONE:
                return bytes(section)
            return decompress(codec, section, magic=at.MAGIC_V2, max_bytes=max_bytes)

    def records(self, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Iterate over the records in order. Their lengths, counts and varints are checked; the CRC
        and the other fields of the batch header are not.

        Raises CorruptRecords, UnsupportedCodec or DecompressedTooLarge: before the first record, at
        a damaged record, or after the last record if bytes are left. Under log append time each
        record has the batch's max timestamp. Like in Kafka, a batch whose record count is 0 has no
        records, whatever bytes follow the header. Offsets (base offset plus offset delta) and
        timestamps wrap around at 64 bits.
        """
        count = self.record_count
        if count == 0:
            return iter(())
        timestamp_type = self.timestamp_type
        return read_records(
            self.records_section(max_bytes),
            count,
            base_offset=self.base_offset,
            base_timestamp_ms=self.base_timestamp_ms,
            timestamp_type=timestamp_type,
            log_append_time_ms=self.max_timestamp_ms,
        )


def add_to_sequence(sequence: int, increment: int) -> int:
    """Return ``sequence`` + ``increment`` as a sequence number: 0 follows 2^31 - 1."""
    return (sequence + increment) & at.INT32_MAX


def split_batches(
    buffer: Buffer, start: int = 0, end: int | None = None, *, allow_partial: bool = False
) -> Iterator[BatchView]:
    """Yield the v2 batches of ``buffer[start:end]``; checks magic and lengths only.

    Raises CorruptRecords at bytes that are no v2 batch. A batch that is cut off at the end raises
    too, unless ``allow_partial`` is set: Fetch responses may end with a partial batch, and then
    the iteration stops before that batch.
    """
    position = start
    stop = len(buffer) if end is None else end
    while position < stop:
        if allow_partial and is_cut_off(buffer, position, stop):
            return
        batch = BatchView(buffer, position, stop)
        yield batch
        position += batch.size_bytes


def is_cut_off(buffer: Buffer, position: int, end: int) -> bool:
    """Whether a batch or message starts at ``position`` but does not end by ``end``."""
    available = end - position
    if available < at.UP_TO_MAGIC_BYTES:
        return True
    size: int = at.INT32.unpack_from(buffer, position + at.SIZE_AT)[0]
    return size > available - at.LOG_OVERHEAD_BYTES
