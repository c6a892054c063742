"""PlainRewriting: the methods of RecordChecks that rewrite records, in plain Python.

The broker rewrites the records of a produced batch that it cannot store as they arrived. A first
pass over the records finds faulty records, and the size of the rewritten ones. A second pass writes
the records, after 61 bytes in which the caller writes a batch header.
"""

from collections.abc import Iterable

from klog_broker.log.validation.record_checks import (
    NAMED_FAULTS,
    Allowed,
    Fault,
    RecordSummary,
    Wrapper,
    message_error,
)
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import is_cut_off
from pyspark_klog.records.kernels import status
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_section import (
    append_record,
    read_records,
    record_size,
    wrap_int64,
)
from pyspark_klog.records.record_sets import read_entry_head


class PlainRewriting:
    """Rewrites the records or messages of one batch, in plain Python, record by record.

    The methods ``look_at_...`` are the first pass: they find faulty records, and the size of the
    rewritten records. The methods ``write_...`` are the second pass: they write the records.
    """

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
        tally = _Tally(allowed)
        records = _records(section, start, end, count, base_timestamp_ms, claims_append_time)
        for record in records:
            tally.add(record, record.offset, claims_append_time, base_timestamp_ms)
        return tally.look(end)._replace(last_offset=-1)

    def write_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        found: RecordSummary,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview:
        records = _records(section, start, end, found.record_count, 0, claims_append_time)
        return _written(records, 0)

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> RecordSummary:
        tally = _Tally(allowed)
        position = 0
        while position < len(buffer):
            if is_cut_off(buffer, position, len(buffer)):
                if wrapper is None:
                    break
                raise message_error(status.INNER_CUT_OFF, position, tally.count, allowed)
            head = read_entry_head(buffer, position)
            is_whole = head.size_bytes <= len(buffer) - position
            if head.magic == at.MAGIC_V2 and is_whole:
                raise message_error(status.MIXED_FORMATS, position, tally.count, allowed)
            entry = LegacyView(buffer, position)
            if wrapper is None and entry.size_bytes > allowed.max_message_bytes:
                raise message_error(status.MESSAGE_TOO_LARGE, position, tally.count, allowed)
            entry.check_crc()
            wrong = status.OK
            if wrapper is not None and entry.magic != wrapper.magic:
                wrong = status.MIXED_FORMATS
            elif entry.attributes & at.CODEC_MASK:
                wrong = status.COMPRESSED_AMONG_OTHERS
            elif tally.count >= max_records:
                wrong = status.TOO_MANY_RECORDS
            if wrong != status.OK:
                raise message_error(wrong, position, tally.count, allowed)
            claims = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
            if wrapper is not None:
                claims = wrapper.timestamp_ms is not None
            record = _with_time_of(wrapper, next(entry.records()))
            tally.add(record, entry.offset, claims, tally.first_timestamp_ms)
            position += entry.size_bytes
        return tally.look(position)._replace(in_order=False)

    def write_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, found: RecordSummary
    ) -> bytearray | memoryview:

        def records() -> Iterable[Record]:
            position = 0
            while position < found.end_position:
                entry = LegacyView(buffer, position)
                yield _with_time_of(wrapper, next(entry.records()))
                position += entry.size_bytes

        return _written(records(), found.first_timestamp_ms)


def _records(
    section: Buffer, start: int, end: int, count: int, base_timestamp_ms: int, same_timestamp: bool
) -> Iterable[Record]:
    with memoryview(section) as view:
        data = bytes(view[start:end])
    return read_records(
        data,
        count,
        base_offset=0,
        base_timestamp_ms=base_timestamp_ms,
        timestamp_type=(
            TimestampType.LOG_APPEND_TIME if same_timestamp else TimestampType.CREATE_TIME
        ),
        log_append_time_ms=base_timestamp_ms,
    )


def _with_time_of(wrapper: Wrapper | None, record: Record) -> Record:
    if wrapper is None or wrapper.timestamp_ms is None:
        return record
    return record._replace(timestamp_ms=wrapper.timestamp_ms)


def _written(records: Iterable[Record], base_timestamp_ms: int) -> bytearray:
    out = bytearray(at.BATCH_HEADER_BYTES)
    for number, record in enumerate(records):
        delta = wrap_int64(record.timestamp_ms - base_timestamp_ms)
        append_record(out, number, delta, record.key, record.value, record.headers)
    return out


class _Tally:
    """Sums up the records of one batch or message set in a RecordSummary (their count, size,
    timestamps and faults): call ``add`` for each record."""

    def __init__(self, allowed: Allowed) -> None:
        self.count = 0
        self.first_timestamp_ms: int | None = None
        self._allowed = allowed
        self._size_bytes = 0
        self._in_order = True
        self._least_ms = at.INT64_MAX
        self._max_ms = at.NO_TIMESTAMP_MS
        self._key_faults = self._timestamp_faults = 0
        self._last_offset = -1
        self._faults: list[Fault] = []

    def add(
        self, record: Record, offset: int, claims_append_time: bool, base_timestamp_ms: int | None
    ) -> None:
        timestamp_ms = record.timestamp_ms
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = timestamp_ms
        base_ms = timestamp_ms if base_timestamp_ms is None else base_timestamp_ms
        delta = wrap_int64(timestamp_ms - base_ms)
        self._in_order &= offset == self.count
        self._last_offset = offset
        self._least_ms = min(self._least_ms, timestamp_ms)
        self._max_ms = max(self._max_ms, timestamp_ms)
        self._size_bytes += record_size(self.count, delta, record.key, record.value, record.headers)
        allowed = self._allowed
        if allowed.key_required and record.key is None:
            self._key_faults += 1
            self._note(status.MISSES_KEY, timestamp_ms)
        elif allowed.is_append_time or timestamp_ms == at.NO_TIMESTAMP_MS:
            if claims_append_time:
                self._timestamp_faults += 1
                self._note(status.CLAIMS_APPEND_TIME, timestamp_ms)
        elif not allowed.earliest_ms <= timestamp_ms <= allowed.latest_ms:
            self._timestamp_faults += 1
            self._note(status.TIMESTAMP_OUT_OF_RANGE, timestamp_ms)
        self.count += 1

    def _note(self, kind: int, timestamp_ms: int) -> None:
        if len(self._faults) < NAMED_FAULTS:
            self._faults.append(Fault(self.count, kind, timestamp_ms))

    def look(self, end_position: int) -> RecordSummary:
        first_ms = self.first_timestamp_ms
        return RecordSummary(
            end_position,
            self.count,
            self._size_bytes,
            self._in_order,
            at.NO_TIMESTAMP_MS if first_ms is None else first_ms,
            self._least_ms,
            self._max_ms,
            self._key_faults,
            self._timestamp_faults,
            self._last_offset,
            tuple(self._faults),
        )
