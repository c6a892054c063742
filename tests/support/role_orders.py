"""Role changes for a broker in memory, as a cluster's controller would send them."""

from collections.abc import Sequence
from typing import Any

from klog_broker.metadata.role_changes import RoleAssignment, RoleChange, RoleRemoval
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from tests.support.produce_paths import MemoryBroker

ME = BrokerId(0)


def order_for(
    broker: MemoryBroker,
    topic: str,
    partition: int = 0,
    *,
    leader: BrokerId = ME,
    leader_epoch: int | None = None,
    replicas: Sequence[BrokerId] = (ME,),
    in_sync: Sequence[BrokerId] | None = None,
) -> RoleAssignment:
    """Return a role change; by default the partition's present state in the next epoch."""
    services = broker.broker.services
    hosted = services.replicas.partition(topic, partition)
    assert hosted is not None
    epoch = hosted.epochs.leader_epoch if leader_epoch is None else leader_epoch
    return RoleAssignment(
        TopicPartition(topic, partition),
        hosted.topic_id,
        leader,
        LeaderEpoch(epoch),
        hosted.epochs.partition_epoch + 1,
        tuple(replicas),
        tuple(replicas if in_sync is None else in_sync),
    )


def stop_order_for(broker: MemoryBroker, topic: str, *, deletes: bool = True) -> RoleRemoval:
    hosted = broker.broker.services.replicas.partition(topic, 0)
    assert hosted is not None
    epoch = LeaderEpoch(hosted.epochs.leader_epoch)
    return RoleRemoval(TopicPartition(topic, 0), hosted.topic_id, epoch, deletes)


def give(broker: MemoryBroker, *orders: RoleChange) -> None:
    """Apply a role change, and run everything that follows from it."""
    found: list[Any] = []
    apply = broker.broker.services.replicas.apply
    broker.broker.loop.post(lambda: apply(orders, found.append))
    broker.turns()
    assert found == [{}]
