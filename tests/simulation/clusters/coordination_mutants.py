"""Coordinators of a cluster with a bug. Where that code moves, mend it here."""

from typing import Any

from klog_broker.coordinator.runtime import CoordinatorRuntime
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.coordinator.transaction import marker_sending
from pyspark_klog.errors import ErrorCode
from tests.simulation.mutants.groups import MUTANTS as OF_GROUPS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.transactions import MUTANTS as OF_TRANSACTIONS


def _serves_at_once(original: Any) -> Any:
    def find(runtime: Any, key: str) -> Any:
        """While it is loaded, by what has been read so far."""
        code, shard = original(runtime, key)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE, runtime.shard(runtime.partition_for(key))
        return code, shard

    return find


def _kept_for_later(original: Any) -> Any:
    def lead(runtime: Any, log: Any) -> None:
        """Who is elected once more goes on with what it knew, whatever others have written."""
        kept = runtime.__dict__.setdefault("kept", {})
        partition = log.topic_partition.partition
        shard = kept.get(partition)
        if shard is None:
            original(runtime, log)
            kept[partition] = runtime.shard(partition)
        else:
            shard.log = log
            shard.status = ShardStatus.SERVING
            runtime._shards[partition] = shard

    return lead


def _taken_for_written(_original: Any) -> Any:
    def undecided(_code: Any) -> Any:
        """Whatever became of a marker, it is not sent again."""
        return ErrorCode.NONE

    return undecided


_ALSO_OF_CLUSTERS = (
    "assignment not waited for",
    "commit not waited for",
    "fenced member commits",
    "generation not raised",
    "loading leaves commits out",
    "aborted ones not listed",
    "stable at the watermark",
    "marker before the decision",
    "zombie's EndTxn taken",
    "epoch of an id not raised",
    "overdue for ever",
    "decision read otherwise",
    "partition forgotten",
    "pending offsets shown",
)

MUTANTS = (
    Mutant("served while it is loaded", CoordinatorRuntime, "find", _serves_at_once, kept_seed=13),
    Mutant("state kept for later", CoordinatorRuntime, "lead", _kept_for_later),
    Mutant("marker sent once", marker_sending, "_undecided", _taken_for_written),
    *(each for each in (*OF_GROUPS, *OF_TRANSACTIONS) if each.name in _ALSO_OF_CLUSTERS),
)
