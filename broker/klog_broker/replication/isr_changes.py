"""The ISR changes that a leader requests from the controller with AlterPartition (KIP-497). Pure.

A leader requests one change of a partition at a time. The request names the leader epoch and the
partition epoch that the change starts from, so the controller makes the change at most once, even
if the leader sends the request several times.

The controller may carry out a request without a response much later, even after it has refused the
same change in another request. So if a request got no response, and the controller then refuses the
change, the change may still be made. The leader therefore requests the present ISR: the controller
raises the partition epoch for that request, and from then on refuses all earlier requests.

If the controller has another partition state than the leader, Kafka's leader waits for a
LeaderAndIsr request (AWAITS_LEADER_AND_ISR). The controller sends one only for a new leader epoch,
so if another program has changed the partition's znode, the high watermark may stand still until
then. klog's leader also reads the partition state of UpdateMetadata requests, and sends its request
again.
"""

from enum import Enum
from typing import NamedTuple

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch


class InSyncMember(NamedTuple):
    """A broker and the broker epoch in which it is in sync (KIP-903). The controller makes no
    change with any other broker epoch, because the broker's log may be shorter after a restart."""

    broker_id: BrokerId
    broker_epoch: int


class IsrChange(NamedTuple):
    """The request of a leader, with these epochs, to change the ISR to `members`."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: tuple[InSyncMember, ...]


class CommittedIsr(NamedTuple):
    """A partition state (leader epoch, partition epoch and ISR) that the controller has
    committed."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: tuple[BrokerId, ...]


IsrResult = CommittedIsr | ErrorCode
"""The controller's response to an ISR change: the partition state that it has committed, or an
error."""


class IsrOutcome(Enum):
    """The leader's next state after a response to an ISR change."""

    COMMITTED = "the ISR is the one in the controller's response"
    REFUSED = "the change was not made and never will be, so the ISR is unchanged"
    AWAITS_LEADER_AND_ISR = (
        "the controller has a newer state than this leader: until LeaderAndIsr brings that state,"
        " the high watermark waits for the replicas of the old and of the requested ISR"
    )
    RETRY = (
        "the change may have been made, or may still be made: the leader sends the ISR that it"
        " wants now"
    )
    STALE = "the response belongs to a change that the leader no longer requests"


_NOT_MADE = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""With these errors the controller says that it has the partition epoch of the request, and has not
made the change of the ISR. The unchanged partition epoch shows that no other controller has made
the change. The change may still be made if the same request was sent before, and that earlier copy
arrives late."""

_LEADER_AND_ISR_FOLLOWS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def after_error(error: ErrorCode) -> IsrOutcome:
    """Return the leader's next state after AlterPartition has failed with this error; the same as
    Kafka (Partition.handleAlterPartitionError)."""
    if error in _NOT_MADE:
        return IsrOutcome.REFUSED
    return (
        IsrOutcome.AWAITS_LEADER_AND_ISR if error in _LEADER_AND_ISR_FOLLOWS else IsrOutcome.RETRY
    )
