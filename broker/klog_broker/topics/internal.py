"""The topics that hold a broker's own state: what they are made with."""

from collections.abc import Mapping
from dataclasses import dataclass

from klog_broker.config import BrokerConfig
from klog_broker.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """What a topic of the broker's own state is made with, whoever makes it."""

    num_partitions: int
    replication_factor: int
    """As it is set: a broker that runs alone makes one replica. A cluster waits for its brokers."""
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic | None:
    """None for a topic of clients."""
    if name == CONSUMER_OFFSETS:
        return InternalTopic(
            config["offsets.topic.num.partitions"],
            config["offsets.topic.replication.factor"],
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
            },
        )
    if name == TRANSACTION_STATE:
        return InternalTopic(
            config["transaction.state.log.num.partitions"],
            config["transaction.state.log.replication.factor"],
            {
                "cleanup.policy": "compact",
                # As in Kafka it is never compressed.
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            },
        )
    return None
