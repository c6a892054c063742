"""Where a follower's log must end, so that it says nothing that the leader's log does not. Pure.

Two records with the same offset and leader epoch are the same, and so is all that is before them
(log matching). So the logs part where the newest epoch that both know ends in the shorter of the
two (KIP-101, KIP-279). The high watermark says nothing of that: it may be far behind what was
acknowledged.
"""

from klog_broker.log.read.read_results import EpochEndOffset
from pyspark_klog.ids import Offset


def tells_of_divergence(leaders: EpochEndOffset, offset: int, last_epoch: int) -> bool:
    """Whether that can be a leader's answer to a follower whose log ends at `offset` with a batch
    of `last_epoch` (KIP-595): the epoch is older, or ended earlier."""
    if leaders.leader_epoch < 0 or leaders.end_offset < 0:
        return False
    return leaders.leader_epoch < last_epoch or (
        leaders.leader_epoch == last_epoch and leaders.end_offset < offset
    )


def cut_offset(leaders: EpochEndOffset, own: EpochEndOffset, log_end_offset: int) -> Offset:
    """Where a follower's log, which ends at `log_end_offset`, is to end.

    `leaders` is the newest epoch of the leader that is not newer than the follower's, and its end.
    `own` is the follower's answer to the question for `leaders.leader_epoch`. If the follower does
    not know that epoch, all that is newer goes, and the next Fetch asks again with an older one.
    """
    if own.leader_epoch == leaders.leader_epoch or own.end_offset < 0:
        # Without an epoch of its own so old the follower can only believe the leader.
        ends = [leaders.end_offset, log_end_offset]
        if own.end_offset >= 0:
            ends.append(own.end_offset)
        return Offset(min(ends))
    return Offset(min(own.end_offset, log_end_offset))
