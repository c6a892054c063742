"""What a replica can refuse. Only the handlers know the numbers on the wire."""

from enum import Enum

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition


class ReplicationError(KlogError):
    """Root of this room."""


class StaleOrder(ReplicationError):
    """The order is older than what the replica was told before."""


class NotEnoughReplicas(ReplicationError):
    """Fewer replicas are in sync than min.insync.replicas asks for (NOT_ENOUGH_REPLICAS)."""


class Ended(Enum):
    """Why a leadership is over."""

    RESIGNED = "another broker leads, or a newer epoch has begun"
    OFFLINE = "its log is offline"
    DELETED = "the partition is deleted"


class LeadershipEnded(ReplicationError):
    """This leadership is over: nothing is appended in its name any more."""

    def __init__(self, topic_partition: TopicPartition, ended: Ended) -> None:
        super().__init__(f"{topic_partition} is not led here any more: {ended.value}")
        self.ended = ended
