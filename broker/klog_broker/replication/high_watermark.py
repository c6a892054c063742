"""Computes the high watermark: all records before it are on every replica of the maximal ISR (the
committed ISR, and a follower that the controller may have added). Pure."""

from collections.abc import Iterable

from pyspark_klog.ids import Offset


def reached_watermark(set_before: int, own_end: int, follower_ends: Iterable[int]) -> Offset:
    """Return the high watermark: the lowest of the log ends, but at least `set_before`, its last
    value.

    `own_end` is the end of the leader's log, or of its flushed part if responses wait for a flush
    (flush.messages=1). `follower_ends` are the log ends of the followers that the high watermark
    waits for: those in the maximal ISR (the committed ISR, and a follower that the controller may
    have added), and live ones that have caught up within replica.lag.time.max.ms; -1 for a follower
    that has not fetched in this epoch, which is known to have the records before `set_before` and
    no more.
    """
    return Offset(max(set_before, min((own_end, *follower_ends))))
