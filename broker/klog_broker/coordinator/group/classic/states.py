"""The states of a classic group: all transitions, and the error of each request in each state.

docs/groups.md is generated from these tables.
"""

from enum import Enum

from pyspark_klog.errors import ErrorCode, InvariantViolation


class GroupState(Enum):
    """A group's state; the values are the names that DescribeGroups and ListGroups show."""

    # Enum members compare by identity, so hash them by identity, too: Enum's own hash is slower.
    __hash__ = object.__hash__

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_UNLOADED = "this broker no longer leads the group's partition"

TRANSITIONS: dict[GroupState, dict[GroupState, str]] = {
    GroupState.EMPTY: {
        GroupState.PREPARING_REBALANCE: "a first member joins",
        GroupState.EMPTY: "the record of a generation without members is applied, live or replayed",
        GroupState.STABLE: "the record of a generation with members is replayed",
        GroupState.DEAD: f"the group's tombstone is applied, live or replayed; {_UNLOADED}",
    },
    GroupState.PREPARING_REBALANCE: {
        GroupState.COMPLETING_REBALANCE: "all members joined, or the rebalance timeout passed",
        GroupState.EMPTY: "no member joined in time",
        GroupState.DEAD: _UNLOADED,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.STABLE: "the record with the leader's assignment is applied",
        GroupState.PREPARING_REBALANCE: "a member joins, leaves, fails or does not sync in time",
        GroupState.DEAD: _UNLOADED,
    },
    GroupState.STABLE: {
        GroupState.PREPARING_REBALANCE: "a member joins, leaves, fails or the leader rejoins",
        GroupState.STABLE: "the record of a static member's new process is applied; the record of "
        "a newer generation with members is replayed",
        GroupState.EMPTY: "the record of a generation without members is replayed",
        GroupState.DEAD: f"the group's tombstone is replayed; {_UNLOADED}",
    },
    GroupState.DEAD: {},
}


def check_transition(before: GroupState, after: GroupState) -> None:
    """Raise InvariantViolation for a transition that is not in TRANSITIONS."""
    if after not in TRANSITIONS[before]:
        raise InvariantViolation(f"a group cannot go from {before.value} to {after.value}")


class GroupRequest(Enum):
    """The requests to a group that REQUEST_ERRORS distinguishes.

    COMMIT is an OffsetCommit of a member, COMMIT_FROM_OUTSIDE one of a client that is not a member
    and names no generation. DELETE is DeleteGroups, which an administrator's tool sends.
    """

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup"
    COMMIT = "OffsetCommit"
    COMMIT_FROM_OUTSIDE = "OffsetCommit without a member"
    DELETE = "DeleteGroups"


_NONE, _UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCE, _NON_EMPTY = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NON_EMPTY_GROUP


def _by_state(
    empty: ErrorCode,
    preparing: ErrorCode,
    completing: ErrorCode,
    stable: ErrorCode,
    dead: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE,
) -> dict[GroupState, ErrorCode]:
    return dict(zip(GroupState, (empty, preparing, completing, stable, dead), strict=True))


REQUEST_ERRORS: dict[GroupRequest, dict[GroupState, ErrorCode]] = {
    GroupRequest.JOIN: _by_state(_NONE, _NONE, _NONE, _NONE),
    GroupRequest.SYNC: _by_state(_UNKNOWN, _REBALANCE, _NONE, _NONE),
    GroupRequest.HEARTBEAT: _by_state(_UNKNOWN, _REBALANCE, _NONE, _NONE),
    GroupRequest.LEAVE: _by_state(_UNKNOWN, _NONE, _NONE, _NONE),
    GroupRequest.COMMIT: _by_state(_UNKNOWN, _NONE, _REBALANCE, _NONE),
    GroupRequest.COMMIT_FROM_OUTSIDE: _by_state(_NONE, _UNKNOWN, _UNKNOWN, _UNKNOWN),
    GroupRequest.DELETE: _by_state(
        _NONE, _NON_EMPTY, _NON_EMPTY, _NON_EMPTY, dead=ErrorCode.GROUP_ID_NOT_FOUND
    ),
}
"""The error of each request in each state; NONE means that the request is served. An empty group
has no members, so most requests to it get UNKNOWN_MEMBER_ID."""

PARKED: dict[tuple[GroupRequest, GroupState], str] = {
    (GroupRequest.JOIN, GroupState.EMPTY): "waits until the first generation begins",
    (GroupRequest.JOIN, GroupState.PREPARING_REBALANCE): "waits until the next generation begins",
    (
        GroupRequest.JOIN,
        GroupState.COMPLETING_REBALANCE,
    ): "a repeated request is answered; any other starts a rebalance and waits for its result",
    (
        GroupRequest.JOIN,
        GroupState.STABLE,
    ): "a follower's repeat is answered; any other starts a rebalance and waits for its result",
    (
        GroupRequest.SYNC,
        GroupState.COMPLETING_REBALANCE,
    ): "waits until the leader's assignment is in the log",
}
"""The requests that are parked in a state, with the event that they wait for. No other request
waits for other members."""
