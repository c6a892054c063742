"""The states of a classic consumer group and every step between them."""

from enum import Enum

from pyspark_klog.errors import InvariantViolation


class GroupState(Enum):
    """The names are those that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[GroupState, dict[GroupState, str]] = {
    GroupState.EMPTY: {
        GroupState.PREPARING_REBALANCE: "a first member joins",
        GroupState.DEAD: "the last committed offset is gone",
    },
    GroupState.PREPARING_REBALANCE: {
        GroupState.COMPLETING_REBALANCE: "all members joined, or the rebalance timeout passed",
        GroupState.EMPTY: "no member joined in time",
        GroupState.DEAD: "the shard is unloaded",
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.STABLE: "the leader's assignment is in the log",
        GroupState.PREPARING_REBALANCE: "a member joins, leaves, fails or does not sync in time",
        GroupState.DEAD: "the shard is unloaded",
    },
    GroupState.STABLE: {
        GroupState.PREPARING_REBALANCE: "a member joins, leaves, fails or the leader rejoins",
        GroupState.DEAD: "the shard is unloaded",
    },
    GroupState.DEAD: {},
}


def check_transition(before: GroupState, after: GroupState) -> None:
    """Raise InvariantViolation for a step that the table does not name."""
    if after not in TRANSITIONS[before]:
        raise InvariantViolation(f"a group cannot go from {before.value} to {after.value}")
