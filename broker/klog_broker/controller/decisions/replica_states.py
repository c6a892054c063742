"""The states that a controller keeps for each replica, and every permitted step between states.

docs/controller.md is generated from the tables STEPS (permitted steps) and FOUND (first states that
a new controller gives). The steps are Kafka's.
"""

from enum import Enum

from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId, TopicPartition


class ReplicaState(Enum):
    """A replica's state. The controller context reports NON_EXISTENT for a replica that it does not
    have."""

    # Enum members are compared by identity, and hashing the identity is faster than Enum's hash of
    # the name.
    __hash__ = object.__hash__

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_DIED = (
    "its broker has died, cannot use its log, or shuts down and does not lead the partition; or "
    "its topic is to be deleted"
)
_NO_DELETION = "its topic is to be deleted, and its broker is not alive"

STEPS: dict[ReplicaState, dict[ReplicaState, str]] = {
    ReplicaState.NON_EXISTENT: {
        ReplicaState.NEW: "it was assigned to a broker",
    },
    ReplicaState.NEW: {
        ReplicaState.ONLINE: "its partition has a leader, and its broker gets LeaderAndIsr",
        ReplicaState.OFFLINE: _DIED,
    },
    ReplicaState.ONLINE: {
        ReplicaState.ONLINE: "its broker has registered again, and gets LeaderAndIsr again",
        ReplicaState.OFFLINE: _DIED,
    },
    ReplicaState.OFFLINE: {
        ReplicaState.ONLINE: "its broker has come back",
        ReplicaState.OFFLINE: _DIED,
        ReplicaState.DELETION_STARTED: "its broker gets StopReplica with the deletion",
        ReplicaState.DELETION_INELIGIBLE: _NO_DELETION,
    },
    ReplicaState.DELETION_STARTED: {
        ReplicaState.DELETION_SUCCESSFUL: "its broker has deleted it",
        ReplicaState.DELETION_INELIGIBLE: "its broker could not delete it, or has died",
    },
    ReplicaState.DELETION_SUCCESSFUL: {
        ReplicaState.NON_EXISTENT: "all replicas of its topic are deleted",
    },
    ReplicaState.DELETION_INELIGIBLE: {
        ReplicaState.ONLINE: "its broker has come back",
        ReplicaState.OFFLINE: "its broker has come back, and its deletion is tried again; or its "
        "broker has died",
    },
}

FOUND: dict[ReplicaState, str] = {
    ReplicaState.ONLINE: "its broker is alive",
    ReplicaState.DELETION_INELIGIBLE: "its broker is not alive",
}
"""The states that a new controller may give a replica, and when it gives each of them."""


def check_step(
    partition: TopicPartition, broker_id: BrokerId, before: ReplicaState, after: ReplicaState
) -> None:
    """Raise InvariantViolation for a step from state `before` to state `after` that STEPS, the
    table of permitted steps, does not contain."""
    if after not in STEPS[before]:
        raise InvariantViolation(
            f"the replica of {partition} on broker {broker_id} is {before.value} and cannot become"
            f" {after.value}; it may become {', '.join(each.value for each in STEPS[before])}"
        )
