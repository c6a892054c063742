"""PlainChecks: the implementation of RecordChecks (which scans batches, and validates and rewrites
records) in plain Python."""

from klog_broker.log.batch_rows import UNKNOWN_COUNT, BatchRow, header_row
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.record_checks import (
    NotInOrder,
    RecordNotAllowed,
    ScanResult,
    WalkResult,
)
from klog_broker.log.validation.rewriting import PlainRewriting
from pyspark_klog.records import layout as at
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_section import read_records
from pyspark_klog.records.record_sets import read_entry_head

_PLAIN_ROWS = 4_096


class PlainChecks(PlainRewriting):
    """RecordChecks (scans batches, and validates and rewrites records) in plain Python, batch by
    batch and record by record."""

    work_per_record = 128

    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> ScanResult:
        return scan_rows(buffer, start, end, _PLAIN_ROWS, check_crc=check_crc)

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        position, is_partial = 0, True
        while is_partial and not digest.is_cut:
            rows, position, is_partial = self.scan(
                buffer, position, len(buffer), check_crc=check_crc
            )
            digest.add_rows(rows, shift, buffer)

    def walk(
        self,
        section: Buffer,
        start: int,
        end: int,
        count: int,
        base_timestamp_ms: int,
        earliest_ms: int,
        latest_ms: int,
        key_required: bool,
    ) -> WalkResult:
        with memoryview(section) as view:
            data = bytes(view[start:end])
        records = read_records(
            data,
            count,
            base_offset=0,
            base_timestamp_ms=base_timestamp_ms,
            timestamp_type=TimestampType.CREATE_TIME,
            log_append_time_ms=at.NO_TIMESTAMP_MS,
        )
        max_timestamp_ms, max_timestamp_record = at.NO_TIMESTAMP_MS, 0
        for number, record in enumerate(records):
            timestamp_ms = record.timestamp_ms
            if record.offset != number:
                raise NotInOrder(f"record {number} of the batch has offset delta {record.offset}")
            if key_required and record.key is None:
                raise RecordNotAllowed(f"record {number} of the batch has no key")
            if timestamp_ms != -1 and not earliest_ms <= timestamp_ms <= latest_ms:
                raise RecordNotAllowed(
                    f"record {number} of the batch has a timestamp out of range: {timestamp_ms}"
                )
            if timestamp_ms > max_timestamp_ms:
                max_timestamp_ms, max_timestamp_record = timestamp_ms, number
        return WalkResult(max_timestamp_ms, max_timestamp_record)


def scan_rows(
    buffer: Buffer, start: int, end: int, most_rows: int, *, check_crc: bool
) -> ScanResult:
    """Check the batches in ``buffer[start:end]``, but at most ``most_rows`` batches. Returns the
    header fields of each (a BatchRow) and the position after the last good batch, as
    RecordChecks.scan does."""
    rows: list[BatchRow] = []
    position = start
    with memoryview(buffer) as view:
        try:
            while position < end:
                if len(rows) >= most_rows:
                    return ScanResult(rows, position, True)
                row = _good_row(view, position, end, check_crc=check_crc)
                if row is None:
                    break
                rows.append(row)
                position += row.size_bytes
        except CorruptRecords:
            pass
    return ScanResult(rows, position, False)


def _good_row(view: memoryview, position: int, end: int, *, check_crc: bool) -> BatchRow | None:
    """Return the header fields of the batch at ``position``, or None if ``end`` cuts off the batch.
    Raises CorruptRecords if the batch is bad."""
    if end - position < at.UP_TO_MAGIC_BYTES:
        return None
    if view[position + at.MAGIC_AT] != at.MAGIC_V2:
        return _legacy_row(view, position, end, check_crc=check_crc)
    length = at.INT32.unpack_from(view, position + at.BATCH_LENGTH_AT)[0]
    if length > end - position - at.LOG_OVERHEAD_BYTES:
        return None
    if length < at.MIN_BATCH_LENGTH:
        raise CorruptRecords(f"the batch at byte {position} gives its length as {length}")
    row = header_row(view, position)
    if check_crc:
        with view[position + at.CRC_START_AT : position + row.size_bytes] as covered:
            if crc32c(covered) != at.UINT32.unpack_from(view, position + at.CRC_AT)[0]:
                raise CorruptRecords(f"the batch at byte {position} has a wrong CRC")
    if not row.base_offset <= row.last_offset <= at.INT64_MAX:
        raise CorruptRecords(
            f"the batch at byte {position} has a wrong last offset: {row.last_offset}"
        )
    if row.record_count < 0:
        raise CorruptRecords(
            f"the batch at byte {position} has the impossible count of {row.record_count} records"
        )
    return row


def _legacy_row(view: memoryview, position: int, end: int, *, check_crc: bool) -> BatchRow | None:
    if read_entry_head(view, position).size_bytes > end - position:
        return None
    entry = LegacyView(view, position, end)
    if check_crc:
        entry.check_crc()
    return BatchRow(
        position,
        entry.size_bytes,
        entry.magic,
        entry.attributes,
        entry.offset,
        entry.offset,
        entry.timestamp_ms,
        entry.timestamp_ms,
        UNKNOWN_COUNT if entry.attributes & at.CODEC_MASK else 1,
        at.NO_LEADER_EPOCH,
        at.NO_PRODUCER_ID,
        at.NO_PRODUCER_EPOCH,
        at.NO_SEQUENCE,
    )
