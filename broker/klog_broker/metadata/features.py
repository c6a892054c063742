"""Kafka's features and the levels at which a cluster has finalized them (KIP-584)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

TRANSACTION_VERSION = "transaction.version"


class FinalizedFeatures(NamedTuple):
    """`levels` has the level of each finalized feature by name. `epoch` rises whenever a level
    changes."""

    levels: Mapping[str, int]
    epoch: int = 0


NO_FEATURES = FinalizedFeatures(MappingProxyType({}))
"""A cluster over ZooKeeper: its znode /feature finalizes nothing, so clients use the protocol of
transaction.version 0."""

STANDALONE_FEATURES = FinalizedFeatures(MappingProxyType({TRANSACTION_VERSION: 2}))
"""A standalone broker."""
