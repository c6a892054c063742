"""The reason of a leader election, for the controller's log."""

from enum import StrEnum

from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.ids import TopicPartition


class ElectionReason(StrEnum):
    """Events that make a leader election necessary."""

    NEW_PARTITION = "new-partition"
    NO_LEADER = "replica-available-again"
    SHUTDOWN = "controlled-shutdown"
    BROKER_FAILED = "broker-failed"
    LOG_FAILED = "log-failed"
    BOUNCED = "broker-registered-again"
    REQUESTED = "preferred-replica-requested"


def election_reason(
    context: ControllerContext, partition: TopicPartition, after: LeaderAndIsr
) -> ElectionReason | None:
    """Return why `after` elects a leader; None if it keeps the leader, or has no leader.

    The context has the state before `after`. An unclean election counts even if it elects the
    leader of before again, because records may be lost.
    """
    known = context.leadership(partition)
    if after.leader == NO_BROKER:
        return None
    if known is None:
        return ElectionReason.NEW_PARTITION
    before = known.state
    if after.leader == before.leader and not is_unclean_election(before, after):
        return None
    if before.leader == NO_BROKER:
        return ElectionReason.NO_LEADER
    if before.leader in context.shutting_down:
        return ElectionReason.SHUTDOWN
    if before.leader not in context.brokers:
        return ElectionReason.BROKER_FAILED
    if before.leader in context.failed_brokers(partition):
        return ElectionReason.LOG_FAILED
    if before.leader in context.bounced(partition):
        return ElectionReason.BOUNCED
    return ElectionReason.REQUESTED


def is_unclean_election(before: LeaderAndIsr, after: LeaderAndIsr) -> bool:
    """Whether `after` makes a replica the leader that was not in sync, so that records are lost."""
    return after.is_recovering and (not before.is_recovering or after.leader not in before.in_sync)
