"""KernelRewriting: the methods of RecordChecks that rewrite records, in code compiled by numba."""

from typing import Any

from klog_broker.log.validation.record_checks import (
    NAMED_FAULTS,
    Allowed,
    Fault,
    RecordSummary,
    Wrapper,
    message_error,
)
from pyspark_klog.records import layout as at
from pyspark_klog.records.kernels import status
from pyspark_klog.records.layout import Buffer


class KernelRewriting:
    """Rewrites the records or messages of one batch, in code compiled by numba.

    The methods ``look_at_...`` are the first pass: they find faulty records, and the size of the
    rewritten records. The methods ``write_...`` are the second pass: they write the records. An
    instance has no state that calls change.
    """

    def __init__(self) -> None:
        import numpy as np

        from pyspark_klog.records.kernels import messages, rewriting

        self._np = np
        self._rewriting = rewriting
        self._messages = messages

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
    ) -> RecordSummary:
        faults, result = self._outputs()
        untimed = base_timestamp_ms == at.NO_TIMESTAMP_MS
        earliest_ms, latest_ms = allowed.earliest_ms, allowed.latest_ms
        if allowed.is_append_time:
            earliest_ms, latest_ms = -at.INT64_MAX - 1, at.INT64_MAX
        wrong = self._rewriting.measure_records(
            self._bytes_of(section),
            start,
            end,
            count,
            base_timestamp_ms,
            int(claims_append_time),
            earliest_ms,
            latest_ms,
            int(claims_append_time and (allowed.is_append_time or untimed)),
            int(allowed.key_required),
            faults,
            result,
        )
        if wrong != status.OK:
            number = int(result[self._rewriting.MEASURED_RECORD])
            raise status.error_for(wrong, f"record {number} of the batch")
        return self._look(faults, result)

    def write_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        found: RecordSummary,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview:
        out = self._room_for(found)
        self._rewriting.write_records(
            self._bytes_of(section),
            start,
            end,
            found.record_count,
            int(claims_append_time),
            out,
            at.BATCH_HEADER_BYTES,
        )
        return memoryview(out)

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> RecordSummary:
        faults, result = self._outputs()
        of_all_ms = None if wrapper is None else wrapper.timestamp_ms
        wrong = self._messages.measure_messages(
            self._bytes_of(buffer),
            0,
            len(buffer),
            -1 if wrapper is None else wrapper.magic,
            int(of_all_ms is not None),
            of_all_ms or 0,
            allowed.earliest_ms,
            allowed.latest_ms,
            int(allowed.is_append_time),
            int(allowed.key_required),
            allowed.max_message_bytes if wrapper is None else at.INT64_MAX,
            max_records,
            faults,
            result,
        )
        if wrong != status.OK:
            position = int(result[self._rewriting.MEASURED_POSITION])
            number = int(result[self._rewriting.MEASURED_RECORD])
            raise message_error(wrong, position, number, allowed)
        return self._look(faults, result)

    def write_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, found: RecordSummary
    ) -> bytearray | memoryview:
        out = self._room_for(found)
        self._messages.write_messages(
            self._bytes_of(buffer),
            0,
            found.end_position,
            int(wrapper is not None and wrapper.timestamp_ms is not None),
            found.first_timestamp_ms,
            out,
            at.BATCH_HEADER_BYTES,
        )
        return memoryview(out)

    def _bytes_of(self, buffer: Buffer) -> Any:
        data = self._np.frombuffer(buffer, dtype=self._np.uint8)
        data.flags.writeable = False
        return data

    def _room_for(self, found: RecordSummary) -> Any:
        # empty() writes no memory, so the operating system allocates the pages only when the
        # compiled kernel writes the records. The kernel runs without the GIL, so other threads run
        # meanwhile.
        return self._np.empty(at.BATCH_HEADER_BYTES + found.size_bytes, self._np.uint8)

    def _outputs(self) -> tuple[Any, Any]:
        np, columns = self._np, self._rewriting.FAULT_COLUMNS
        faults = np.empty(NAMED_FAULTS * columns, np.int64)
        return faults, np.empty(self._rewriting.MEASURED_FIELDS, np.int64)

    def _look(self, faults: Any, result: Any) -> RecordSummary:
        rewriting = self._rewriting
        fields = result.tolist()
        keys = fields[rewriting.MEASURED_KEY_FAULTS]
        timestamps = fields[rewriting.MEASURED_TIMESTAMP_FAULTS]
        named = min(keys + timestamps, NAMED_FAULTS)
        rows = faults[: named * rewriting.FAULT_COLUMNS].reshape(named, rewriting.FAULT_COLUMNS)
        return RecordSummary(
            fields[rewriting.MEASURED_POSITION],
            fields[rewriting.MEASURED_RECORD],
            fields[rewriting.MEASURED_SIZE_BYTES],
            bool(fields[rewriting.MEASURED_IN_ORDER]),
            fields[rewriting.MEASURED_FIRST_TIMESTAMP_MS],
            fields[rewriting.MEASURED_LEAST_TIMESTAMP_MS],
            fields[rewriting.MEASURED_MAX_TIMESTAMP_MS],
            keys,
            timestamps,
            fields[rewriting.MEASURED_LAST_OFFSET],
            tuple(Fault(*row) for row in rows.tolist()),
        )
