"""The election that an ElectLeaders request asks for, decided for one partition without I/O."""

from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.decisions.leader_election import (
    LeaderAndIsr,
    elect_chosen,
    elect_leader,
    elect_preferred,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition


def requested_election(
    context: ControllerContext,
    partition: TopicPartition,
    *,
    unclean: bool,
    leader: BrokerId | None = None,
) -> LeaderAndIsr | ErrorCode:
    """Return the state to write for the partition, or the error that ElectLeaders answers.

    Without `unclean`, only the preferred replica can be elected. With `unclean`, any online replica
    can be elected (an in-sync one first), but only if the partition has no online leader. A replica
    is offline, too, while its broker shuts down. With `leader`, only this replica can be elected,
    without `unclean`.
    """
    replicas, known = context.assignment(partition), context.leadership(partition)
    if not replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.is_to_be_deleted(partition.topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    unable = (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if unclean
        else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    if known is None:
        return unable
    present, online = known.state.leader, context.online_for(partition)
    if leader is not None:
        if present == leader:
            return ErrorCode.ELECTION_NOT_NEEDED
        chosen = [each for each in replicas if each == leader]
        return elect_chosen(chosen, known.state, online) or unable
    if present in online if unclean else present == replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    if unclean:
        return elect_leader(replicas, known.state, online, unclean=True) or unable
    return elect_preferred(replicas, known.state, online) or unable
