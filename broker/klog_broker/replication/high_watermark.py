"""Computes the high watermark: every replica of the maximal ISR has all records before it. Pure."""

from collections.abc import Iterable

from pyspark_klog.ids import Offset


def reached_watermark(set_before: int, own_end: int, follower_ends: Iterable[int]) -> Offset:
    """Return the high watermark: the least of the ends, but at least `set_before`, its last value.

    `own_end` is the end of the leader's log, or of its flushed part if responses wait for a flush
    (flush.messages=1). `follower_ends` are the log ends of the other replicas in the maximal
    in-sync set; -1 for a follower that has not fetched in this epoch, which is known to have the
    records before `set_before` and no more.
    """
    return Offset(max(set_before, min((own_end, *follower_ends))))
