"""Computes where a follower truncates its log after it has diverged from the leader's log. Pure.

If two logs have a record with the same offset and leader epoch, the logs are equal up to and
including that record. So two logs diverge at the end of the newest epoch that both logs have; if
the epoch ends at different offsets, at the lower one (KIP-101, KIP-279). A follower cannot use its
high watermark instead, because the high watermark may be far below the acknowledged records.
"""

from klog_broker.log.read.read_results import EpochEndOffset
from pyspark_klog.ids import Offset


def is_diverging_epoch(leaders: EpochEndOffset, offset: int, last_epoch: int) -> bool:
    """Whether `leaders`, an epoch and its end offset from the leader's Fetch response, is a valid
    diverging epoch (KIP-595) for a follower whose log ends at `offset` and has `last_epoch` as its
    newest epoch: an older epoch, or the same epoch with a lower end."""
    if leaders.leader_epoch < 0 or leaders.end_offset < 0:
        return False
    return leaders.leader_epoch < last_epoch or (
        leaders.leader_epoch == last_epoch and leaders.end_offset < offset
    )


def truncation_offset(leaders: EpochEndOffset, own: EpochEndOffset, log_end_offset: int) -> Offset:
    """Return the offset to which a follower truncates its log, which ends at `log_end_offset`.

    `leaders` is the leader's newest epoch that is not newer than the follower's last epoch, with
    the epoch's end in the leader's log. `own` is the result of a lookup of `leaders.leader_epoch`
    in the follower's log. If the follower does not have that epoch, it removes all records of newer
    epochs, and its next Fetch asks the leader again with an older epoch.
    """
    if own.leader_epoch == leaders.leader_epoch or own.end_offset < 0:
        # If the follower's log has neither that epoch nor an older one, truncate it at the end of
        # the epoch in the leader's log.
        ends = [leaders.end_offset, log_end_offset]
        if own.end_offset >= 0:
            ends.append(own.end_offset)
        return Offset(min(ends))
    return Offset(min(own.end_offset, log_end_offset))
