"""A replica manager over real logs on a disk in memory, whose helpers run when the test says so."""

from dataclasses import replace
from pathlib import Path

from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.role_changes import RoleAssignment, RoleChange, RoleRemoval
from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.replication.settings_updates import TopicSettings
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.virtual_time import VirtualTime
from tests.support.log.harness import (
    CLUSTER,
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

ME, OTHER, THIRD = BrokerId(0), BrokerId(7), BrokerId(8)
Results = dict[TopicPartition, KlogError]


def role_assignment(
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    *,
    partition: TopicPartition = PARTITION,
    topic_id: TopicId = TOPIC_ID,
    leader: BrokerId = ME,
    replicas: tuple[BrokerId, ...] = (ME,),
    in_sync: tuple[BrokerId, ...] | None = None,
    is_new: bool = False,
) -> RoleAssignment:
    """Return a role change; by default this broker leads and is the only replica."""
    return RoleAssignment(
        partition,
        topic_id,
        leader,
        LeaderEpoch(leader_epoch),
        partition_epoch,
        replicas,
        replicas if in_sync is None else in_sync,
        is_new,
    )


def role_removal(
    leader_epoch: int = 0,
    *,
    partition: TopicPartition = PARTITION,
    topic_id: TopicId = TOPIC_ID,
    deletes: bool = True,
) -> RoleRemoval:
    return RoleRemoval(partition, topic_id, LeaderEpoch(leader_epoch), deletes)


def loaded_logs(
    files: MemoryFiles,
    helpers: Helpers,
    directories: tuple[Path, ...] = (DATA,),
    broker_id: BrokerId = ME,
) -> LogManager:
    """Load a broker's logs from a disk in memory."""
    logs = LogManager(
        directories,
        files=files,
        clock=ManualClock(),
        helpers=helpers,
        broker_id=broker_id,
        cluster_id=CLUSTER,
        default_config=SMALL,
    )
    logs.load()
    return logs


class ReplicaWorld(VirtualTime):
    """A replica manager. `woken` lists the woken partitions."""

    def __init__(
        self,
        files: MemoryFiles | None = None,
        helpers: Helpers | None = None,
        directories: tuple[Path, ...] = (DATA,),
        *,
        broker_id: BrokerId = ME,
    ) -> None:
        super().__init__()
        self.files = files or MemoryFiles()
        self.helpers = helpers or Helpers.held()
        self.settings = TopicSettings(SMALL, 1)
        self.logs = self.open_logs(directories)
        self.woken: list[TopicPartition] = []
        self.coordinator_calls: list[tuple[str, TopicPartition]] = []
        self.replicas = ReplicaManager(
            broker_id,
            self.logs,
            settings_of=lambda _topic: self.settings,
            wake=self.woken.append,
            call_soon=self.loop.call_soon,
        )
        self.replicas.on_lead.append(
            lambda leader: self.coordinator_calls.append(
                (f"lead {leader.leader_epoch}", leader.topic_partition)
            )
        )
        self.replicas.on_resign.append(
            lambda partition: self.coordinator_calls.append(("resign", partition))
        )

    def open_logs(self, directories: tuple[Path, ...]) -> LogManager:
        """Load the logs, of which the disk may have some."""
        return loaded_logs(self.files, self.helpers, directories)

    def apply_async(self, *orders: RoleChange) -> list[Results]:
        """Apply role changes; the returned list gets the results when they are known."""
        found: list[Results] = []
        self.replicas.apply(orders, lambda results: found.append(dict(results)))
        return found

    def work(self) -> None:
        """Run all work of the helpers, and everything that follows from it."""
        while self.helpers.waiting or self.settle():
            self.helpers.run_all()

    def apply(self, *orders: RoleChange) -> Results:
        found = self.apply_async(*orders)
        self.work()
        (results,) = found
        return results

    def lead(self, *args: int, **fields: object) -> Leader:
        """Apply a role change that makes this broker the leader; return the leadership."""
        given = role_assignment(*args, **fields)
        assert self.apply(given) == {}
        return self.leader(given.topic_partition)

    def leader(self, partition: TopicPartition = PARTITION) -> Leader:
        return self.replicas.led[partition]

    def role(self, partition: TopicPartition = PARTITION) -> str:
        """The name of the partition's role; "" if the partition is not hosted."""
        found = self.replicas.partition(*partition)
        return "" if found is None else type(found.role).__name__

    def set(self, *, min_in_sync: int = 1, **log: object) -> None:
        """New settings of the topic."""
        self.settings = TopicSettings(replace(SMALL, **log), min_in_sync)
        self.replicas.topics_changed([PARTITION.topic])
