"""Builds v2 batches record by record, for clients, coordinators and tools."""

from collections.abc import Sequence

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.errors import BatchTooLarge, InvalidRecords
from pyspark_klog.records.layout import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    CRC_AT,
    CRC_START_AT,
    DELETE_HORIZON_BIT,
    INT32_MAX,
    INT64_MAX,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP_MS,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32,
)
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_section import (
    append_plain_record,
    append_record,
    record_size,
    wrap_int64,
)


class BatchBuilder:
    """Collects records and writes them as one v2 batch.

    ``max_bytes`` bounds :attr:`size_bytes`, the size before compression. ``log_append_time_ms`` is
    required with LOG_APPEND_TIME, and is then the timestamp of every record.
    ``delete_horizon_ms`` sets the delete horizon and its bit in the attributes (KIP-534).
    """

    def __init__(
        self,
        base_offset: int = 0,
        codec: Codec = Codec.NONE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        max_bytes: int | None = None,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
        compression_level: int | None = None,
    ) -> None:
        if timestamp_type is TimestampType.NO_TIMESTAMP:
            raise ValueError("a v2 batch has a timestamp type: CREATE_TIME or LOG_APPEND_TIME")
        if (timestamp_type is TimestampType.LOG_APPEND_TIME) != (log_append_time_ms is not None):
            raise ValueError("log_append_time_ms must be set with LOG_APPEND_TIME, and only then")
        self.base_offset = base_offset
        self.codec = codec
        self.timestamp_type = timestamp_type
        self.record_count = 0
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._leader_epoch = partition_leader_epoch
        self._log_append_time_ms = log_append_time_ms
        self._compression_level = compression_level
        self._max_bytes = max_bytes
        self._base_timestamp_ms = delete_horizon_ms
        self._max_timestamp_ms = NO_TIMESTAMP_MS
        self._last_offset = base_offset - 1
        self._section = bytearray()
        self._attributes = (
            codec
            | (TIMESTAMP_TYPE_BIT if log_append_time_ms is not None else 0)
            | (TRANSACTIONAL_BIT if is_transactional else 0)
            | (CONTROL_BIT if is_control else 0)
            | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
        )

    @property
    def size_bytes(self) -> int:
        """Size of the batch so far, before compression; 61 (the header) without a record."""
        return BATCH_HEADER_BYTES + len(self._section)

    @property
    def next_offset(self) -> int:
        """The offset of the next record, if ``append`` is called without an offset."""
        return self._last_offset + 1

    def has_room_for(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Whether :meth:`append` with the next offset would stay within ``max_bytes``."""
        size = record_size(
            self.next_offset - self.base_offset,
            wrap_int64(timestamp_ms - self._base_timestamp(timestamp_ms)),
            key,
            value,
            headers,
        )
        return self.size_bytes + size <= self._limit_bytes

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]] = (),
        offset: int | None = None,
    ) -> int:
        """Add a record and return its offset; offsets must rise, and gaps are allowed.

        Raises BatchTooLarge when the record does not fit, and InvalidRecords for an offset or a
        timestamp that the batch cannot hold. After an error the batch is unchanged.
        """
        at = self.next_offset if offset is None else offset
        if not self._last_offset < at <= min(self.base_offset + INT32_MAX, INT64_MAX):
            raise InvalidRecords(
                f"offset {at} in a batch with base offset {self.base_offset} cannot follow offset "
                f"{self._last_offset}: offsets rise, to at most {INT32_MAX} above the base offset"
            )
        if not NO_TIMESTAMP_MS <= timestamp_ms <= INT64_MAX:
            raise InvalidRecords(f"timestamp {timestamp_ms} ms: expected -1 (none) to 2^63 - 1")
        base_timestamp_ms = self._base_timestamp(timestamp_ms)
        size_before = len(self._section)
        append_record(
            self._section,
            at - self.base_offset,
            wrap_int64(timestamp_ms - base_timestamp_ms),
            key,
            value,
            headers,
        )
        if self.size_bytes > self._limit_bytes:
            size = len(self._section) - size_before
            del self._section[size_before:]
            raise BatchTooLarge(
                f"a record of {size} bytes does not fit into a batch of {self.size_bytes} bytes: "
                f"the limit is {self._limit_bytes}"
            )
        self._base_timestamp_ms = base_timestamp_ms
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        self._last_offset = at
        self.record_count += 1
        return at

    def build(self) -> bytes:
        """Return the batch; InvalidRecords if it is empty. `append` may add more records later."""
        if not self.record_count:
            raise InvalidRecords("a batch needs at least one record; append a record first")
        return _assemble(
            base_offset=self.base_offset,
            leader_epoch=self._leader_epoch,
            attributes=self._attributes,
            last_offset_delta=self._last_offset - self.base_offset,
            timestamps_ms=(self._first_timestamp_ms(), self._final_max_timestamp_ms()),
            producer=self._producer,
            record_count=self.record_count,
            section=compress(self.codec, self._section, level=self._compression_level),
        )

    def _base_timestamp(self, timestamp_ms: int) -> int:
        return timestamp_ms if self._base_timestamp_ms is None else self._base_timestamp_ms

    def _first_timestamp_ms(self) -> int:
        return NO_TIMESTAMP_MS if self._base_timestamp_ms is None else self._base_timestamp_ms

    def _final_max_timestamp_ms(self) -> int:
        if self._log_append_time_ms is None:
            return self._max_timestamp_ms
        return self._log_append_time_ms

    @property
    def _limit_bytes(self) -> int:
        # Without max_bytes the limit is the largest batch that the length field can express.
        most = INT32_MAX + LOG_OVERHEAD_BYTES
        return most if self._max_bytes is None else min(self._max_bytes, most)


def plain_batch(
    records: Sequence[tuple[bytes | None, bytes | None]], timestamp_ms: int
) -> bytearray:
    """Return one uncompressed batch of (key, value) records that all have ``timestamp_ms``.

    The batch has no producer id. The result equals that of :class:`BatchBuilder`, in a fraction of
    the time.
    """
    batch = bytearray(BATCH_HEADER_BYTES)
    for offset_delta, (key, value) in enumerate(records):
        append_plain_record(batch, offset_delta, key, value)
    finish_plain_batch(batch, len(records), timestamp_ms)
    return batch


def finish_plain_batch(batch: bytearray, record_count: int, timestamp_ms: int) -> None:
    """Fill in the header of ``batch``, so that it equals a batch of :func:`plain_batch`.

    ``batch`` consists of 61 free bytes for the header and of ``record_count`` records that
    :func:`append_plain_record` wrote, with the offset deltas 0, 1, 2 ...
    """
    if not record_count:
        raise InvalidRecords("a batch needs at least one record; append a record first")
    length = len(batch) - LOG_OVERHEAD_BYTES
    if length > INT32_MAX:
        raise BatchTooLarge(
            f"the batch length {length} exceeds the maximum of its field, {INT32_MAX}"
        )
    BATCH_HEADER.pack_into(
        batch,
        0,
        0,
        length,
        NO_LEADER_EPOCH,
        MAGIC_V2,
        0,
        Codec.NONE,
        record_count - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        record_count,
    )
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START_AT:]))


def compressed_batch(
    plain: bytearray,
    record_count: int,
    timestamp_ms: int,
    codec: Codec,
    level: int | None = None,
) -> bytearray:
    """Return a copy of the uncompressed batch ``plain`` with its records compressed.

    ``plain`` consists of 61 bytes, which are ignored, and of ``record_count`` records that
    :func:`append_plain_record` wrote. The function writes a new header.
    """
    if not record_count:
        raise InvalidRecords("a batch needs at least one record; append a record first")
    section = compress(codec, plain[BATCH_HEADER_BYTES:], level=level)
    return bytearray(
        _assemble(
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            attributes=codec,
            last_offset_delta=record_count - 1,
            timestamps_ms=(timestamp_ms, timestamp_ms),
            producer=(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
            record_count=record_count,
            section=section,
        )
    )


def _assemble(
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    timestamps_ms: tuple[int, int],
    producer: tuple[int, int, int],
    record_count: int,
    section: bytes,
) -> bytes:
    batch = bytearray(BATCH_HEADER_BYTES) + section
    write_header(
        batch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        timestamps_ms=timestamps_ms,
        producer=producer,
        record_count=record_count,
    )
    return bytes(batch)


def write_header(
    batch: bytearray | memoryview,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    timestamps_ms: tuple[int, int],
    producer: tuple[int, int, int],
    record_count: int,
) -> None:
    """Fill in the header with its CRC: the first 61 bytes of ``batch``, before the records.

    ``timestamps_ms`` is (base timestamp, max timestamp) and ``producer`` is (id, epoch, base
    sequence).
    """
    length = len(batch) - LOG_OVERHEAD_BYTES
    if length > INT32_MAX:
        raise BatchTooLarge(
            f"the batch length {length} exceeds the maximum of its field, {INT32_MAX}"
        )
    BATCH_HEADER.pack_into(
        batch,
        0,
        base_offset,
        length,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        *timestamps_ms,
        *producer,
        record_count,
    )
    BatchView(batch).update_crc()
