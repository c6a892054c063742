"""Clusters of brokers with a bug. Where that code moves, mend it here."""

from typing import Any

from klog_broker.replication import leader_replicas
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from pyspark_klog.ids import Offset
from tests.simulation.elections.mutants import MUTANTS as OF_ELECTIONS
from tests.simulation.mutants.mutant import Mutant


def _at_append(_original: Any) -> Any:
    def acks_all(_replicas: Any, _required_offset: int, _high_watermark: int) -> AcksAll:
        """Nobody else is waited for."""
        return AcksAll.SAFE

    return acks_all


def _at_log_end(_original: Any) -> Any:
    def watermark(
        _replicas: Any, _set_before: int, own_end: int, _leader_end: int, _now_ms: int
    ) -> Offset:
        """As if there were no followers."""
        return Offset(own_end)

    return watermark


def _joins_behind(_original: Any) -> Any:
    def may_join(_follower_end: int, **_named: int) -> bool:
        """However far behind it is."""
        return True

    return may_join


def _once_only(_original: Any) -> Any:
    def grow_by_idle(_replicas: Any, _leader_end: int, _high_watermark: int) -> None:
        """Who was refused once and has no news is not asked for again."""

    return grow_by_idle


_ALSO_OF_CLUSTERS = (
    "node and epoch in two steps",
    "epoch not raised",
    "watch missed after a break",
    "registered once",
    "last life not waited for",
    "change while reading lost",
)

MUTANTS = (
    Mutant("acks=all at append", LeaderReplicas, "acks_all", _at_append),
    Mutant("watermark at the log's end", LeaderReplicas, "watermark", _at_log_end),
    Mutant("joins however far behind", leader_replicas, "may_join", _joins_behind),
    Mutant("idle followers asked for once", LeaderReplicas, "grow_by_idle", _once_only),
    *(each for each in OF_ELECTIONS if each.name in _ALSO_OF_CLUSTERS),
)
