"""Writes records anew that are not stored as they came: in Python, record by record.

A first pass over the records finds all their faults, and how much room they take; a second one
writes them behind the room of a header. As with the checks, plain Python needs no numba, and the
kernels take over (rewriting_kernels.py); a property test shows that both give the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

from klog_broker.log.errors import RecordTooLarge
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import is_cut_off
from pyspark_klog.records.errors import RecordsError
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
from pyspark_klog.records.sets import look

MAX_RECORDS = 4 * 1024 * 1024
"""How many records one compressed batch, or a set of old messages, may have. A batch of 1 MiB with
the usual record numbers holds about half as many of the smallest records, in the best codec."""

NAMED_FAULTS = 100
"""How many faulty records an answer names (KIP-467); the others are only counted."""


class Allowed(NamedTuple):
    """The limits for single records."""

    earliest_ms: int
    latest_ms: int
    is_append_time: bool  # the broker sets the time, so that any timestamp is allowed
    key_required: bool
    max_message_bytes: int


class Fault(NamedTuple):
    """A record's fault; ``kind``: MISSES_KEY, TIMESTAMP_OUT_OF_RANGE or CLAIMS_APPEND_TIME."""

    record: int
    kind: int
    timestamp_ms: int


class Look(NamedTuple):
    """The result of a first pass: how many records there are, how much room they take when they are
    written anew, and their faults."""

    end_position: int
    record_count: int
    size_bytes: int
    in_order: bool  # of records: whether each one's offset delta is its number
    first_timestamp_ms: int
    least_timestamp_ms: int
    max_timestamp_ms: int
    key_faults: int
    timestamp_faults: int
    last_offset: int  # of messages: the last one's, as stored
    faults: tuple[Fault, ...]  # the first NAMED_FAULTS ones


class Wrapper(NamedTuple):
    """The compressed message that messages were in."""

    magic: int
    # The timestamp of all messages in the wrapper, if it claims append time.
    timestamp_ms: int | None


class PlainRewriting:
    """The two passes in Python, record by record."""

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
    ) -> Look:
        """``section[start:end]`` must be exactly ``count`` well-formed records (CorruptRecords),
        with any offset deltas. If the batch claims append time each record has
        ``base_timestamp_ms``."""
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
        found: Look,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview:
        """The same records numbered from 0, behind 61 bytes of room; their timestamp deltas stay,
        or are 0 if the batch claims append time."""
        records = _records(section, start, end, found.record_count, 0, claims_append_time)
        return _written(records, 0)

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> Look:
        """``buffer`` must have only messages of formats 0 and 1, with right CRCs, uncompressed, at
        most ``max_records``. Without a wrapper a message that is cut off at the end is ignored.

        Raises CorruptRecords, InvalidRecords, DecompressedTooLarge, RecordTooLarge.
        """
        tally = _Tally(allowed)
        position = 0
        while position < len(buffer):
            if is_cut_off(buffer, position, len(buffer)):
                if wrapper is None:
                    break
                raise message_error(status.INNER_CUT_OFF, position, tally.count, allowed)
            head = look(buffer, position)
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
        self, buffer: Buffer, wrapper: Wrapper | None, found: Look
    ) -> bytearray | memoryview:
        """The same messages as records numbered from 0, behind 61 bytes of room. Their timestamps
        count from the first one's."""

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
    """Sums up the first pass, record by record."""

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

    def look(self, end_position: int) -> Look:
        first_ms = self.first_timestamp_ms
        return Look(
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


def message_error(
    wrong: int, position: int, number: int, allowed: Allowed
) -> RecordsError | RecordTooLarge:
    """The exception for a message's fault, by the fault's status."""
    where = f"message {number} of the set, at byte {position}"
    if wrong == status.MESSAGE_TOO_LARGE:
        return RecordTooLarge(f"{where}, max.message.bytes is {allowed.max_message_bytes}")
    return status.error_for(wrong, where)
