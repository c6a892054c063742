"""The states that a controller keeps for each replica, and every step between them.

docs/controller.md is printed from this table. The steps are Kafka's.
"""

from enum import Enum

from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId, TopicPartition


class ReplicaState(Enum):
    """NON_EXISTENT is also the state of a replica that the controller does not know."""

    # Compared by identity, as members of an enumeration are: the hash of their names takes longer.
    __hash__ = object.__hash__

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_DIED = (
    "its broker has died, cannot use its log, or shuts down and no longer needs it; or its topic "
    "is to be deleted"
)
_NO_DELETION = "its topic is to be deleted, and its broker is not alive"

STEPS: dict[ReplicaState, dict[ReplicaState, str]] = {
    ReplicaState.NON_EXISTENT: {
        ReplicaState.NEW: "it was assigned to a broker",
    },
    ReplicaState.NEW: {
        ReplicaState.ONLINE: "its partition has a leader, and its broker was told",
        ReplicaState.OFFLINE: _DIED,
    },
    ReplicaState.ONLINE: {
        ReplicaState.ONLINE: "its broker is told again, since it has come back",
        ReplicaState.OFFLINE: _DIED,
    },
    ReplicaState.OFFLINE: {
        ReplicaState.ONLINE: "its broker has come back",
        ReplicaState.OFFLINE: _DIED,
        ReplicaState.DELETION_STARTED: "its broker is told to delete it",
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
"""The states in which a broker finds a replica when it becomes the controller."""


def check_step(
    partition: TopicPartition, broker_id: BrokerId, before: ReplicaState, after: ReplicaState
) -> None:
    """Raise InvariantViolation for a step that the table does not name."""
    if after not in STEPS[before]:
        raise InvariantViolation(
            f"the replica of {partition} on broker {broker_id} is {before.value} and cannot become"
            f" {after.value}; it may become {', '.join(each.value for each in STEPS[before])}"
        )
