"""Role changes: what a broker does with its replicas, as the cluster's controller decides.

In a cluster over ZooKeeper a role change is a partition of a LeaderAndIsr or StopReplica request;
a standalone broker's store makes the same role changes. A role change has no trace of the request
that brought it, so a broker may also derive it from metadata that it reads itself. Metadata images
are what clients see of the cluster; no role follows from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class RoleAssignment:
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

    def with_leader(self, leader: BrokerId) -> "RoleAssignment":
        """Return a copy with another leader. Requests have thousands of role changes, and
        `replace` takes twice as long."""
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
    """This broker is to have no replica any more; with `deletes` the log is deleted, too."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    deletes: bool


RoleChange = RoleAssignment | RoleRemoval

RoleChangeErrors = Mapping[TopicPartition, KlogError]
"""By partition: the error of a role change that failed. All others were carried out."""

ApplyRoleChanges = Callable[[Sequence[RoleChange], Callable[[RoleChangeErrors], None]], None]
"""Carries role changes out, after all earlier ones, and calls back in the loop with the errors once
the work on the disk is done."""
