"""The states that a controller keeps for each partition, and every permitted step between states.

docs/controller.md is generated from the tables STEPS (permitted steps) and FOUND (first states that
a new controller gives). The steps are Kafka's.
"""

from enum import Enum

from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import TopicPartition


class PartitionState(Enum):
    """A partition's state. The controller context reports NON_EXISTENT for a partition that it does
    not have."""

    # Enum members are compared by identity, and hashing the identity is faster than Enum's hash of
    # the name.
    __hash__ = object.__hash__

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


_LEADER_DIED = (
    "the leader's broker has died, has registered again or cannot use its log, so a leader must be"
    " elected"
)
_TOPIC_DELETED = "its topic is being deleted"

STEPS: dict[PartitionState, dict[PartitionState, str]] = {
    PartitionState.NON_EXISTENT: {
        PartitionState.NEW: "its replicas are assigned, and it has had no leader yet",
    },
    PartitionState.NEW: {
        PartitionState.ONLINE: "its first leader is written: a replica on a live broker",
        PartitionState.OFFLINE: _TOPIC_DELETED,
    },
    PartitionState.ONLINE: {
        PartitionState.ONLINE: "another leader is written, or the same one in a new leader epoch",
        PartitionState.OFFLINE: f"{_LEADER_DIED}; {_TOPIC_DELETED}",
    },
    PartitionState.OFFLINE: {
        PartitionState.ONLINE: "a leader was elected and is written",
        PartitionState.OFFLINE: "no replica can be elected",
        PartitionState.NON_EXISTENT: "its topic was deleted",
    },
}

FOUND: dict[PartitionState, str] = {
    PartitionState.NEW: "no leader was ever written",
    PartitionState.ONLINE: "the broker of the last written leader is alive",
    PartitionState.OFFLINE: "the broker of the last written leader is not alive, or the last "
    "written state has no leader",
}
"""The states that a new controller may give a partition, and when it gives each of them."""


def check_step(partition: TopicPartition, before: PartitionState, after: PartitionState) -> None:
    """Raise InvariantViolation for a step from state `before` to state `after` that STEPS, the
    table of permitted steps, does not contain."""
    if after not in STEPS[before]:
        raise InvariantViolation(
            f"partition {partition} is {before.value} and cannot become {after.value}; it may"
            f" become {', '.join(each.value for each in STEPS[before])}"
        )
