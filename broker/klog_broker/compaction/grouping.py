"""Groups neighbouring segments that become one (Kafka's Cleaner.groupSegmentsBySize)."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from pyspark_klog.storage.indexes import MAX_RELATIVE_OFFSET


class GroupedSegment(NamedTuple):
    """The offsets and sizes of a segment, from which `group_sizes` decides on its group."""

    base_offset: int
    end_offset: int
    """The base offset of the segment that follows in the log."""
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


T = TypeVar("T")


def group_sizes(
    segments: Sequence[GroupedSegment], *, max_bytes: int, max_index_bytes: int
) -> list[int]:
    """Return how many segments each group has, in order.

    The log file and the indexes of a group's new segment stay within ``max_bytes`` and
    ``max_index_bytes`` even if no record is removed, and the group's offsets fit into one index. A
    segment that exceeds a limit by itself is a group of its own.
    """
    sizes: list[int] = []
    first: GroupedSegment | None = None
    total = offset_index = time_index = 0
    for each in segments:
        total += each.size_bytes
        offset_index += each.offset_index_bytes
        time_index += each.time_index_bytes
        if (
            first is not None
            and total <= max_bytes
            and max(offset_index, time_index) <= max_index_bytes
            and (
                not each.size_bytes
                or each.end_offset - 1 - first.base_offset <= MAX_RELATIVE_OFFSET
            )
        ):
            sizes[-1] += 1
            continue
        sizes.append(1)
        first = each
        total, offset_index = each.size_bytes, each.offset_index_bytes
        time_index = each.time_index_bytes
    return sizes
