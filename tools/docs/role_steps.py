"""The steps between the roles of a hosted partition, and the error that clients get in each role.

docs/roles.md is printed from these tables, and a test compares them with a Partition's behaviour.
"""

from enum import Enum

from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Follower, Offline, Role, Unassigned
from pyspark_klog.errors import ErrorCode

Kind = type[Role] | None
"""A role's type; None: this broker does not host the partition (any more)."""


class Event(Enum):
    """The events that can change a role, in words."""

    LEAD = "a role change to lead, in a newer leader epoch"
    FOLLOW = "a role change that names another leader, or none"
    STOP = "a role change to stop"
    DELETE = "a role change to stop and to delete the log"
    OFFLINE = "the log goes offline, alone or with its directory"


def _while_usable(before: Kind) -> dict[Event, Kind]:
    made = {Event.LEAD: Leader, Event.FOLLOW: Follower}
    if before is None:
        return {**made, Event.STOP: None, Event.DELETE: None}
    return {**made, Event.STOP: Unassigned, Event.DELETE: None, Event.OFFLINE: Offline}


STEPS: dict[Kind, dict[Event, Kind]] = {
    None: _while_usable(None),
    Unassigned: _while_usable(Unassigned),
    Leader: _while_usable(Leader),
    Follower: _while_usable(Follower),
    Offline: dict.fromkeys(Event, Offline),
}
"""The role after each event. A replica whose log is offline stays so until the broker restarts."""

TOLD: dict[type[Role], ErrorCode] = {
    Unassigned: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Leader: ErrorCode.NONE,
    Follower: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Offline: ErrorCode.KAFKA_STORAGE_ERROR,
}
"""The error of Produce, Fetch and other requests to a leader; NONE: requests are served."""
