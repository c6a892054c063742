"""The errors of replicas. The handlers translate them into Kafka's error codes."""

from enum import Enum

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition


class ReplicationError(KlogError):
    """The base class of the errors in this package."""


class StaleRoleChange(ReplicationError):
    """A role change (the controller's instruction to lead, follow or stop) has older epochs than
    the replica has already."""


class NotEnoughReplicas(ReplicationError):
    """Fewer replicas are in sync than min.insync.replicas asks for (NOT_ENOUGH_REPLICAS)."""


class TooLittleFreeSpace(ReplicationError):
    """An append was refused, because the disk has too little free space: it fell below the limit of
    log.dir.min.free.bytes, and has not risen a quarter above the limit since. Coordinators' records
    have a quarter of the limit. The response is NOT_ENOUGH_REPLICAS."""


class NotAReplica(ReplicationError):
    """A broker fetches as a follower, but the leader does not know the broker as a replica of the
    partition. The response is UNKNOWN_LEADER_EPOCH: the leader may learn of the replica later."""


class StaleBrokerEpoch(NotAReplica):
    """A Fetch has an older broker epoch than the follower's newest one (NOT_LEADER_OR_FOLLOWER)."""


class EndReason(Enum):
    """Why a leadership has ended."""

    RESIGNED = "another broker is the leader, or a newer leader epoch has begun"
    OFFLINE = "the log is offline"
    DELETED = "the partition is deleted"


class LeadershipEnded(ReplicationError):
    """An append was refused, because this broker's leadership of the partition has ended."""

    def __init__(self, topic_partition: TopicPartition, ended: EndReason) -> None:
        super().__init__(f"this broker no longer leads {topic_partition}: {ended.value}")
        self.ended = ended
