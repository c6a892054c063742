"""The errors of replicas. Only the handlers know Kafka's numbers for them."""

from enum import Enum

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition


class ReplicationError(KlogError):
    """Root of this room."""


class StaleOrder(ReplicationError):
    """The order's epochs are older than those of an order that the replica had before."""


class NotEnoughReplicas(ReplicationError):
    """Fewer replicas are in sync than min.insync.replicas asks for (NOT_ENOUGH_REPLICAS)."""


class TooLittleRoom(ReplicationError):
    """The disk has less free space than log.dir.min.free.bytes asks for (NOT_ENOUGH_REPLICAS)."""


class NotAReplica(ReplicationError):
    """A broker fetches as a follower of a partition that it has no replica of, as far as the leader
    knows (UNKNOWN_LEADER_EPOCH: the leader may hear of it later)."""


class EarlierLife(NotAReplica):
    """A Fetch was sent before the follower's broker was last started (NOT_LEADER_OR_FOLLOWER)."""


class Ended(Enum):
    """Why a leadership is over."""

    RESIGNED = "another broker leads, or a newer epoch has begun"
    OFFLINE = "its log is offline"
    DELETED = "the partition is deleted"


class LeadershipEnded(ReplicationError):
    """The leadership is over: nothing can be appended through it any more."""

    def __init__(self, topic_partition: TopicPartition, ended: Ended) -> None:
        super().__init__(f"{topic_partition} is not led here any more: {ended.value}")
        self.ended = ended
