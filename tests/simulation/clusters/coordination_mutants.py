"""Coordinators of a cluster with a bug. Where that code moves, mend it here."""

from typing import Any

from klog_broker.coordinator.runtime import CoordinatorRuntime
from klog_broker.coordinator.shard import ShardStatus
from pyspark_klog.errors import ErrorCode
from tests.simulation.mutants.groups import MUTANTS as OF_GROUPS
from tests.simulation.mutants.mutant import Mutant


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


_ALSO_OF_CLUSTERS = (
    "commit not waited for",
    "fenced member commits",
    "generation not raised",
    "loading leaves commits out",
)

MUTANTS = (
    Mutant("served while it is loaded", CoordinatorRuntime, "find", _serves_at_once, kept_seed=13),
    Mutant("state kept for later", CoordinatorRuntime, "lead", _kept_for_later),
    *(each for each in OF_GROUPS if each.name in _ALSO_OF_CLUSTERS),
)
