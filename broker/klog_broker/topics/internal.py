"""The settings with which topics of a broker's own state are created."""

from klog_broker.config import BrokerConfig


def offsets_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """The topic settings of ``__consumer_offsets``."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config["offsets.topic.segment.bytes"]),
    }
