"""Each kind of znode by its path: its decoder and its encoder."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.znodes.admin import (
    decode_isr_change,
    decode_log_dir_event,
    decode_preferred_replica_election,
    decode_reassignment,
    encode_isr_change,
    encode_log_dir_event,
    encode_preferred_replica_election,
    encode_reassignment,
)
from pyspark_klog.znodes.brokers import decode_broker, encode_broker
from pyspark_klog.znodes.cluster import (
    NO_FEATURES,
    FinalizedFeatures,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_features,
    decode_producer_id_block,
    encode_cluster_id,
    encode_controller,
    encode_controller_epoch,
    encode_producer_id_block,
)
from pyspark_klog.znodes.configs import (
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from pyspark_klog.znodes.consumers import (
    decode_consumer,
    decode_offset,
    decode_owner,
    encode_consumer,
    encode_offset,
    encode_owner,
)
from pyspark_klog.znodes.topics import (
    decode_partition_state,
    decode_topic,
    encode_partition_state,
    encode_topic,
)


class Codec(NamedTuple):
    """``decode`` takes the znode's bytes; it knows the path where that matters."""

    decode: Callable[[bytes | None], Any]
    encode: Callable[[Any], bytes]


def _encode_features(features: FinalizedFeatures) -> bytes:
    assert features == FinalizedFeatures(enabled=True, levels={})
    return NO_FEATURES


_CODECS: dict[str, Callable[..., Codec]] = {
    r"/brokers/ids/(\d+)": lambda name: Codec(
        lambda data: decode_broker(BrokerId(int(name)), data), encode_broker
    ),
    r"/brokers/topics/([^/]+)": lambda name: Codec(
        lambda data: decode_topic(name, data), encode_topic
    ),
    r"/brokers/topics/([^/]+)/partitions/(\d+)/state": lambda topic, partition: Codec(
        lambda data: decode_partition_state(TopicPartition(topic, int(partition)), data),
        encode_partition_state,
    ),
    "/controller": lambda: Codec(decode_controller, encode_controller),
    "/controller_epoch": lambda: Codec(decode_controller_epoch, encode_controller_epoch),
    "/cluster/id": lambda: Codec(decode_cluster_id, encode_cluster_id),
    "/feature": lambda: Codec(decode_features, _encode_features),
    "/latest_producer_id_block": lambda: Codec(decode_producer_id_block, encode_producer_id_block),
    "/config/changes/([^/]+)": lambda name: Codec(
        lambda data: decode_config_change(name, data), encode_config_change
    ),
    "(/config/(?!changes/).+)": lambda path: Codec(
        lambda data: decode_config(path, data), encode_config
    ),
    "/admin/reassign_partitions": lambda: Codec(decode_reassignment, encode_reassignment),
    "/admin/preferred_replica_election": lambda: Codec(
        decode_preferred_replica_election, encode_preferred_replica_election
    ),
    "/isr_change_notification/([^/]+)": lambda name: Codec(
        lambda data: decode_isr_change(name, data), encode_isr_change
    ),
    "/log_dir_event_notification/([^/]+)": lambda name: Codec(
        lambda data: decode_log_dir_event(name, data), encode_log_dir_event
    ),
    "(/consumers/[^/]+/ids/[^/]+)": lambda path: Codec(
        lambda data: decode_consumer(path, data), encode_consumer
    ),
    r"(/consumers/[^/]+/owners/[^/]+/\d+)": lambda path: Codec(
        lambda data: decode_owner(path, data), encode_owner
    ),
    r"(/consumers/[^/]+/offsets/[^/]+/\d+)": lambda path: Codec(
        lambda data: decode_offset(path, data), encode_offset
    ),
}

ONE_OF_EACH = (
    "/brokers/ids/7",
    "/brokers/topics/t",
    "/brokers/topics/t/partitions/0/state",
    "/controller",
    "/controller_epoch",
    "/cluster/id",
    "/feature",
    "/latest_producer_id_block",
    "/config/changes/config_change_0000000001",
    "/config/topics/t",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/isr_change_notification/isr_change_0000000001",
    "/log_dir_event_notification/log_dir_event_0000000001",
    "/consumers/g/ids/c",
    "/consumers/g/owners/t/0",
    "/consumers/g/offsets/t/0",
)
"""A path of every kind of znode that has data."""


def codec(path: str) -> Codec:
    """How the znode at ``path`` is read and written."""
    for pattern, make in _CODECS.items():
        if found := re.fullmatch(pattern, path):
            return make(*found.groups())
    raise KeyError(f"no codec for {path}")
