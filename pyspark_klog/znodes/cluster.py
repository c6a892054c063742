"""Znodes that exist once in a cluster: cluster id, controller and its epoch, features, and the
last allocated block of producer ids.
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
"""Data of /feature that klog writes: features are enabled, and no feature is finalized."""

_CLUSTER_ID = re.compile("[!-~]{1,100}", re.ASCII)
_ENABLED = 1


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """/controller, an ephemeral znode: the broker that is the controller.

    ``kraft_controller_epoch`` is -1 unless the cluster is migrating to KRaft and a KRaft controller
    has created the znode.
    """

    broker_id: BrokerId
    timestamp_ms: int
    kraft_controller_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """/feature: the level of each finalized feature.

    ``enabled`` is False if the cluster's inter.broker.protocol.version is too old for features.
    """

    enabled: bool
    levels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The producer ids ``first`` to ``last``, both inclusive, which only the broker ``broker_id``
    gives to producers."""

    broker_id: BrokerId
    first: ProducerId
    last: ProducerId


def encode_controller(registration: ControllerRegistration) -> bytes:
    """Encode /controller in version 2."""
    return write_json(
        {
            "version": CONTROLLER_VERSION,
            "brokerid": registration.broker_id,
            "timestamp": str(registration.timestamp_ms),
            "kraftControllerEpoch": registration.kraft_controller_epoch,
        }
    )


def decode_controller(data: bytes | None) -> ControllerRegistration:
    """Decode /controller of any version: Kafka does not check the version.

    Version 1 has no KRaft controller epoch.

    :raises ZnodeError: if ``data`` names no controller
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
    """Encode /controller_epoch as decimal text."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes | None) -> int:
    """Decode /controller_epoch.

    :raises ZnodeError: if ``data`` is no epoch
    """
    return read_epoch(CONTROLLER_EPOCH, data)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode /cluster/id. Its version is a JSON string, as in Kafka; other znodes have a number."""
    return write_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """Decode /cluster/id: usually 22 characters of base64, but an operator may choose another id.

    :raises ZnodeError: if ``data`` has no id of 1 to 100 visible ASCII characters
    """
    fields = read_object(CLUSTER_ID, data)
    cluster_id = fields.text("id")
    if not _CLUSTER_ID.fullmatch(cluster_id):
        fields.raise_error("id", "to be 1 to 100 visible characters of ASCII")
    return cluster_id


def decode_features(data: bytes | None) -> FinalizedFeatures:
    """Decode /feature of version 1 or 2.

    Like Kafka, the function refuses later versions: they may have a meaning that an older broker
    must not ignore.

    :raises ZnodeError: if ``data`` is no such list of features
    """
    fields = read_object(FEATURE, data)
    version = fields.version(newest=FEATURE_VERSION)
    status = fields.int32("status", minimum=0)
    if status > _ENABLED:
        fields.raise_error("status", "to be 0 (off) or 1 (on)")
    features = fields.inner("features")
    levels = {}
    for name in features.values:
        inner = features.inner(name)
        minimum = inner.int16("min_version_level", minimum=1) if version == 1 else 0
        levels[name] = inner.int16("max_version_level", minimum=minimum)
    return FinalizedFeatures(status == _ENABLED, levels)


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Encode /latest_producer_id_block in version 1."""
    return write_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock:
    """Decode /latest_producer_id_block of any version: Kafka does not check the version.

    The znode has no data before the first allocation; do not call this function then.

    :raises ZnodeError: if ``data`` is no block of producer ids
    """
    fields = read_object(PRODUCER_ID_BLOCK, data)
    first, last = fields.int64_text("block_start"), fields.int64_text("block_end")
    if not 0 <= first <= last:
        fields.raise_error(
            "block_end", f"to be at least block_start, {first}, which is not negative"
        )
    broker_id = BrokerId(fields.int32("broker", minimum=-1))
    return ProducerIdBlock(broker_id, ProducerId(first), ProducerId(last))
