"""Finding the batch of an offset in a segment with as few looks at its files as can be.

A consumer goes on where its last answer ended. So the index is searched first a little behind the
row that was found last; and where the two rows around the offset are so far apart that one look
at the log could not reach from the one's batch to the other's, the offset is most likely in the
batch of the second row: one look at that batch's start tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog_broker.log.errors import DamagedLog
from klog_broker.log.segment.batch_positions import (
    BATCH_START_BYTES,
    LOOK_BYTES,
    BatchPlace,
    place_in,
)
from pyspark_klog.storage.names import Suffix

if TYPE_CHECKING:
    from klog_broker.log.segment.segment import Segment


def find_batch(segment: Segment, offset: int, *, may_block: bool = True) -> BatchPlace | None:
    """The first batch that ends at or after ``offset``; None if all end before it. ColdRead as
    ``Segment.look``; DamagedLog where a row of the index leads past the batch that it names."""
    recent = segment.recent_position(offset)
    if recent is not None:
        return _place_at(segment, recent, may_block=may_block)
    index = segment.offset_index.view()
    rows = index.rows_at_or_below(offset, segment.near_row)
    # Only where to begin the next search: that is right with any number.
    segment.near_row = rows
    ends_with, start = index[rows - 1] if rows else (-1, 0)
    if ends_with == offset:
        place = _place_at(segment, start, may_block=may_block)
        # A row made for several batches at once has the first one's place and the last one's end.
        if place.last_offset == offset:
            return place
    if rows < len(index):
        following = index[rows].position
        if following - start > LOOK_BYTES:
            place = _place_at(segment, following, may_block=may_block)
            if place.base_offset <= offset <= place.last_offset:
                return place
    if not 0 <= start < segment.size_bytes:
        if not rows:
            return None
        raise _bad_row(segment, ends_with, start)
    for place in segment.places(start, may_block=may_block):
        if place.last_offset >= offset:
            if rows and place.position == start and place.base_offset > max(ends_with, offset):
                # Batches before it, which may hold the offset, would be passed over in silence.
                raise _bad_row(segment, ends_with, start)
            return place
    return None


def _bad_row(segment: Segment, ends_with: int, position: int) -> DamagedLog:
    return DamagedLog(
        f"{segment.path(Suffix.OFFSET_INDEX)}: a row says that the batch of offset {ends_with} "
        f"begins at byte {position}, and it does not; stop the broker and remove this file: the "
        f"next start makes it anew"
    )


def _place_at(segment: Segment, position: int, *, may_block: bool) -> BatchPlace:
    head = segment.look(position, BATCH_START_BYTES, may_block=may_block)
    return place_in(head, 0, position, segment.size_bytes, segment.log_file.path)
