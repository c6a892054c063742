"""Finds records of a log by offset and by timestamp. Changes nothing in the log."""

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from klog_broker.log.errors import ColdRead, LongLookUp, OffsetOutOfRange
from klog_broker.log.read.page_cache import (
    check_index_is_warm,
    check_time_index_is_warm,
    read_into_cache,
)
from klog_broker.log.read.read_results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TimestampOffset,
)
from klog_broker.log.segment.batch_positions import BatchPosition, has_records, max_timestamp_of
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.segment.leader_epochs import LeaderEpochs
from klog_broker.log.segment.segment import Segment
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import LeaderEpoch, Offset, TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.layout import BATCH_HEADER_BYTES, NO_LEADER_EPOCH
from pyspark_klog.records.record_sets import Entry, entry_at
from pyspark_klog.storage.indexes import rows_at_or_below

MAX_RECORDS_SEARCHED_IN_LOOP = 1000
"""A look-up by timestamp runs in a helper thread if it must search a compressed batch, or a batch
with more records than this."""


class SegmentList:
    """The segments of a log, oldest first. Never changed in place, so that a reader can keep using
    its list after the log has replaced the list."""

    __slots__ = ("_bases", "segments")

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def index_for(self, offset: int) -> int:
        """Return the index of the segment that contains ``offset`` if any segment does; 0 for an
        offset before the first segment."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, index: int, log_end_offset: int) -> int:
        """Return the offset at which the segment with this index ends (exclusive)."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset


class LogView(Protocol):
    """The attributes of a log that the functions of this module read. LogState implements this
    protocol."""

    topic_partition: TopicPartition
    segments: SegmentList
    epochs: LeaderEpochs
    log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset


def read_region(
    view: LogView,
    offset: int,
    max_bytes: int,
    *,
    end_offset: int,
    min_one_batch: bool,
    may_block: bool,
) -> tuple[Segment, ReadRegion] | None:
    """Find the batches of one segment that lie before ``end_offset``, beginning with the first
    batch that ends at or after ``offset``. Returns the segment and their region in its .log file,
    or None if there are no such batches.

    The region has at most ``max_bytes``, but with ``min_one_batch`` at least the whole first batch.
    Raises OffsetOutOfRange if ``offset`` is not in [log_start_offset, log_end_offset]. With
    ``may_block=False`` raises ColdRead if the read would wait for the disk.
    """
    if not view.log_start_offset <= offset <= view.log_end_offset:
        raise OffsetOutOfRange(
            f"offset {offset} of {view.topic_partition} is out of range: the log start offset is "
            f"{view.log_start_offset}, the log end offset is {view.log_end_offset}"
        )
    log_end_offset = view.log_end_offset
    end_offset = min(end_offset, log_end_offset)
    if offset >= end_offset:
        return None
    log = view.segments
    segments = log.segments
    for index in range(log.index_for(offset), len(segments)):
        segment = segments[index]
        try:
            if not may_block:
                check_index_is_warm(segment)
            place = find_batch(segment, offset, may_block=may_block)
            if place is None:
                continue
            limit = segment.size_bytes
            if end_offset < log.end_of(index, log_end_offset):
                limit = _position_of_end(segment, end_offset, may_block=may_block)
            wanted = max(max_bytes, place.size_bytes if min_one_batch else 0)
            size = min(limit - place.position, wanted)
            if size <= 0:
                return None
            return segment, segment.region(place.position, size, may_block=may_block)
        except ColdRead:
            size = max(max_bytes, 1)
            raise ColdRead(partial(read_into_cache, segment, offset, size)) from None
    return None


def _position_of_end(segment: Segment, end_offset: int, *, may_block: bool) -> int:
    """Return the position of the first batch whose last offset is not before ``end_offset``;
    without such a batch, the size of the segment."""
    place = find_batch(segment, end_offset, may_block=may_block)
    return segment.size_bytes if place is None else place.position


def region_end_offset(segment: Segment, region: ReadRegion, segment_end_offset: int) -> int:
    """Return an upper bound for the end offset of the batches that begin in ``region``, a byte
    range of the segment's .log file: the end of the first later batch that has an offset index
    entry, or ``segment_end_offset`` if there is no such entry."""
    view, end_position = segment.offset_index.view(), region.position + region.size
    row = rows_at_or_below(len(view), lambda row: view[row].position, end_position - 1)
    return view[row].offset + 1 if row < len(view) else segment_end_offset


# --- searches by timestamp -----------------------------------------------------------------------
def find_offset_for_timestamp(
    view: LogView, timestamp_ms: int, *, may_block: bool
) -> TimestampOffset | None:
    """Return the result of ListOffsets for ``timestamp_ms``, which may be a special value (-1 to
    -6); None if that record is not below the high watermark, or if there is none.

    -5 and -6 ask for tiered storage, which klog lacks: their offset is -1. With ``may_block=False``
    raises ColdRead if the look-up would wait for the disk, and LongLookUp if it would take long.
    """
    if timestamp_ms == LATEST_TIMESTAMP:
        return TimestampOffset(-1, view.high_watermark, view.epochs.latest)
    start = view.log_start_offset
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return TimestampOffset(-1, start, view.epochs.epoch_of(start))
    if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return TimestampOffset(-1, Offset(-1), LeaderEpoch(NO_LEADER_EPOCH))
    if timestamp_ms == MAX_TIMESTAMP:
        found = find_max_timestamp(view.segments, start, may_block=may_block)
    else:
        found = find_timestamp(view.segments, timestamp_ms, start, may_block=may_block)
    return None if found is None or found.offset >= view.high_watermark else found


def find_timestamp(
    log: SegmentList, timestamp_ms: int, log_start_offset: int, *, may_block: bool
) -> TimestampOffset | None:
    """Return the first record from ``log_start_offset`` on whose timestamp is at or after
    ``timestamp_ms``; None without one."""
    try:
        for segment in log.segments:
            if not may_block:
                check_time_index_is_warm(segment)
            if segment.max_timestamp.timestamp_ms < timestamp_ms:
                continue
            if not may_block:
                check_index_is_warm(segment)
            start = segment.time_index.view().lookup(timestamp_ms).offset
            found = _find_from(
                segment,
                max(start, log_start_offset),
                lambda largest_ms: largest_ms >= timestamp_ms,
                log_start_offset,
                may_block=may_block,
            )
            if found is not None:
                return found
    except ColdRead:
        again = partial(find_timestamp, log, timestamp_ms, log_start_offset, may_block=True)
        raise ColdRead(partial(_for_its_pages, again)) from None
    return None


def find_max_timestamp(
    log: SegmentList, log_start_offset: int, *, may_block: bool
) -> TimestampOffset | None:
    """Return the first record that has the largest timestamp of the records from
    ``log_start_offset`` on; None if no record has a timestamp."""
    try:
        segment, largest_ms = None, -1
        for candidate in log.segments:
            if not may_block:
                check_time_index_is_warm(candidate)
            if candidate.max_timestamp.timestamp_ms > largest_ms:
                segment, largest_ms = candidate, candidate.max_timestamp.timestamp_ms
        if segment is None:
            return None
        if not may_block:
            check_index_is_warm(segment)
        found = _find_from(
            segment,
            segment.max_timestamp.offset,
            lambda timestamp_ms: timestamp_ms == largest_ms,
            log_start_offset,
            may_block=may_block,
        )
    except ColdRead:
        again = partial(find_max_timestamp, log, log_start_offset, may_block=True)
        raise ColdRead(partial(_for_its_pages, again)) from None
    if found is not None:
        return found
    # Compaction removed the records with the largest timestamp, or they are before the log start
    # offset. Search the batch headers for the largest timestamp that is left.
    if may_block:
        return _max_timestamp_by_headers(log, log_start_offset)
    search = partial(_max_timestamp_by_headers, log, log_start_offset)
    raise LongLookUp(partial(_or_none, search))


def _max_timestamp_by_headers(log: SegmentList, log_start_offset: int) -> TimestampOffset | None:
    """Return the first record with the largest timestamp of the log. Finds its batch by reading the
    batch headers of each segment that can have a larger timestamp than those read so far.
    Blocks."""
    where: tuple[Segment, BatchPosition] | None = None
    largest_ms = -1
    for segment in log.segments:
        if segment.max_timestamp.timestamp_ms <= largest_ms:
            continue
        for place in segment.batch_positions():
            if place.last_offset < log_start_offset:
                continue
            header = segment.read_bytes(place.position, min(BATCH_HEADER_BYTES, place.size_bytes))
            timestamp_ms = max_timestamp_of(header)
            if timestamp_ms > largest_ms and has_records(header):
                where, largest_ms = (segment, place), timestamp_ms
    if where is None:
        return None
    segment, place = where
    entry = entry_at(segment.read_bytes(place.position, place.size_bytes))
    return _first_wanted(entry, lambda timestamp_ms: timestamp_ms == largest_ms, log_start_offset)


def _find_from(
    segment: Segment,
    offset: int,
    is_wanted: Callable[[int], bool],
    log_start_offset: int,
    *,
    may_block: bool,
) -> TimestampOffset | None:
    """Return the first record whose timestamp satisfies ``is_wanted`` and whose offset is not below
    ``log_start_offset``. Searches from the offset index entry at or before ``offset`` to the
    segment's end."""
    position = segment.offset_index.view().lookup(offset).position
    for place in segment.batch_positions(position, may_block=may_block):
        largest_ms = segment.max_timestamp_at(place, may_block=may_block)
        if place.last_offset < log_start_offset or not is_wanted(largest_ms):
            continue
        data = segment.read_bytes(place.position, place.size_bytes, may_block=may_block)
        entry = entry_at(data)
        if not may_block and _is_long(entry):
            # Copy the bytes, because the segment can be closed while a helper thread searches.
            entry = entry_at(bytes(data))
            raise LongLookUp(partial(_first_wanted, entry, is_wanted, log_start_offset))
        found = _first_wanted(entry, is_wanted, log_start_offset)
        if found is not None:
            return found
    return None


def _is_long(entry: Entry) -> bool:
    if isinstance(entry, BatchView):
        return entry.codec is not Codec.NONE or entry.record_count > MAX_RECORDS_SEARCHED_IN_LOOP
    return entry.codec is not Codec.NONE


def _first_wanted(
    entry: Entry, is_wanted: Callable[[int], bool], log_start_offset: int
) -> TimestampOffset | None:
    entry.check_crc()
    epoch = entry.partition_leader_epoch if isinstance(entry, BatchView) else NO_LEADER_EPOCH
    for record in entry.records():
        if is_wanted(record.timestamp_ms) and record.offset >= log_start_offset:
            return TimestampOffset(record.timestamp_ms, Offset(record.offset), LeaderEpoch(epoch))
    return None


def _for_its_pages(search: Callable[[], object]) -> None:
    """Run a search only to bring the pages that it reads into the page cache. Blocks; for helper
    threads."""
    _or_none(search)


def _or_none(search: Callable[[], object]) -> object:
    """Return the result of a search in a helper thread; None also if the search fails, because the
    event loop can close or delete the segments' files at any time."""
    with suppress(ValueError, OSError, InvariantViolation, RecordsError):
        return search()
    return None
