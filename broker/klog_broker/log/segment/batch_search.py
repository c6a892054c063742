"""Finds the batch of an offset in a segment, with as few reads of the segment's files as possible.

A consumer continues where its last Fetch response ended. So the search in the offset index starts
just after the row that was found last. The offset is then between two rows of the index. If the
batches of these two rows are more than HEADER_SEARCH_BYTES apart, the offset is most likely in the
batch of the second row. One read of the start of that batch shows whether it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog_broker.log.errors import DamagedLog
from klog_broker.log.segment.batch_positions import (
    BATCH_START_BYTES,
    HEADER_SEARCH_BYTES,
    BatchPosition,
    parse_batch_position,
)
from pyspark_klog.storage.names import Suffix

if TYPE_CHECKING:
    from klog_broker.log.segment.segment import Segment


def find_batch(segment: Segment, offset: int, *, may_block: bool = True) -> BatchPosition | None:
    """Return the first batch that ends at or after ``offset``; None if all batches end before.

    Raises DamagedLog at bytes that are no batch, or if the search finds that a row of the offset
    index has a wrong position. With ``may_block=False`` raises ColdRead if a batch header is not in
    the page cache.
    """
    recent = segment.recent_position(offset)
    if recent is not None:
        return _place_at(segment, recent, may_block=may_block)
    index = segment.offset_index.view()
    rows = index.rows_at_or_below(offset, segment.near_row)
    # The next search begins at this row. A search finds the right row wherever it begins.
    segment.near_row = rows
    ends_with, start = index[rows - 1] if rows else (-1, 0)
    if ends_with == offset:
        place = _place_at(segment, start, may_block=may_block)
        # If a Kafka follower or Kafka's cleaner appended several batches at once, one row of the
        # offset index can cover them: it has the first batch's position and the last batch's last
        # offset.
        if place.last_offset == offset:
            return place
    if rows < len(index):
        following = index[rows].position
        if following - start > HEADER_SEARCH_BYTES:
            place = _place_at(segment, following, may_block=may_block)
            if place.base_offset <= offset <= place.last_offset:
                return place
    if not 0 <= start < segment.size_bytes:
        if not rows:
            return None
        raise _bad_row(segment, ends_with, start)
    for place in segment.batch_positions(start, may_block=may_block):
        if place.last_offset >= offset:
            if rows and place.position == start and place.base_offset > max(ends_with, offset):
                # The position in the row of the offset index is wrong. Earlier batches may hold the
                # offset, and a reader would silently miss them.
                raise _bad_row(segment, ends_with, start)
            return place
    return None


def _bad_row(segment: Segment, ends_with: int, position: int) -> DamagedLog:
    return DamagedLog(
        f"{segment.path(Suffix.OFFSET_INDEX)}: a row says that the batch of offset {ends_with} "
        f"begins at byte {position}, but no batch of that offset begins there; stop the broker "
        f"and remove this file: the next start builds it again from the log"
    )


def _place_at(segment: Segment, position: int, *, may_block: bool) -> BatchPosition:
    head = segment.read_bytes(position, BATCH_START_BYTES, may_block=may_block)
    return parse_batch_position(head, 0, position, segment.size_bytes, segment.log_file.path)
