"""Role changes: what a broker does with its replicas, as the cluster's controller decides.

In a cluster that uses ZooKeeper a role change is a partition of a LeaderAndIsr or StopReplica
request; a standalone broker's store makes the same role changes. A role change does not name the
request that it came in, so a broker may also derive role changes from metadata that it reads
itself. Metadata images show clients the cluster; a broker's roles do not depend on them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """Makes this broker a replica of the partition, which `leader` leads in these epochs.

    `leader` is NO_BROKER while the partition has no leader. The leader epoch rises with each new
    leader, the partition epoch also with each change of the ISR. `is_new` says that no replica of
    the partition has had data yet, so that its log may be created even while a data directory is
    offline.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    is_new: bool = False

    def with_leader(self, leader: BrokerId) -> "RoleAssignment":
        """Return a copy with another leader. This method does not call dataclasses.replace, which
        takes twice as long: one request may have thousands of role changes."""
        return RoleAssignment(
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
class RoleRemoval:
    """Stops this broker's replica of the partition; if `deletes`, deletes the log, too."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    deletes: bool


RoleChange = RoleAssignment | RoleRemoval

RoleChangeErrors = Mapping[TopicPartition, KlogError]
"""By partition: the error of a role change that failed. All other role changes were applied."""

ApplyRoleChanges = Callable[[Sequence[RoleChange], Callable[[RoleChangeErrors], None]], None]
"""Applies the role changes once all role changes of earlier calls are applied. After the work on
the disk, calls the callback in the event loop with the errors."""
