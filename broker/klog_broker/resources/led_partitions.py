"""Finds this broker's leadership of a requested partition, or the error if it has none, for the
APIs that read or change a partition's log, such as Produce and ListOffsets."""

from typing import Protocol

from klog_broker.cluster.known_topics import KnownTopics
from klog_broker.metadata.interface import MetadataStore
from klog_broker.replication.errors import EndReason
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Offline
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.resources.authorizer import AuthorizerServices
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.records.layout import NO_LEADER_EPOCH


class PartitionServices(AuthorizerServices, Protocol):
    """The part of the broker's services that the look-up of a led partition uses."""

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def known_topics(self) -> KnownTopics: ...


def topic_name(services: PartitionServices, topic_id: UUID, partition: int) -> str:
    """The name of the topic with this id, for a request to the partition's leader.

    This broker's leaderships are looked up first, and the metadata image (the snapshot of topics
    and partitions) only if there is none: in a cluster a broker becomes the leader before its image
    shows the topic, and the image may still show an earlier topic of the same name. Both topics
    begin with the same leader epoch, so only the id distinguishes their records.

    :raises BrokerError: UNKNOWN_TOPIC_ID if the topic does not exist (any more), or if this broker
        leads the partition of another topic with the same name
    """
    leader = services.replicas.led_by_id.get((topic_id, partition))
    if leader is not None:
        return leader.topic_partition.topic
    topic = services.metadata.image.topic_by_id(topic_id)
    if topic is None or (topic.name, partition) in services.replicas.led:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    return topic.name


def led_partition(services: PartitionServices, topic: str, partition: int) -> Leader:
    """This broker's leadership of a partition; BrokerError if it has none.

    Only the partition's role decides; the metadata image (the snapshot of topics and partitions)
    only supplies the reason of an error.
    """
    leader = services.replicas.led.get((topic, partition))
    if leader is None:
        raise BrokerError(why_not_led(services, topic, partition))
    return leader


def ended_code(services: PartitionServices, leader: Leader) -> ErrorCode:
    """The error for a delayed request that waited in a leadership of this broker which has
    ended."""
    if leader.ended is EndReason.OFFLINE:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if leader.ended is EndReason.DELETED:
        return why_not_led(services, *leader.topic_partition)
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def why_not_led(services: PartitionServices, topic: str, partition: int) -> ErrorCode:
    """The error for a request to the leader of a partition that this broker does not lead."""
    if services.metadata.image.partition(topic, partition) is None:
        if not services.known_topics.is_complete:
            # The controller has not sent all topics to this broker yet: the partition may exist,
            # and this broker may become its leader soon.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    hosted = services.replicas.partition(topic, partition)
    if hosted is not None and isinstance(hosted.role, Offline):
        return ErrorCode.KAFKA_STORAGE_ERROR
    # The logs of a new topic may still be in creation: this error makes clients retry.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def check_leader_epoch(leader: Leader, current_leader_epoch: int) -> None:
    """Raise BrokerError unless the client's leader epoch equals the leader's (KIP-320).

    A client that does not know the epoch sends -1, which is accepted. A lower epoch is fenced.
    """
    if current_leader_epoch in (NO_LEADER_EPOCH, leader.leader_epoch):
        return
    if current_leader_epoch < leader.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH)
