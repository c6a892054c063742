"""Bugs of leaders: in the high watermark, in acknowledgements, in the ISR."""

from typing import Any

from klog_broker.produce.pending_produce import PendingProduce
from klog_broker.replication.leader import Leader
from klog_broker.replication.leader_replicas import LeaderReplicas
from pyspark_klog.ids import Offset
from tests.simulation.mutants.mutant import Mutant
from tests.support.replication.mutants import MUTANTS as OF_THE_MODEL

_OF_THE_MODEL = {each.name: each for each in OF_THE_MODEL}


def _falls(original: Any) -> Any:
    def replicated(leader: Any, own_end: Offset) -> Offset:
        """The high watermark falls to the log ends that ISR members have reported in this epoch."""
        reached: Offset = original(leader, own_end)
        replicas, log = leader.replicas, leader.log
        in_sync = [each for each in replicas.in_sync.members if each in replicas.followers]
        ends = [replicas.followers[each].log_end_offset for each in in_sync]
        low = Offset(max(log.log_start_offset, min((reached, *ends))))
        log._state.high_watermark = min(log.high_watermark, low)
        return low

    return replicated


def _starts_at_log_end(original: Any) -> Any:
    def init(leader: Any, *arguments: Any) -> None:
        """A new leader takes all records of its log for replicated."""
        original(leader, *arguments)
        leader.log.set_high_watermark(leader.log.log_end_offset)

    return init


def _at_log_end(_original: Any) -> Any:
    def watermark(
        _replicas: Any, _set_before: int, own_end: int, _leader_end: int, _now_ms: int
    ) -> Offset:
        """The high watermark is the log end offset, as if there were no followers."""
        return Offset(own_end)

    return watermark


def _at_append(_original: Any) -> Any:
    def safe_offset(_pending: Any, leader: Any) -> Any:
        """acks=all waits for no follower."""
        return leader.log.log_end_offset

    return safe_offset


def _once_only(_original: Any) -> Any:
    def grow_by_idle(_replicas: Any, _leader_end: int, _high_watermark: int) -> None:
        """A follower whose ISR request was refused once is not proposed again while it is idle."""

    return grow_by_idle


def of_the_model(name: str) -> Mutant:
    """A bug of the model of replication (tests/property), in whole brokers."""
    of_model = _OF_THE_MODEL[name]
    return Mutant(name, of_model.owner, of_model.attribute, of_model.make)


MUTANTS = (
    Mutant("watermark falls", Leader, "_replicated", _falls),
    Mutant("watermark starts at log end", Leader, "__init__", _starts_at_log_end),
    Mutant("watermark at the log's end", LeaderReplicas, "watermark", _at_log_end),
    of_the_model("watermark ignores joiners"),
    Mutant("acks=all at append", PendingProduce, "_safe_offset", _at_append),
    of_the_model("min ISR ignored"),
    of_the_model("anybody joins"),
    Mutant("idle followers asked for once", LeaderReplicas, "grow_by_idle", _once_only),
)
