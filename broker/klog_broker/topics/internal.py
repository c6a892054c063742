"""The partition counts, replica counts and settings of the brokers' internal topics."""

from collections.abc import Mapping
from dataclasses import dataclass

from klog_broker.config import BrokerConfig
from klog_broker.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The properties with which an internal topic is created, by the broker or by a client."""

    num_partitions: int
    replication_factor: int
    """The configured number of replicas. A standalone broker creates one replica; a cluster creates
    the topic only once it has that many brokers."""
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic | None:
    """Return the properties of the internal topic ``name``; None for any other topic."""
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
                # Kafka does not compress the transaction state either.
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            },
        )
    return None
