"""Finds the topic of a lake table in a cluster."""

from dataclasses import dataclass

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import TopicMissing, broker_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
from pyspark_klog.lake_tables.border import Origin


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as brokers describe it now."""

    origin: Origin
    topic_id: UUID
    """All zero if brokers have no topic ids."""
    partitions: list[TopicPartition]


def find_topic(client: BlockingClient, topic: str) -> FoundTopic:
    """Ask brokers for a topic.

    :raises TopicMissing: if the topic does not exist
    :raises KlogError: if the brokers refuse to describe it, or cannot be reached
    """
    client.refresh([topic])
    info = client.view.topics[topic]
    if not info.partitions and info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise TopicMissing(f"topic {topic} does not exist: create it, or correct its name")
    if not info.partitions:
        raise broker_error(info.error, f"topic {topic}")
    topic_id = client.view.topic_id(topic)
    id_text = "" if topic_id == NO_TOPIC_ID else str(topic_id)
    origin = Origin(client.view.cluster_id or "", topic, id_text)
    return FoundTopic(
        origin, topic_id, [TopicPartition(topic, each) for each in sorted(info.partitions)]
    )
