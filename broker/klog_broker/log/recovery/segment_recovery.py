"""Finds the end, indexes and epochs of a segment, and repairs its files.

After a crash every byte past the recovery point is checked. After a clean shutdown the batch
headers are enough.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from klog_broker.log.errors import DamagedLog, ShortWrite
from klog_broker.log.log_config import LogConfig
from klog_broker.log.segment.segment import Segment
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import Offset
from pyspark_klog.records.layout import (
    LOG_OVERHEAD_BYTES,
)
from pyspark_klog.storage.indexes import MAX_RELATIVE_OFFSET, OffsetIndexEntry, TimeIndexEntry
from pyspark_klog.storage.names import Suffix, segment_file_name

_log = logging.getLogger("klog.log")
_CHUNK_BYTES = 4 << 20
_INDEXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX)

OnChunk = Callable[[int], object]
"""A callback that a scan of a segment calls after each chunk, with the number of the chunk's bytes:
at most 4 MiB, or one larger batch. An exception from the callback ends the scan."""


class Recovered(NamedTuple):
    """The part of a segment that recovery kept."""

    end_offset: Offset  # after the segment's last good batch
    cut_bytes: int  # removed at the segment's end
    damaged_bytes: int  # like cut_bytes, but 0 if they began with zeros: preallocated space
    epochs: list[tuple[int, int]]  # (leader epoch, start offset), found in the checked batches
    is_as_synced: bool  # no batch was checked, because all lie before the recovery point
    trusted_offset: int  # every batch from this offset on was checked
    has_markers: bool  # the checked batches include control batches, such as transaction markers


def ignore_chunk(_: int) -> None:
    """A callback for scanned chunks (OnChunk) that does nothing."""


def scan_segment(
    segment: Segment,
    digest: Digest,
    checks: RecordChecks,
    *,
    check_crc: bool,
    on_chunk: OnChunk = ignore_chunk,
) -> Iterator[None]:
    """Scan the segment from the digest's end position to the first byte that is no good batch, and
    add the batches to the digest, which summarizes them.

    Yields after each chunk, so that the caller can take the digest's results so far.
    """
    end = segment.size_bytes
    want = _CHUNK_BYTES
    # Reuse one buffer: to allocate memory for each chunk would take longer than to read the chunk.
    buffer = bytearray(min(want, end - digest.end_position))
    while digest.end_position < end and not digest.is_cut:
        position = digest.end_position
        if want > len(buffer):
            buffer = bytearray(want)
        with memoryview(buffer) as view:
            filled = segment.log_file.pread_into(view[: min(want, end - position)], position)
            chunk = view[:filled]
            checks.scan_into(digest, chunk, position, check_crc=check_crc)
            size = int.from_bytes(chunk[8:12], "big", signed=True)
        if digest.end_position > position:
            want = _CHUNK_BYTES
            on_chunk(digest.end_position - position)
            yield
            continue
        # Either no batch begins here, or the batch is larger than the chunk.
        if filled < LOG_OVERHEAD_BYTES:
            return
        size += LOG_OVERHEAD_BYTES
        if size <= filled or size > end - position:
            return
        want = size


def recover_segment(
    segment: Segment,
    *,
    recovery_point: int,
    end_limit: int,
    checks: RecordChecks,
    latest_epoch: int,
    is_suspect: bool,
    before_cut: Callable[[Offset], None],
    on_chunk: OnChunk = ignore_chunk,
) -> Recovered:
    """Check all batches from ``recovery_point`` on, and truncate the segment at the first bad byte.

    The checked batches get new index entries. ``before_cut`` is called before a truncation, with
    the segment's new end offset; until the callback returns, the damage stays in the file, so that
    the caller can first remove later segments. If ``is_suspect``, a sync of the log may have
    failed: the checked bytes may be in the page cache, but not on the disk. In that case the
    function writes these bytes once more, so that the next sync takes them to the disk.

    The segment must be active (Segment.activate opens its indexes for writing). All its offsets are
    below ``end_limit``, where the next segment begins.
    """
    end_limit = min(end_limit, segment.base_offset + MAX_RELATIVE_OFFSET + 1)
    start = _trusted_position(segment, recovery_point)
    try:
        digest = restart_indexes(segment, start)
    except DamagedLog as error:
        _log.warning("log=%s checking the whole segment: %s", segment.log_file.path, error)
        start = 0
        digest = restart_indexes(segment, start)
    is_as_synced = start == segment.size_bytes
    digest.end_limit = end_limit
    digest.latest_epoch = latest_epoch
    for place in segment.batch_positions(digest.last_indexed_position, start):
        digest.end_offset = place.last_offset + 1
    trusted_offset = digest.end_offset
    _index_all(segment, digest, checks, check_crc=True, on_chunk=on_chunk)
    end_offset, end_position = Offset(digest.end_offset), digest.end_position
    cut_bytes = segment.size_bytes - end_position
    is_damage = False
    if cut_bytes:
        # Zeros are no damage: a preallocated file ends with zeros.
        is_damage = any(segment.log_file.pread(min(cut_bytes, 4096), end_position))
        _log.log(
            logging.WARNING if is_damage else logging.INFO,
            "log=%s cut_at=%d cut_bytes=%d next_offset=%d",
            segment.log_file.path,
            end_position,
            cut_bytes,
            end_offset,
        )
        before_cut(end_offset)
        segment.log_file.truncate(end_position)
        segment.size_bytes = end_position
    if is_suspect:
        _write_again(segment, start)
    damaged_bytes = cut_bytes if is_damage else 0
    return Recovered(
        end_offset,
        cut_bytes,
        damaged_bytes,
        digest.epochs,
        is_as_synced,
        trusted_offset,
        digest.has_markers,
    )


def _write_again(segment: Segment, position: int) -> None:
    """Write the segment's bytes from ``position`` on to the same place again. Raises OSError.

    The disk has either the same bytes at this place or none, so a crash in the middle loses
    nothing.
    """
    _log.warning(
        "log=%s written_again_from=%d bytes=%d after a sync that may have failed",
        segment.log_file.path,
        position,
        segment.size_bytes - position,
    )
    while position < segment.size_bytes:
        chunk = segment.log_file.pread(min(_CHUNK_BYTES, segment.size_bytes - position), position)
        written = segment.log_file.pwrite(chunk, position)
        if not chunk or written != len(chunk):
            raise ShortWrite(written, len(chunk))
        position += written


def index_all(segment: Segment, checks: RecordChecks) -> Iterator[int]:
    """Make the index entries of a new segment, and check every byte of it.

    Yields after each chunk how many bytes were checked. The segment must be activated. Raises
    DamagedLog at bytes that are no good batch, or a batch that is out of order.
    """
    digest = restart_indexes(segment, 0)
    yield from _index_steps(segment, digest, checks, check_crc=True, on_chunk=ignore_chunk)
    if digest.end_position != segment.size_bytes:
        raise DamagedLog(
            f"{segment.log_file.path}: no good batch at byte {digest.end_position} of "
            f"{segment.size_bytes}"
        )


def _index_all(
    segment: Segment, digest: Digest, checks: RecordChecks, *, check_crc: bool, on_chunk: OnChunk
) -> None:
    """Scan the segment to the first byte that is no good batch, and write the index entries of the
    scanned batches. The scan begins at the end position of ``digest``, the summary of the batches
    before that position."""
    for _ in _index_steps(segment, digest, checks, check_crc=check_crc, on_chunk=on_chunk):
        pass


def _index_steps(
    segment: Segment, digest: Digest, checks: RecordChecks, *, check_crc: bool, on_chunk: OnChunk
) -> Iterator[int]:
    position = digest.end_position
    for _ in scan_segment(segment, digest, checks, check_crc=check_crc, on_chunk=on_chunk):
        segment.add_index_rows(digest.drain_index_rows())
        yield digest.end_position - position
        position = digest.end_position
    segment.restore(
        bytes_since_index_entry=digest.end_position - digest.last_indexed_position,
        max_timestamp=TimeIndexEntry(digest.max_timestamp_ms, Offset(digest.max_timestamp_offset)),
    )


def _trusted_position(segment: Segment, recovery_point: int) -> int:
    """Return the position of the first batch that ends at or after the recovery point.

    The batches before this position were synced with their index entries. Return 0 if the offset
    index or the batch headers nevertheless do not lead to the recovery point: the segment is then
    checked from its first byte.
    """
    if recovery_point <= segment.base_offset:
        return 0
    segment.offset_index.cut_to_position(segment.size_bytes)
    entry = segment.offset_index.view().lookup(recovery_point)
    if entry.position and not _is_right_entry(segment, entry):
        return 0
    position = entry.position
    end_offset = -1
    with suppress(InvariantViolation):
        for place in segment.batch_positions(position):
            if place.last_offset >= recovery_point or place.base_offset < end_offset:
                break
            position, end_offset = place.position + place.size_bytes, place.last_offset + 1
    return position if end_offset == recovery_point or end_offset < 0 else 0


def _is_right_entry(segment: Segment, entry: OffsetIndexEntry) -> bool:
    """Whether the batch that starts at the entry's position ends at the entry's offset."""
    with suppress(InvariantViolation):
        for place in segment.batch_positions(entry.position):
            return place.last_offset == entry.offset
    return False


def restart_indexes(segment: Segment, position: int) -> Digest:
    """Keep only the index entries of batches before ``position``, where a batch must start.

    Returns a digest (a summary of scanned batches) that continues from ``position``, with the
    largest timestamp and the last indexed position of the earlier batches.
    """
    segment.offset_index.cut_to_position(position)
    entries = segment.offset_index.view()
    last_indexed = entries[len(entries) - 1] if len(entries) else None
    # Time index entries past the last entry of the offset index are not trusted: the timestamps of
    # the batches there are read again below.
    time_end = last_indexed.offset + 1 if last_indexed is not None else segment.base_offset
    segment.time_index.cut_to_offset(time_end if position else 0)
    if _is_only_preallocated(segment):
        segment.time_index.cut_to_offset(0)
    largest = segment.time_index.last
    from_position = last_indexed.position if last_indexed is not None else 0
    for place in segment.batch_positions(from_position, position):
        timestamp_ms = segment.max_timestamp_at(place)
        if timestamp_ms > largest.timestamp_ms:
            largest = TimeIndexEntry(timestamp_ms, place.last_offset)
    segment.restore(
        bytes_since_index_entry=position - from_position,
        max_timestamp=largest,
    )
    return Digest(
        position=position,
        end_offset=segment.base_offset,
        index_interval_bytes=segment.index_interval_bytes,
        last_indexed_position=from_position,
        max_timestamp_ms=largest.timestamp_ms,
        max_timestamp_offset=largest.offset,
    )


def _is_only_preallocated(segment: Segment) -> bool:
    """Whether the only row of the time index is preallocated space and no entry.

    An active segment's index file is preallocated with zeros. An entry consists of zeros, too, if
    the segment's first batch is a single record with timestamp 0. So look at the first batch to
    tell the two cases apart.
    """
    if segment.time_index.last != (0, segment.base_offset):
        return False
    first = next(segment.batch_positions(), None)
    return (
        first is None
        or first.last_offset != segment.base_offset
        or segment.max_timestamp_at(first) != 0
    )


def _last_indexed_position(segment: Segment) -> int:
    entries = segment.offset_index.view()
    return entries[len(entries) - 1].position if len(entries) else 0


def find_end(segment: Segment) -> Offset:
    """Return the offset after the segment's last batch, read from the batch headers.

    Raises InvariantViolation if the headers do not lead to exactly the end of the file.
    """
    end_offset = segment.base_offset
    for place in segment.batch_positions(_last_indexed_position(segment)):
        end_offset = Offset(place.last_offset + 1)
    return end_offset


def resume_segment(segment: Segment, config: LogConfig) -> None:
    """Prepare a properly closed segment for more appends. Does nothing if the segment is active."""
    if segment.is_active:
        return
    segment.activate(config)
    segment.restore(
        bytes_since_index_entry=segment.size_bytes - _last_indexed_position(segment),
        max_timestamp=segment.time_index.last,
    )


def are_indexes_sane(segment: Segment) -> bool:
    """Whether the index files of a closed segment are plausible.

    If they are, the segment then has its largest timestamp in memory, so retention need not read
    it from a page that may have left the page cache.
    """
    paths = [segment.directory / segment_file_name(segment.base_offset, kind) for kind in _INDEXES]
    if not all(segment.files.exists(path) for path in paths):
        return False
    offset_index, time_index = segment.offset_index, segment.time_index
    if offset_index.misfit_bytes or time_index.misfit_bytes:
        return False
    if offset_index.entries:
        view = offset_index.view()
        last = view[len(view) - 1]
        if last.offset <= segment.base_offset or not 0 < last.position < segment.size_bytes:
            return False
    if time_index.entries:
        first, last_time = time_index.view()[0], time_index.last
        if last_time.timestamp_ms < first.timestamp_ms or last_time.offset < segment.base_offset:
            return False
        if time_index.entries > 1 and last_time.timestamp_ms == first.timestamp_ms:
            # The timestamps of real rows increase, so all these rows are zeros: preallocated space
            # that came back after a power cut.
            return False
    return segment.max_timestamp.timestamp_ms >= -1


def rebuild_indexes(
    segment: Segment, config: LogConfig, checks: RecordChecks, on_chunk: OnChunk = ignore_chunk
) -> None:
    """Make the offset and the time index again from the batch headers in the log file, up to the
    first bytes that are no batch.

    The segment is active afterwards.
    """
    segment.close_indexes()
    for kind in _INDEXES:
        segment.files.remove(segment.directory / segment_file_name(segment.base_offset, kind))
    segment.activate(config)
    digest = restart_indexes(segment, 0)
    # A damaged batch header can have any offset, but an index can store only offsets near the base
    # offset. End the scan at the first offset that is too large.
    digest.end_limit = segment.base_offset + MAX_RELATIVE_OFFSET + 1
    _index_all(segment, digest, checks, check_crc=False, on_chunk=on_chunk)
