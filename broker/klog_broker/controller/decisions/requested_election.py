"""The election that an ElectLeaders request asks for, decided for one partition without I/O."""

from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.decisions.leader_election import (
    LeaderAndIsr,
    elect_leader,
    elect_preferred,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition


def requested_election(
    context: ControllerContext, partition: TopicPartition, *, unclean: bool
) -> LeaderAndIsr | ErrorCode:
    """Return the state to write for the partition, or the error that ElectLeaders answers.

    Without `unclean`, only the preferred replica can be elected. With `unclean`, any online replica
    can be elected (an in-sync one first), but only if the partition has no online leader. A replica
    is offline, too, while its broker shuts down.
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
    leader, online = known.state.leader, context.online_for(partition)
    if leader in online if unclean else leader == replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    if unclean:
        return elect_leader(replicas, known.state, online, unclean=True) or unable
    return elect_preferred(replicas, known.state, online) or unable
