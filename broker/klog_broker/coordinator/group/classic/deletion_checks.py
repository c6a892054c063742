"""Decides whether DeleteGroups may delete a group, and OffsetDelete its offsets. Pure: no I/O."""

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.states import REQUEST_ERRORS, GroupRequest, GroupState
from klog_broker.coordinator.group.classic.subscriptions import (
    CONSUMER_PROTOCOL,
    subscribed_topics,
)
from pyspark_klog.errors import ErrorCode


def group_deletion_error(group: ClassicGroup) -> ErrorCode:
    """Return NONE if DeleteGroups may delete the group now, else the error."""
    return REQUEST_ERRORS[GroupRequest.DELETE][group.state]


def offset_deletion_error(group: ClassicGroup) -> ErrorCode:
    """Return NONE if OffsetDelete may delete offsets of the group now, else the error (KIP-496).

    The coordinator can find out which topics a group uses only if the group's members are
    consumers. A group with another protocol type must therefore be empty.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def topics_in_use(group: ClassicGroup) -> frozenset[str] | None:
    """Topics in which OffsetDelete must not delete offsets now: members subscribe to them.

    The result None means all topics, because the members' subscriptions are unknown.
    """
    return frozenset() if group.state is GroupState.EMPTY else subscribed_topics(group)
