"""Kafka's features and the levels at which a cluster has finalized them (KIP-584)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

TRANSACTION_VERSION = "transaction.version"


class FinalizedFeatures(NamedTuple):
    """The finalized features: `levels` by feature name. `epoch` rises whenever a level changes."""

    levels: Mapping[str, int]
    epoch: int = 0


NO_FEATURES = FinalizedFeatures(MappingProxyType({}))
"""The features of a cluster that uses ZooKeeper: its znode /feature finalizes nothing, so clients
use the protocol of transaction.version 0."""

STANDALONE_FEATURES = FinalizedFeatures(MappingProxyType({TRANSACTION_VERSION: 2}))
"""The features of a standalone broker."""
