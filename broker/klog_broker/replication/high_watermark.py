"""Up to where a leader's log is on every replica that has to have it. Pure."""

from collections.abc import Iterable

from pyspark_klog.ids import Offset


def reached_watermark(set_before: int, own_end: int, follower_ends: Iterable[int]) -> Offset:
    """The high watermark: the least of these ends, and never less than it was set to before.

    `own_end` is the leader's, or what it has flushed where replies wait for that. `follower_ends`
    are those of the others in the maximal in-sync set, -1 for one that has not fetched in this
    epoch: what they have acknowledged before is only known to be what was `set_before`.
    """
    return Offset(max(set_before, min((own_end, *follower_ends))))
