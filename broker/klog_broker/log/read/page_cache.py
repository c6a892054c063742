"""Whether a look-up in a segment would have to wait for the disk, and reading the pages for it."""

from contextlib import suppress
from functools import partial

from klog_broker.log.errors import ColdRead
from klog_broker.log.segment.segment import Segment
from pyspark_klog.errors import InvariantViolation


def check_index_is_warm(segment: Segment) -> None:
    """Raise ColdRead if a look-up is likely to wait for pages of the offset index.

    The active segment's pages were written not long ago; of the others the ends and the middle are
    probed, where every binary search begins.
    """
    if not segment.is_active:
        file, size = segment.offset_index.file, segment.offset_index.entries * 8
        if not (file.is_warm(0, size) and file.is_warm(size // 2, min(size, 1))):
            raise ColdRead(partial(file.read_ahead, 0, size))


def check_time_index_is_warm(segment: Segment) -> None:
    """Raise ColdRead if the segment's largest timestamp would have to be read from the disk."""
    if not segment.knows_max_timestamp:
        file, size = segment.time_index.file, segment.time_index.entries * 12
        if not file.is_warm(0, size):
            raise ColdRead(partial(file.read_ahead, 0, size))


def warm(segment: Segment, offset: int, max_bytes: int) -> None:
    """Read the pages that a read from ``offset`` needs. Blocks; for helper threads.

    The loop may close or delete the segment meanwhile. Errors that follow from that do not matter:
    whoever asked for the read reads again, and finds out.
    """
    with suppress(ValueError, OSError, InvariantViolation):
        index = segment.open_offset_index()
        index.read_ahead(0, index.size())
        position = segment.offset_index.view().lookup(offset).position
        for place in segment.places(position):
            if place.last_offset >= offset:
                position = place.position
                break
        segment.log_file.read_ahead(position, max(max_bytes, 1))
