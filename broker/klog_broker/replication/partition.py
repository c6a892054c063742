"""A partition that this broker has a replica of, and the replica's role.

The role decides what is served. Requests of clients, and coordinators, get a `Leader` and keep it
while they wait. Once a leadership is over its `ended` says so for good; the partition's next
leadership, also on the same broker, is another `Leader`.
"""

from collections.abc import Callable
from typing import NamedTuple

from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import Ended
from klog_broker.replication.leader import Leader, Surroundings
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition

NO_PARTITION_EPOCH = -1


class Epochs(NamedTuple):
    """The epochs of an order. Of two orders the one with the greater epochs is newer."""

    leader_epoch: int
    partition_epoch: int


class Unassigned:
    """The log is loaded, and no order has said yet whether this broker leads or follows."""

    __slots__ = ()


class Follower:
    """Another broker leads the partition, or nobody does (NO_BROKER): from the order that says so
    to the one that ends it. Whoever copies records for a Follower asks before each change of the
    log whether the partition still has that role."""

    __slots__ = ("leader", "leader_epoch")

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch


class Offline:
    """The log cannot be used, could not be made, or may lie in an offline directory."""

    __slots__ = ()


Role = Unassigned | Leader | Follower | Offline


class Partition:
    """A hosted partition; it listens to its log. Loop thread only.

    ``wake(topic_partition)`` is called when requests that wait for the partition may have become
    ready. ``on_ended(leader)`` is called when a leadership has ended, for whatever reason, before
    the requests that wait for it are woken; ``on_unfollowed(topic_partition)`` when the partition
    has followed, and does not follow that leader in that epoch any more.
    """

    __slots__ = (
        "_on_ended",
        "_on_unfollowed",
        "_wake",
        "epochs",
        "log",
        "role",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog | None,
        *,
        wake: Callable[[TopicPartition], None],
        on_ended: Callable[[Leader], None],
        on_unfollowed: Callable[[TopicPartition], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log: PartitionLog | None = None
        self.role: Role = Unassigned()
        self.epochs = Epochs(-1, NO_PARTITION_EPOCH)
        """The epochs of the newest order."""
        self._wake = wake
        self._on_ended = on_ended
        self._on_unfollowed = on_unfollowed
        if log is not None:
            self.take_log(log)

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, {type(self.role).__name__}, {self.epochs})"

    def take_log(self, log: PartitionLog) -> None:
        """Host ``log``, which has just been made or loaded."""
        self.log = log
        log.listener = self
        self.role = Offline() if log.is_offline else Unassigned()

    # --- roles -----------------------------------------------------------------------------------
    def lead(self, order: RoleAssignment, min_in_sync: int, around: Surroundings) -> Leader | None:
        """Lead as ordered. Returns the Leader if a new leadership begins; None if the present one
        goes on with other replicas. Raises StaleLeaderEpoch if the log has a newer epoch.
        """
        log, role = self.log, self.role
        assert log is not None
        epochs = Epochs(order.leader_epoch, order.partition_epoch)
        if isinstance(role, Leader) and role.leader_epoch == order.leader_epoch:
            role.take_over(order, min_in_sync)
            self.epochs = epochs
            role.advance_watermark()
            # Too few replicas may be in sync now for requests that wait with acks=all.
            self._wake(self.topic_partition)
            return None
        log.begin_epoch(order.leader_epoch)
        leader = Leader(order.leader, log, order, min_in_sync, around)
        if isinstance(role, Leader):
            role.successor = leader
        self._end(Ended.RESIGNED)
        self.epochs = epochs
        self.role = leader
        leader.advance_watermark()
        return leader

    def follow(self, order: RoleAssignment) -> bool:
        """Follow as ordered: another broker leads, or nobody. Returns whether that is news: the
        same leader of the same epoch is followed on."""
        role = self.role
        self.epochs = Epochs(order.leader_epoch, order.partition_epoch)
        ordered = (order.leader, order.leader_epoch)
        if isinstance(role, Follower) and (role.leader, role.leader_epoch) == ordered:
            return False
        self._end(Ended.RESIGNED)
        self.role = Follower(order.leader, order.leader_epoch)
        return True

    def stop(self, *, deletes: bool) -> None:
        """Stop: this broker is to have no replica any more. The caller deletes the log."""
        self._end(Ended.DELETED if deletes else Ended.RESIGNED)

    def go_offline(self) -> None:
        """The log cannot be used, or could not be made."""
        self._end(Ended.OFFLINE)
        self.role = Offline()

    def _end(self, ended: Ended) -> None:
        role = self.role
        if not isinstance(role, Offline):
            self.role = Unassigned()
        if isinstance(role, Leader):
            role.ended = ended
            self._on_ended(role)
            self._wake(self.topic_partition)
        elif isinstance(role, Follower):
            self._on_unfollowed(self.topic_partition)

    def take_settings(self, min_in_sync: int, *, has_other_config: bool) -> None:
        """Take the topic's min.insync.replicas. `has_other_config`: the log's settings changed."""
        leader = self.role
        if isinstance(leader, Leader) and (leader.set_min_in_sync(min_in_sync) or has_other_config):
            leader.advance_watermark()
            self._wake(self.topic_partition)

    # --- what the log tells (LogListener) --------------------------------------------------------
    def log_end_grew(self, _log: PartitionLog) -> None:
        """Records were appended."""
        leader = self.role
        if type(leader) is Leader:
            leader.advance_watermark()

    def log_flushed(self, log: PartitionLog) -> None:
        """A larger part of the log survives a power cut."""
        leader = self.role
        if type(leader) is Leader and log.config.replies_wait_for_flush:
            leader.advance_watermark()
            # With acks=1 a reply waits for the flush here, however far the followers are.
            self._wake(self.topic_partition)

    def high_watermark_grew(self, _log: PartitionLog) -> None:
        """Fetches, and Produce with acks=all, may have waited for the watermark."""
        self._wake(self.topic_partition)

    def log_start_grew(self, _log: PartitionLog) -> None:
        """Fetch sessions tell their clients the new start."""
        self._wake(self.topic_partition)

    def log_went_offline(self, _log: PartitionLog) -> None:
        """The log went offline, alone or with its directory."""
        if not isinstance(self.role, Offline):
            self.go_offline()
