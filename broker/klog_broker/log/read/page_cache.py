"""Checks whether the pages for a look-up are in the page cache, and reads missing pages."""

from contextlib import suppress
from functools import partial

from klog_broker.log.errors import ColdRead
from klog_broker.log.segment.segment import Segment
from pyspark_klog.errors import InvariantViolation


def check_index_is_warm(segment: Segment) -> None:
    """Raise ColdRead if a look-up is likely to wait for pages of the offset index.

    Pages of the active segment were written recently and are assumed to be cached. For other
    segments, only both ends and the middle of the index are probed.
    """
    if not segment.is_active:
        file, size = segment.offset_index.file, segment.offset_index.entries * 8
        if not (file.is_warm(0, size) and file.is_warm(size // 2, min(size, 1))):
            raise ColdRead(partial(file.read_ahead, 0, size))


def check_time_index_is_warm(segment: Segment) -> None:
    """Raise ColdRead if reading the segment's largest timestamp would wait for the disk."""
    if not segment.knows_max_timestamp:
        file, size = segment.time_index.file, segment.time_index.entries * 12
        if not file.is_warm(0, size):
            raise ColdRead(partial(file.read_ahead, 0, size))


def read_into_cache(segment: Segment, offset: int, max_bytes: int) -> None:
    """Bring the pages that a read from ``offset`` needs into the page cache. Blocks; for helper
    threads.

    The event loop can close or delete the segment at the same time. Errors are ignored, because
    the caller then repeats the read and gets the error itself.
    """
    with suppress(ValueError, OSError, InvariantViolation):
        index = segment.open_offset_index()
        index.read_ahead(0, index.size())
        position = segment.offset_index.view().lookup(offset).position
        for place in segment.batch_positions(position):
            if place.last_offset >= offset:
                position = place.position
                break
        segment.log_file.read_ahead(position, max(max_bytes, 1))
