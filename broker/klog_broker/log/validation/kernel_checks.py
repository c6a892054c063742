"""KernelChecks: the implementation of RecordChecks (which scans batches, and validates and rewrites
records) in compiled code."""

from functools import cache
from typing import Any

from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.plain_checks import scan_rows
from klog_broker.log.validation.record_checks import (
    NotInOrder,
    RecordChecks,
    RecordNotAllowed,
    ScanResult,
    WalkResult,
)
from klog_broker.log.validation.rewriting_kernels import KernelRewriting
from pyspark_klog.records.layout import Buffer

_TABLE_ROWS = 16_384
# The size of the smallest batch or message, a v0 message without key and value. The scan kernel
# writes a row for each batch that it finds in a buffer, so its table needs at most as many rows as
# such messages fit into the buffer.
_LEAST_ENTRY_BYTES = 26
# How many batches at the beginning of a buffer are scanned one by one in Python, because numpy
# takes 25 us for a table of one row. A follower that is not behind receives one batch at a time.
_FEW_ROWS = 4


class KernelChecks(KernelRewriting):
    """RecordChecks (scans batches, and validates and rewrites records) in compiled code. The first
    instance imports numba, and compiles the kernels that are not in the kernel cache on the disk.
    All threads of all brokers in the process can share one instance, because instances have no
    state."""

    work_per_record = 2

    def __init__(self) -> None:
        super().__init__()
        import numpy as np

        from pyspark_klog.records.kernels import record_validation, scan, status

        self._np = np
        self._scan = scan
        self._validation = record_validation
        self._status = status

    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> ScanResult:
        table, position, is_partial = self._table_of(buffer, start, end, check_crc)
        return ScanResult([BatchRow(*row) for row in table.tolist()], position, is_partial)

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        rows, position, is_partial = scan_rows(
            buffer, 0, len(buffer), _FEW_ROWS, check_crc=check_crc
        )
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
    ) -> WalkResult:
        data = self._np.frombuffer(section, dtype=self._np.uint8)
        data.flags.writeable = False
        record_validation = self._validation
        result = self._np.empty(record_validation.RESULT_FIELDS, dtype=self._np.int64)
        status = record_validation.validate_records(
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
            return WalkResult(
                int(result[record_validation.RESULT_MAX_TIMESTAMP_MS]),
                int(result[record_validation.RESULT_MAX_TIMESTAMP_RECORD]),
            )
        where = f"record {int(result[record_validation.RESULT_RECORD])} of the batch"
        error = self._status.error_for(status, where)
        if status == self._status.OFFSET_DELTA_NOT_INDEX:
            raise NotInOrder(str(error))
        if status in (self._status.MISSING_KEY, self._status.TIMESTAMP_NOT_ALLOWED):
            raise RecordNotAllowed(str(error))
        raise error


@cache
def kernel_checks() -> RecordChecks:
    """Return the one KernelChecks of the process. Call this function in an event loop only if the
    kernel cache on the disk has the compiled kernels, because compiling takes long."""
    return KernelChecks()
