"""What the cluster has one of: its id, its controller and epoch, its features, and the block of
producer ids that was given out last.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_klog.ids import BrokerId, ProducerId
from pyspark_klog.znodes.data import read_epoch, read_object, write_json
from pyspark_klog.znodes.paths import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURE,
    PRODUCER_ID_BLOCK,
)

CONTROLLER_VERSION = 2
FIRST_CONTROLLER_EPOCH = 1
FEATURE_VERSION = 2
NO_FEATURES = write_json({"features": {}, "version": FEATURE_VERSION, "status": 1})
"""/feature of a cluster whose features are on and none of them finalized: what klog writes."""

_CLUSTER_ID = re.compile("[!-~]{1,100}", re.ASCII)
_ENABLED = 1


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """/controller, ephemeral. ``kraft_controller_epoch`` is -1 unless the cluster is migrating to
    KRaft and a KRaft controller holds the znode."""

    broker_id: BrokerId
    timestamp_ms: int
    kraft_controller_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """/feature: the level of each feature that was finalized; ``enabled`` is False in a cluster
    whose inter.broker.protocol.version is older than features."""

    enabled: bool
    levels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The ids from ``first`` to ``last``, this one included, are the broker's."""

    broker_id: BrokerId
    first: ProducerId
    last: ProducerId


def encode_controller(registration: ControllerRegistration) -> bytes:
    """Version 2."""
    return write_json(
        {
            "version": CONTROLLER_VERSION,
            "brokerid": registration.broker_id,
            "timestamp": str(registration.timestamp_ms),
            "kraftControllerEpoch": registration.kraft_controller_epoch,
        }
    )


def decode_controller(data: bytes | None) -> ControllerRegistration:
    """Any version (Kafka does not look at it): 1 knows nothing of KRaft.

    :raises ZnodeError: if it is none
    """
    fields = read_object(CONTROLLER, data)
    return ControllerRegistration(
        broker_id=BrokerId(fields.int32("brokerid", minimum=-1)),
        timestamp_ms=fields.int64_text("timestamp") if "timestamp" in fields else -1,
        kraft_controller_epoch=(
            fields.int32("kraftControllerEpoch", minimum=-1)
            if "kraftControllerEpoch" in fields.values
            else -1
        ),
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """The number as text."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes | None) -> int:
    """:raises ZnodeError: if it is no number"""
    return read_epoch(CONTROLLER_EPOCH, data)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Its version is a text, since ever."""
    return write_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """Usually 22 characters of base64, but somebody may have chosen another one.

    :raises ZnodeError: if it is none
    """
    fields = read_object(CLUSTER_ID, data)
    cluster_id = fields.text("id")
    if not _CLUSTER_ID.fullmatch(cluster_id):
        fields.refuse("id", "to be 1 to 100 visible characters of ASCII")
    return cluster_id


def decode_features(data: bytes | None) -> FinalizedFeatures:
    """Versions 1 and 2, as Kafka: a later one says what an older broker must not do.

    :raises ZnodeError: if it is none
    """
    fields = read_object(FEATURE, data)
    version = fields.version(newest=FEATURE_VERSION)
    status = fields.int32("status", minimum=0)
    if status > _ENABLED:
        fields.refuse("status", "to be 0 (off) or 1 (on)")
    features = fields.inner("features")
    levels = {}
    for name in features.values:
        inner = features.inner(name)
        minimum = inner.int16("min_version_level", minimum=1) if version == 1 else 0
        levels[name] = inner.int16("max_version_level", minimum=minimum)
    return FinalizedFeatures(status == _ENABLED, levels)


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Version 1."""
    return write_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock:
    """Any version: Kafka does not look at it. (Without data nothing was given out yet.)

    :raises ZnodeError: if it is none
    """
    fields = read_object(PRODUCER_ID_BLOCK, data)
    first, last = fields.int64_text("block_start"), fields.int64_text("block_end")
    if not 0 <= first <= last:
        fields.refuse("block_end", f"to be at least block_start, {first}, which is not negative")
    broker_id = BrokerId(fields.int32("broker", minimum=-1))
    return ProducerIdBlock(broker_id, ProducerId(first), ProducerId(last))
