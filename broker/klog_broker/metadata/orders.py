"""Orders: how whoever controls the cluster gives a broker's replicas their roles.

In a cluster they arrive as Kafka's LeaderAndIsr and StopReplica; a store that controls itself gives
the same. An image tells clients of the cluster; no role follows from one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """This broker has a replica: who leads the partition, and in which epochs.

    `leader` is NO_BROKER while nobody can. A leader epoch rises with the leader, a partition epoch
    also with the in-sync set. `is_new` says that no replica of the partition has had data yet, so
    that a log may be made even while a data directory is offline.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class StopOrder:
    """This broker is to have no replica any more; with `deletes` its log goes, too."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    deletes: bool


Order = PartitionOrder | StopOrder

OrderResults = Mapping[TopicPartition, KlogError]
"""Of each order that could not be carried out its error; whatever is not in it was."""

ApplyOrders = Callable[[Sequence[Order], Callable[[OrderResults], None]], None]
"""Carries orders out, behind those that came before, and calls back in the loop with the results
once the disk's part is done."""
