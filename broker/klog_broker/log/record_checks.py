"""Checks of batches and their records, in two implementations.

Plain Python needs no numba and serves from the first moment; the kernels take over once they are
loaded (``LogManager.checks``). Both give the same result for the same bytes (a property test).
"""

from functools import cache
from typing import Any, NamedTuple, Protocol

from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.digests import Digest
from klog_broker.log.rewriting import (
    Allowed,
    Look,
    PlainRewriting,
    Wrapper,
)
from klog_broker.log.rewriting_kernels import KernelRewriting
from pyspark_klog.records import layout as at
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_section import read_records
from pyspark_klog.records.sets import look

_TABLE_ROWS = 16_384
# No batch or message is shorter (v0 without key and value): this bounds the rows of a table.
_LEAST_ENTRY_BYTES = 26
_PLAIN_ROWS = 4_096
# So many batches are looked at one by one before tables are made: numpy takes 25 us for a table of
# one row. A follower that is not behind gets a batch at a time.
_FEW_ROWS = 4
# The count of a v0 or v1 wrapper message, which its header does not tell.
UNKNOWN_COUNT = -1


class Scan(NamedTuple):
    """The result of a scan: good batches, and the end of the last one."""

    rows: list[BatchRow]
    end_position: int
    # Whether the scan must go on from end_position: it reached neither the end nor a fault.
    is_partial: bool


class Walk(NamedTuple):
    """The result of a walk over a batch's records, if all of them are good."""

    max_timestamp_ms: int
    max_timestamp_record: int  # the first record that has it, by its number in the batch


class NotInOrder(InvalidRecords):
    """A record's offset delta is not its number in the batch."""


class RecordNotAllowed(InvalidRecords):
    """A record lacks its key or has a timestamp out of bounds; ``look_at_records`` finds all."""


class RecordChecks(Protocol):
    """See the functions' docstrings in :class:`PlainChecks` and :class:`PlainRewriting`."""

    work_per_record: int
    """The cost of reading a record, in bytes that could be inflated in the same time."""

    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> Scan: ...

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None: ...

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
    ) -> Walk: ...

    def look_at_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        count: int,
        base_timestamp_ms: int,
        allowed: Allowed,
        *,
        claims_append_time: bool,
    ) -> Look: ...

    def write_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        found: Look,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview: ...

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> Look: ...

    def write_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, found: Look
    ) -> bytearray | memoryview: ...


class PlainChecks(PlainRewriting):
    """The checks in Python, batch by batch and record by record."""

    work_per_record = 128

    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> Scan:
        """Walk batches and messages, checking length, magic, CRC and counts of each.

        Stops at the first one that is bad or cut off by ``end``, or after some thousands.
        """
        return _scan(buffer, start, end, _PLAIN_ROWS, check_crc=check_crc)

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        """Scan all of ``buffer``, which lies at ``shift`` in its file, for a digest."""
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
    ) -> Walk:
        """Check that ``section[start:end]`` is exactly ``count`` well-formed records, numbered from
        0, with keys if required, and with timestamps of -1 or within the bounds.

        Raises CorruptRecords, NotInOrder or RecordNotAllowed.
        """
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
                raise RecordNotAllowed(f"record {number} has timestamp {timestamp_ms}")
            if timestamp_ms > max_timestamp_ms:
                max_timestamp_ms, max_timestamp_record = timestamp_ms, number
        return Walk(max_timestamp_ms, max_timestamp_record)


def _scan(buffer: Buffer, start: int, end: int, most_rows: int, *, check_crc: bool) -> Scan:
    rows: list[BatchRow] = []
    position = start
    with memoryview(buffer) as view:
        try:
            while position < end:
                if len(rows) >= most_rows:
                    return Scan(rows, position, True)
                row = _good_row(view, position, end, check_crc=check_crc)
                if row is None:
                    break
                rows.append(row)
                position += row.size_bytes
        except CorruptRecords:
            pass
    return Scan(rows, position, False)


def _good_row(view: memoryview, position: int, end: int, *, check_crc: bool) -> BatchRow | None:
    """The batch at ``position``; None if it is cut off by ``end``. Raises CorruptRecords."""
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
        raise CorruptRecords(f"the batch at byte {position} ends at offset {row.last_offset}")
    if row.record_count < 0:
        raise CorruptRecords(f"the batch at byte {position} counts {row.record_count} records")
    return row


def _legacy_row(view: memoryview, position: int, end: int, *, check_crc: bool) -> BatchRow | None:
    if look(view, position).size_bytes > end - position:
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


def header_row(buffer: Buffer, position: int) -> BatchRow:
    """The row of the v2 batch whose header is at ``position``; checks nothing."""
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        _,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = at.BATCH_HEADER.unpack_from(buffer, position)
    return BatchRow(
        position,
        at.LOG_OVERHEAD_BYTES + length,
        magic,
        attributes,
        base_offset,
        base_offset + last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        record_count,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
    )


class KernelChecks(KernelRewriting):
    """The checks in compiled code. The first one made imports numba, and compiles if the kernels'
    cache is cold.

    It has no state: any thread of any broker in the process may use it at any time.
    """

    work_per_record = 2

    def __init__(self) -> None:
        super().__init__()
        import numpy as np

        from pyspark_klog.records.kernels import scan, status, walk

        self._np = np
        self._scan = scan
        self._walk = walk
        self._status = status

    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> Scan:
        """As :meth:`PlainChecks.scan`."""
        table, position, is_partial = self._table_of(buffer, start, end, check_crc)
        return Scan([BatchRow(*row) for row in table.tolist()], position, is_partial)

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        """As :meth:`PlainChecks.scan_into`."""
        rows, position, is_partial = _scan(buffer, 0, len(buffer), _FEW_ROWS, check_crc=check_crc)
        digest.add_rows(rows, shift, buffer)
        while is_partial and not digest.is_cut:
            table, position, is_partial = self._table_of(buffer, position, len(buffer), check_crc)
            digest.add_table(table, shift, buffer)

    def _table_of(
        self, buffer: Buffer, start: int, end: int, check_crc: bool
    ) -> tuple[Any, int, bool]:
        np, scan = self._np, self._scan
        data = np.frombuffer(buffer, dtype=np.uint8)
        data.flags.writeable = False
        rows = min(_TABLE_ROWS, (end - start) // _LEAST_ENTRY_BYTES + 1)
        table = np.empty(rows * scan.TABLE_COLUMNS, dtype=np.int64)
        state = np.empty(scan.STATE_FIELDS, dtype=np.int64)
        status = scan.scan_batches(data, start, end, int(check_crc), end - start, table, state)
        found = int(state[scan.STATE_BATCHES])
        used = table[: found * scan.TABLE_COLUMNS].reshape(found, scan.TABLE_COLUMNS)
        return used, int(state[scan.STATE_POSITION]), status == self._status.FULL

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
    ) -> Walk:
        """As :meth:`PlainChecks.walk`."""
        data = self._np.frombuffer(section, dtype=self._np.uint8)
        data.flags.writeable = False
        walk = self._walk
        result = self._np.empty(walk.RESULT_FIELDS, dtype=self._np.int64)
        status = walk.walk_records(
            data,
            start,
            end,
            count,
            base_timestamp_ms,
            earliest_ms,
            latest_ms,
            int(key_required),
            result,
        )
        if status == self._status.OK:
            return Walk(
                int(result[walk.RESULT_MAX_TIMESTAMP_MS]),
                int(result[walk.RESULT_MAX_TIMESTAMP_RECORD]),
            )
        where = f"record {int(result[walk.RESULT_RECORD])} of the batch"
        error = self._status.error_for(status, where)
        if status == self._status.OFFSET_DELTA_NOT_INDEX:
            raise NotInOrder(str(error))
        if status in (self._status.MISSING_KEY, self._status.TIMESTAMP_NOT_ALLOWED):
            raise RecordNotAllowed(str(error))
        raise error


@cache
def kernel_checks() -> RecordChecks:
    """The compiled checks, made once for all brokers, because they have no state. To be called in
    the loop only if the kernels' cache is warm."""
    return KernelChecks()
