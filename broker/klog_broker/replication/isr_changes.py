"""Changes of an in-sync set that a leader asks the controller for: AlterPartition (KIP-497). Pure.

One change of a partition is asked for at a time. It names the epochs that it starts from, so the
controller makes it at most once, however often it is sent.

A request that nobody has answered may be carried out much later, after the same was refused. So
once one was given up, a refusal is not the end: the leader asks for the set that there is, by which
the controller raises the partition epoch, and no earlier request counts any more.

Kafka's leader waits for an order where the controller starts from another state than its own
(AWAITS_ORDER), and none comes unless the leader epoch is another one: what somebody else has
written into the partition's znode holds its watermark up until then. klog's leader looks at what is
told beside the orders (UpdateMetadata), and asks again.
"""

from enum import Enum
from typing import NamedTuple

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch


class InSyncMember(NamedTuple):
    """A broker, and the life in which it is in sync (KIP-903). The controller refuses another life:
    the broker's log may be shorter in that."""

    broker_id: BrokerId
    broker_epoch: int


class IsrChange(NamedTuple):
    """A leader of these epochs asks for this in-sync set."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: tuple[InSyncMember, ...]


class CommittedIsr(NamedTuple):
    """The controller's answer that a change is made: the partition's state now."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: tuple[BrokerId, ...]


IsrAnswer = CommittedIsr | ErrorCode
"""What a controller says of a change."""


class Afterwards(Enum):
    """What follows from an answer."""

    COMMITTED = "the set is what the controller says"
    TAKEN_BACK = "the change was not made, and never will be: the set is what it was"
    AWAITS_ORDER = "the controller's state is another one: until it is known both sets count"
    AGAIN = "the change may have been made, or may yet be: what is asked for now is to be sent"
    TOO_LATE = "the answer is about a change that is no longer asked for"


_NOT_MADE = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""By these the controller says that it knows the partition epoch and has not made the change. No
other controller can have made it, either. It may yet be made if an earlier sending is late."""

_ORDER_COMES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def after_error(error: ErrorCode) -> Afterwards:
    """What follows from an error, as in Kafka (Partition.handleAlterPartitionError)."""
    if error in _NOT_MADE:
        return Afterwards.TAKEN_BACK
    return Afterwards.AWAITS_ORDER if error in _ORDER_COMES else Afterwards.AGAIN
