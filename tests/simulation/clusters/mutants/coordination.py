"""Bugs of a cluster's coordinators. When their code moves, adapt it here."""

from typing import Any

from klog_broker.coordinator.runtime import CoordinatorRuntime
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.coordinator.transaction.marker_sender import LeaderMarkerSender
from klog_broker.coordinator_hosting.marker_writer import MarkerWriter
from pyspark_klog.errors import ErrorCode
from tests.simulation.mutants.groups import MUTANTS as OF_GROUPS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.transactions import MUTANTS as OF_TRANSACTIONS


def _serves_at_once(original: Any) -> Any:
    def find(runtime: Any, key: str) -> Any:
        """A shard serves while it is loading, from the records that have been read so far."""
        code, shard = original(runtime, key)
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE, runtime.shard(runtime.partition_for(key))
        return code, shard

    return find


def _keeps_what_it_had(original: Any) -> Any:
    def load_shard(runtime: Any, log: Any) -> None:
        """A broker that has led a partition before serves its old state.

        Records that other leaders have written meanwhile are ignored.
        """
        partition = log.topic_partition.partition
        known = runtime.shard(partition)
        original(runtime, log)
        shard = runtime.shard(partition)
        if shard is known:
            return
        former = vars(runtime).setdefault("_former", {})
        before = former.get(partition)
        if before is not None and before.status is ShardStatus.RESIGNED:
            runtime.unload_shard(partition)
            before.log, before.status = log, ShardStatus.SERVING
            shard = runtime._shards[partition] = before
        former[partition] = shard

    return load_shard


def _sent_once(original: Any) -> Any:
    def send(sender: Any, markers: Any, done: Any) -> None:
        """A marker counts as written, whatever the response."""
        original(sender, markers, lambda found: done(dict.fromkeys(found, ErrorCode.NONE)))

    return send


def _next_epoch(original: Any) -> Any:
    def write(writer: Any, marker: Any, partition: Any, told: Any) -> None:
        """A marker carries the producer's next epoch."""
        later = marker._replace(producer_epoch=marker.producer_epoch + 1)
        original(writer, later, partition, told)

    return write


_ALSO_OF_CLUSTERS = (
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
    Mutant("served while it is loaded", CoordinatorRuntime, "find", _serves_at_once),
    Mutant("old state served on", CoordinatorRuntime, "load_shard", _keeps_what_it_had),
    Mutant("marker to the wrong epoch", MarkerWriter, "write", _next_epoch),
    Mutant("marker sent once", LeaderMarkerSender, "send", _sent_once),
    *(each for each in (*OF_GROUPS, *OF_TRANSACTIONS) if each.name in _ALSO_OF_CLUSTERS),
)
