"""Bugs in the deletion of topics, and in the distinction of two topics with one name."""

from typing import Any

from klog_broker.api import produce, stop_replica
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.zookeeper import deletions, znode_writer
from klog_broker.controller.zookeeper.request_batch import RequestBatch
from klog_broker.produce import targets
from klog_broker.replication.replica_manager import ReplicaManager
from pyspark_klog.errors import BrokerError
from tests.simulation.mutants.mutant import Mutant


def _keeps_all(original: Any) -> Any:
    def orders(stops: Any) -> Any:
        """StopReplica with deletion answers success, and deletes nothing."""
        return (each for each in original(stops) if not each.deletes)

    return orders


def _waits_for_nobody(original: Any) -> Any:
    def finish(work: Any, topics: Any) -> Any:
        """A broker that is down counts as one that has deleted its replicas."""
        context = work.controller_state.context
        for topic in context.to_be_deleted:
            for partition in context.partitions_of(topic):
                for broker_id in context.assignment(partition):
                    if broker_id not in context.brokers:
                        state = ReplicaState.DELETION_SUCCESSFUL
                        context._replica_states[partition, broker_id] = state
        yield from original(work, topics)

    return finish


def _takes_any_id(original: Any) -> Any:
    def assign(replicas: Any, order: Any, done: Any) -> None:
        """A role applies to the replica of that name, whichever topic id it has."""
        hosted = replicas.partition(*order.topic_partition)
        if hosted is not None and hosted.log is not None:
            hosted.topic_id = hosted.log.topic_id = order.topic_id
        original(replicas, order, done)

    return assign


def _knows_old_ids(original: Any) -> Any:
    names: dict[Any, str] = {}

    def topic_name(broker: Any, topic_id: Any, partition: int) -> str:
        """The id of a deleted topic still resolves to its name."""
        try:
            names[topic_id] = original(broker, topic_id, partition)
        except BrokerError:
            if topic_id not in names:
                raise
        return names[topic_id]

    return topic_name


def _published_in_slices(original: Any) -> Any:
    def init(batch: Any, context: Any, **options: Any) -> None:
        """New partitions are published by the UpdateMetadata request of their slice."""
        original(batch, context, **{**options, "unpublished": {}})

    return init


def _untold_see_slices(original: Any) -> Any:
    def init(batch: Any, context: Any, **options: Any) -> None:
        """A newly registered broker first gets only the partitions that change."""
        original(batch, context, **{**options, "untold": ()})

    return init


SMALL_SLICES = Mutant(
    "",
    znode_writer,
    "PARTITIONS_A_TURN",
    lambda _: 1,
    also=Mutant("", znode_writer, "_STATES_AT_ONCE", lambda _: 1),
)
"""No bug: a controller that writes and sends one partition at a time."""

_NOT_WAITED_FOR = Mutant(
    "deletion waits for nobody", deletions, "delete_znodes_of", _waits_for_nobody
)

MUTANTS = (
    Mutant(
        "ids of deleted topics known",
        produce,
        "topic_name",
        _knows_old_ids,
        also=Mutant("", targets, "topic_name", _knows_old_ids),
    ),
    Mutant(
        "topic shown in slices", RequestBatch, "__init__", _published_in_slices, also=SMALL_SLICES
    ),
    Mutant("part of a topic shown before the rest", RequestBatch, "__init__", _untold_see_slices),
    Mutant("deletion ignored", stop_replica._ReplicaStops, "role_changes", _keeps_all),
    _NOT_WAITED_FOR,
    Mutant(
        "topic ids not compared",
        ReplicaManager,
        "_assign",
        _takes_any_id,
        also=_NOT_WAITED_FOR,
    ),
)
