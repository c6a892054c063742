"""Orders: by these a cluster's controller gives a broker's replicas their roles.

In a cluster of Kafka they are the requests LeaderAndIsr and StopReplica; a store that is its own
controller gives them, too. Images are what clients are told of the cluster; they give no roles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """This broker has a replica of the partition, which is led by `leader` in these epochs.

    `leader` is NO_BROKER while no broker can lead. The leader epoch rises with each new leader, the
    partition epoch also with each change of the in-sync set. `is_new` says that no replica of the
    partition has had data yet, so that a log may be made even while a data directory is offline.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    is_new: bool = False

    def with_leader(self, leader: BrokerId) -> "PartitionOrder":
        """The same order with another leader. Requests have thousands of orders, and `replace`
        takes twice as long."""
        return PartitionOrder(
            self.topic_partition,
            self.topic_id,
            leader,
            self.leader_epoch,
            self.partition_epoch,
            self.replicas,
            self.in_sync,
            self.is_new,
        )


@dataclass(frozen=True, slots=True)
class StopOrder:
    """This broker is to have no replica any more; with `deletes` the log is deleted, too."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    deletes: bool


Order = PartitionOrder | StopOrder

OrderResults = Mapping[TopicPartition, KlogError]
"""By partition: the error of an order that failed. All other orders were carried out."""

ApplyOrders = Callable[[Sequence[Order], Callable[[OrderResults], None]], None]
"""Carries orders out, after all earlier ones, and calls back in the loop with the results once the
work on the disk is done."""
