"""A client's snapshot of a cluster: brokers, topics, leaders. Pure; `blocking_client.py` keeps it
up to date."""

from dataclasses import dataclass, field, replace
from typing import Self

from pyspark_klog.client.errors import error_code
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition. ``leader`` is a broker's id, or -1 without a leader; ``leader_epoch`` is -1 if
    the broker is too old to send it."""

    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic as a broker described it; ``topic_id`` is all zero before Kafka 2.8."""

    name: str
    topic_id: UUID = NO_TOPIC_ID
    is_internal: bool = False
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ClusterView:
    """An immutable snapshot of a cluster's metadata; `merged` makes the next snapshot from this one
    and a newer response."""

    brokers: dict[int, Address] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    controller_id: int = -1
    cluster_id: str | None = None
    racks: dict[int, str] = field(default_factory=dict)
    """The racks of the brokers that have one (broker.rack), by broker id."""

    @classmethod
    def of(cls, response: MetadataResponse) -> Self:
        """The snapshot in a response to a Metadata request."""
        return cls(
            {b.node_id: Address(b.host, b.port) for b in response.brokers},
            {t.name: _topic(t) for t in response.topics if t.name is not None},
            response.controller_id,
            response.cluster_id,
            {b.node_id: b.rack for b in response.brokers if b.rack is not None},
        )

    def merged(self, newer: "ClusterView") -> "ClusterView":
        """The snapshot ``newer``, completed from this view: with the topics that ``newer`` lacks,
        and with the partitions for which ``newer`` has an older leader epoch.

        A response can come from a broker with old metadata: a leader with an older epoch than the
        known one is ignored, unless the topic was deleted and created again (its id differs).
        """
        topics = dict(self.topics)
        for name, topic in newer.topics.items():
            known = topics.get(name)
            if topic.error is not ErrorCode.NONE and not topic.partitions:
                topics[name] = topic
            elif known is not None and known.topic_id == topic.topic_id:
                topics[name] = _with_newest_epochs(known, topic)
            else:
                topics[name] = topic
        return replace(newer, topics=topics)

    def leader(self, partition: TopicPartition) -> PartitionInfo | None:
        """The partition's metadata, if it is known and names a leader with a known address."""
        topic = self.topics.get(partition.topic)
        info = topic.partitions.get(partition.partition) if topic else None
        if info is None or info.leader not in self.brokers:
            return None
        return info

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether the partition exists according to the metadata, with or without a leader. True if
        the topic has an error other than UNKNOWN_TOPIC_OR_PARTITION: then the metadata may lack
        partitions that exist."""
        topic = self.topics.get(partition.topic)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        return partition.partition in topic.partitions or topic.error is not ErrorCode.NONE

    def topic_id(self, name: str) -> UUID:
        """The topic's id; all zero if it is unknown or the brokers have none."""
        topic = self.topics.get(name)
        return topic.topic_id if topic else NO_TOPIC_ID


def _with_newest_epochs(known: TopicInfo, topic: TopicInfo) -> TopicInfo:
    partitions = {
        number: known.partitions[number]
        if number in known.partitions
        and 0 <= info.leader_epoch < known.partitions[number].leader_epoch
        else info
        for number, info in topic.partitions.items()
    }
    return replace(topic, partitions=partitions)


def _topic(row: MetadataResponseTopic) -> TopicInfo:
    return TopicInfo(
        row.name or "",
        row.topic_id,
        row.is_internal,
        {p.partition_index: _partition(p) for p in row.partitions},
        error_code(row.error_code),
    )


def _partition(row: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
        error_code(row.error_code),
    )


def metadata_request(names: list[str] | None, version: int, may_create: bool) -> MetadataRequest:
    """A request for the topics ``names`` (None: all). With ``may_create``, brokers whose setting
    auto.create.topics.enable is true create missing topics of these names.

    Before version 4 such a broker creates each missing topic that a request names. Without
    ``may_create`` the request therefore asks for all topics.
    """
    request = MetadataRequest()
    if version >= 4:
        request.allow_auto_topic_creation = may_create
    if names is None or (version < 4 and not may_create):
        request.topics = None if version >= 1 else []
    else:
        request.topics = [MetadataRequestTopic(name=name) for name in names]
    return request
