"""What tools may delete of a classic group: the group itself, and which of its offsets. Pure."""

from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.states import ANSWERS, Asked, GroupState
from klog_broker.coordinator.group.classic.subscriptions import (
    CONSUMER_PROTOCOL,
    subscribed_topics,
)
from pyspark_klog.errors import ErrorCode


def group_deletion_error(group: Group) -> ErrorCode:
    """Whether DeleteGroups may delete the group now."""
    return ANSWERS[Asked.DELETE][group.state]


def offset_deletion_error(group: Group) -> ErrorCode:
    """Whether OffsetDelete may delete any offset of the group now (KIP-496). Members other than
    consumers do not tell which topics they use: their groups must be empty."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def topics_in_use(group: Group) -> frozenset[str] | None:
    """Topics in which no offset of the group may be deleted now; None: all topics."""
    return frozenset() if group.state is GroupState.EMPTY else subscribed_topics(group)
