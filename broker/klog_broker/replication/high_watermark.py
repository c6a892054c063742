"""Up to where a leader's log is on every replica that has to have it. Pure."""

from collections.abc import Iterable

from pyspark_klog.ids import Offset


def reached_watermark(set_before: int, own_end: int, follower_ends: Iterable[int]) -> Offset:
    """The high watermark: the least of these ends, and never less than it was set to before.

    `own_end` is the end of the leader's log, or of its flushed part where replies wait for a flush.
    `follower_ends` are the log ends of the others in the maximal in-sync set, -1 for one that has
    not fetched in this epoch: that one is known to have what lies before `set_before`, and no more.
    """
    return Offset(max(set_before, min((own_end, *follower_ends))))
