"""Clusters of brokers with a bug. Where that code moves, mend it here."""

from dataclasses import replace
from typing import Any

from klog_broker.handlers.pending_produce import PendingProduce
from klog_broker.replication.leader_replicas import LeaderReplicas
from pyspark_klog.ids import Offset
from tests.simulation.clusters.coordination_mutants import MUTANTS as OF_COORDINATION
from tests.simulation.elections.mutants import MUTANTS as OF_ELECTIONS
from tests.simulation.mutants.mutant import Mutant


def _at_append(_original: Any) -> Any:
    def safe_offset(_pending: Any, leader: Any) -> Any:
        """Nobody else is waited for."""
        return leader.log.log_end_offset

    return safe_offset


def _at_log_end(_original: Any) -> Any:
    def watermark(
        _replicas: Any, _set_before: int, own_end: int, _leader_end: int, _now_ms: int
    ) -> Offset:
        """As if there were no followers."""
        return Offset(own_end)

    return watermark


def _once_only(_original: Any) -> Any:
    def grow_by_idle(_replicas: Any, _leader_end: int, _high_watermark: int) -> None:
        """Who was refused once and has no news is not asked for again."""

    return grow_by_idle


_ALSO_OF_CLUSTERS = {
    "node and epoch in two steps": 0,
    "epoch not raised": 0,
    "watch missed after a break": 70,
    "registered once": 0,
    "last life not waited for": 26,
    "change while reading lost": 0,
}
"""And their kept seeds here."""

MUTANTS = (
    Mutant("acks=all at append", PendingProduce, "_safe_offset", _at_append),
    Mutant("watermark at the log's end", LeaderReplicas, "watermark", _at_log_end),
    Mutant(
        "idle followers asked for once", LeaderReplicas, "grow_by_idle", _once_only, kept_seed=27
    ),
    *(
        replace(each, kept_seed=_ALSO_OF_CLUSTERS[each.name])
        for each in OF_ELECTIONS
        if each.name in _ALSO_OF_CLUSTERS
    ),
    *OF_COORDINATION,
)
