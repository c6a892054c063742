"""A partition that this broker has a replica of, and the replica's role.

The role decides which requests this broker serves. Delayed client requests and coordinators keep
the `Leader` object of their partition. When the leadership ends, `Leader.ended` is set and never
reset; the partition's next leadership is another `Leader` object, even on the same broker.
"""

from collections.abc import Callable
from typing import NamedTuple

from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import EndReason
from klog_broker.replication.leader import Leader, LeaderContext
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition

NO_PARTITION_EPOCH = -1


class Epochs(NamedTuple):
    """The epochs of a role assignment (an instruction to lead or to follow); an assignment with
    greater epochs is newer."""

    leader_epoch: int
    partition_epoch: int


class Unassigned:
    """No role assignment (an instruction to lead or to follow) has made this broker the leader or a
    follower since it loaded or created the log, or since a StopReplica request or the broker's
    shutdown ended its role."""

    __slots__ = ()


class Follower:
    """The role while another broker leads the partition, or no broker does (NO_BROKER). The code
    that fetches for a Follower checks before each change of the log that the partition still has
    this role object."""

    __slots__ = ("leader", "leader_epoch")

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch


class Offline:
    """The log cannot be used, could not be created, or may be in an offline directory."""

    __slots__ = ()


Role = Unassigned | Leader | Follower | Offline


class Partition:
    """A partition of which this broker has a replica. The partition's log notifies this object of
    its changes (LogListener). Loop thread only.

    ``wake(topic_partition)`` is called when delayed requests (such as a Fetch that waits for
    records of the partition) may have become ready. ``on_ended(leader)`` is called when a
    leadership has ended for any reason, before the delayed requests of the partition are woken.
    ``on_unfollowed(topic_partition)`` is called when a Follower role has ended.
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
        """The epochs of the newest role assignment (an instruction to lead or to follow)."""
        self._wake = wake
        self._on_ended = on_ended
        self._on_unfollowed = on_unfollowed
        if log is not None:
            self.attach_log(log)

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, {type(self.role).__name__}, {self.epochs})"

    def attach_log(self, log: PartitionLog) -> None:
        """Use ``log``, which was just created or loaded, as the log of this partition."""
        self.log = log
        log.listener = self
        self.role = Offline() if log.is_offline else Unassigned()

    # --- changes of the replica's role -----------------------------------------------------------
    def lead(
        self, assignment: RoleAssignment, min_in_sync: int, context: LeaderContext
    ) -> Leader | None:
        """Become the leader, and return the Leader. Returns None if this broker already leads in
        the assignment's leader epoch: the present leadership then continues, with the replicas and
        the ISR of the assignment, unless the leader has a newer partition epoch. Raises
        StaleLeaderEpoch if the log has a newer leader epoch than the assignment.
        """
        log, role = self.log, self.role
        assert log is not None
        epochs = Epochs(assignment.leader_epoch, assignment.partition_epoch)
        if isinstance(role, Leader) and role.leader_epoch == assignment.leader_epoch:
            role.apply_assignment(assignment, min_in_sync)
            self.epochs = epochs
            role.advance_watermark()
            # Complete delayed Produce requests with acks=all, if the ISR is now too small for them.
            self._wake(self.topic_partition)
            return None
        log.begin_epoch(assignment.leader_epoch)
        leader = Leader(assignment.leader, log, assignment, min_in_sync, context)
        if isinstance(role, Leader):
            role.successor = leader
        self._end(EndReason.RESIGNED)
        self.epochs = epochs
        self.role = leader
        leader.advance_watermark()
        return leader

    def follow(self, assignment: RoleAssignment) -> bool:
        """Become a follower: another broker leads, or no broker does. Returns whether the role has
        changed; False if the partition already follows the same leader in the same epoch."""
        role = self.role
        self.epochs = Epochs(assignment.leader_epoch, assignment.partition_epoch)
        assigned = (assignment.leader, assignment.leader_epoch)
        if isinstance(role, Follower) and (role.leader, role.leader_epoch) == assigned:
            return False
        self._end(EndReason.RESIGNED)
        self.role = Follower(assignment.leader, assignment.leader_epoch)
        return True

    def stop(self, *, deletes: bool) -> None:
        """End the replica's role (not Offline), after a StopReplica request or because the broker
        stops. With `deletes` the caller deletes the log."""
        self._end(EndReason.DELETED if deletes else EndReason.RESIGNED)

    def go_offline(self) -> None:
        """End the replica's role and become Offline: the log cannot be used, or could not be
        created."""
        self._end(EndReason.OFFLINE)
        self.role = Offline()

    def _end(self, ended: EndReason) -> None:
        role = self.role
        if not isinstance(role, Offline):
            self.role = Unassigned()
        if isinstance(role, Leader):
            role.ended = ended
            self._on_ended(role)
            self._wake(self.topic_partition)
        elif isinstance(role, Follower):
            self._on_unfollowed(self.topic_partition)

    def apply_settings(self, min_in_sync: int, *, has_other_config: bool) -> None:
        """Set min.insync.replicas of the leader, if this broker leads. `has_other_config` says that
        the log's settings have changed."""
        leader = self.role
        if isinstance(leader, Leader) and (leader.set_min_in_sync(min_in_sync) or has_other_config):
            leader.advance_watermark()
            self._wake(self.topic_partition)

    # --- notifications from the log (LogListener) ------------------------------------------------
    def log_end_grew(self, _log: PartitionLog) -> None:
        """Advance the high watermark of the leader after an append."""
        leader = self.role
        if type(leader) is Leader:
            leader.advance_watermark()

    def log_flushed(self, log: PartitionLog) -> None:
        """Advance the high watermark after a flush, if responses wait for flushes
        (flush.messages=1)."""
        leader = self.role
        if type(leader) is Leader and log.config.responses_wait_for_flush:
            leader.advance_watermark()
            # Wake Produce requests with acks=1, too: with flush.messages=1 they wait only until
            # their records are flushed, and not for the high watermark, which may not have grown.
            self._wake(self.topic_partition)

    def high_watermark_grew(self, _log: PartitionLog) -> None:
        """Wake Fetch requests, and Produce requests with acks=all, that wait for the high watermark
        to rise."""
        self._wake(self.topic_partition)

    def log_start_grew(self, _log: PartitionLog) -> None:
        """Wake delayed Fetch requests, because the responses tell clients in a fetch session the
        new log start offset."""
        self._wake(self.topic_partition)

    def log_went_offline(self, _log: PartitionLog) -> None:
        """Become Offline, because the log or its whole directory went offline."""
        if not isinstance(self.role, Offline):
            self.go_offline()
