"""A partition that this broker has a replica of, and the replica's role.

The role decides what is served. Requests of clients, and coordinators, get a `Leader` and keep it
while they wait. Once a leadership is over its `ended` says so for good; the partition's next
leadership, also on the same broker, is another `Leader`.
"""

from collections.abc import Callable
from typing import NamedTuple

from klog_broker.log.answers import AppendInfo
from klog_broker.log.append_rules import AppendOrigin
from klog_broker.log.loop_share import LoopShare
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation import Validated
from klog_broker.log.verification import VerificationGuard
from klog_broker.metadata.orders import PartitionOrder
from klog_broker.replication.errors import Ended, LeadershipEnded, NotEnoughReplicas, TooLittleRoom
from klog_broker.replication.high_watermark import reached_watermark
from klog_broker.replication.isr import Committed, InSyncSet
from klog_broker.replication.replica_progress import FollowerFetch, FollowerProgress
from pyspark_klog.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker

NO_PARTITION_EPOCH = -1


class Epochs(NamedTuple):
    """The epochs of an order. Of two orders the one with the greater epochs is newer."""

    leader_epoch: int
    partition_epoch: int


class Unassigned:
    """The log is loaded, and no order has said yet whether this broker leads or follows."""

    __slots__ = ()


class Follower:
    """Another broker leads the partition, or nobody does (NO_BROKER)."""

    __slots__ = ("leader",)

    def __init__(self, leader: BrokerId) -> None:
        self.leader = leader


class Offline:
    """The log cannot be used, could not be made, or may lie in an offline directory."""

    __slots__ = ()


class Leader:
    """One leadership of this broker: from the order that gave it to `ended`.

    Made by ``Partition.lead`` only. All its appends go through here; reads use `log`.
    """

    __slots__ = (
        "_followers",
        "broker_id",
        "ended",
        "epoch_start_offset",
        "in_sync",
        "leader_epoch",
        "log",
        "min_in_sync_replicas",
        "replicas",
    )

    def __init__(
        self, broker_id: BrokerId, log: PartitionLog, order: PartitionOrder, min_in_sync: int
    ) -> None:
        self.broker_id = broker_id
        self.log = log
        self.leader_epoch: LeaderEpoch = order.leader_epoch
        self.epoch_start_offset: Offset = log.log_end_offset
        self.replicas = order.replicas
        self.in_sync: InSyncSet = Committed(order.in_sync)
        self.min_in_sync_replicas = 1
        self.ended: Ended | None = None
        """Why the leadership is over; None while it is not. Afterwards nothing is appended, and all
        requests that wait for this leadership are answered."""
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self.take_over(order, min_in_sync)

    def __repr__(self) -> str:
        return f"Leader({self.topic_partition}, epoch {self.leader_epoch}, {self.ended})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def is_enough_in_sync(self) -> bool:
        """Whether acks=all is possible: at least min.insync.replicas replicas are in sync."""
        return len(self.in_sync.members) >= self.min_in_sync_replicas

    @property
    def is_alone(self) -> bool:
        """Whether a record is on every replica that has to have it once it is in this log."""
        return self.in_sync.maximal == (self.broker_id,)

    # --- appending -------------------------------------------------------------------------------
    def append(
        self,
        records: bytes | bytearray | memoryview,
        *,
        acks_all: bool,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        share: LoopShare | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Call ``PartitionLog.append_as_leader`` in this leadership's epoch.

        Raises the errors of that method; also LeadershipEnded and TooLittleRoom, and with
        `acks_all` NotEnoughReplicas, all with nothing changed.
        """
        self.check(acks_all=acks_all, of_clients=origin is AppendOrigin.CLIENT)
        return self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            share=share,
            guard=guard,
        )

    def append_plain(
        self, batch: bytearray, record_count: int, timestamp_ms: int, *, now_ms: int
    ) -> None:
        """``PartitionLog.append_plain`` in this leadership's epoch, with acks=all; raises what that
        does, LeadershipEnded and NotEnoughReplicas."""
        self.check(acks_all=True)
        self.log.append_plain(
            batch, record_count, timestamp_ms, leader_epoch=self.leader_epoch, now_ms=now_ms
        )

    def append_prepared(
        self,
        prepared: Callable[[], Validated],
        *,
        acks_all: bool,
        now_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """As :meth:`append`. ``prepared`` returns what :meth:`preparation` gave in a helper."""
        self.check(acks_all=acks_all, of_clients=True)
        return self.log.append_prepared(
            prepared(), leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
        now_ms: int,
    ) -> Offset:
        """``PartitionLog.append_marker`` in this leadership's epoch, and raises what that does.

        Also, with nothing changed, LeadershipEnded and NotEnoughReplicas.
        """
        self.check(acks_all=True)
        return self.log.append_marker(
            producer_id,
            producer_epoch,
            marker,
            transaction_version=transaction_version,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )

    def preparation(
        self, records: bytes | bytearray | memoryview, now_ms: int
    ) -> Callable[[], Validated]:
        """As ``PartitionLog.preparation``: the part of an append that a helper can do."""
        return self.log.preparation(records, now_ms)

    @property
    def has_room(self) -> bool:
        """Whether the disk has room for records of clients."""
        return not self.log.log_directory.space.refuses_clients

    def check(self, *, acks_all: bool, of_clients: bool = False) -> None:
        """Raise LeadershipEnded or TooLittleRoom; with `acks_all` also NotEnoughReplicas."""
        if self.ended is not None:
            raise LeadershipEnded(self.topic_partition, self.ended)
        space = self.log.log_directory.space
        if space.refuses_clients and (of_clients or space.refuses_state):
            raise TooLittleRoom(space.refusal(self.topic_partition))
        if acks_all and not self.is_enough_in_sync:
            raise NotEnoughReplicas(
                f"{len(self.in_sync.members)} replicas of {self.topic_partition} are in sync,"
                f" min.insync.replicas asks for {self.min_in_sync_replicas}"
            )

    # --- what is replicated ----------------------------------------------------------------------
    def take_over(self, order: PartitionOrder, min_in_sync: int) -> None:
        """Take the replicas and the in-sync set of an order of the same leader epoch."""
        self.replicas = order.replicas
        self.in_sync = Committed(order.in_sync)
        self.set_min_in_sync(min_in_sync)
        self._followers = {
            each: self._followers.get(each, FollowerProgress())
            for each in order.replicas
            if each != self.broker_id
        }

    def set_min_in_sync(self, min_in_sync: int) -> None:
        """Take min.insync.replicas, but no more than there are replicas, as since Kafka 3.7."""
        self.min_in_sync_replicas = min(min_in_sync, len(self.replicas))

    def follower_fetched(self, follower: BrokerId, offset: int, now_ms: int) -> None:
        """A follower has all records before `offset`. A broker that is no replica is ignored."""
        progress = self._followers.get(follower)
        if progress is not None:
            self._followers[follower] = progress.fetched(
                FollowerFetch(offset), self.log.log_end_offset, now_ms
            )
            self.advance_watermark()

    def advance_watermark(self) -> None:
        """Let readers see the records that all of the maximal in-sync set have, and that are
        flushed here if replies wait for flushes."""
        log = self.log
        if log.config.replies_wait_for_flush:
            reached = log.flushed_offset
        else:
            reached = log.log_end_offset
        if self._followers:
            ends = (
                self._followers[each].log_end_offset
                for each in self.in_sync.maximal
                if each in self._followers
            )
            reached = reached_watermark(log.high_watermark, reached, ends)
        log.set_high_watermark(reached)


Role = Unassigned | Leader | Follower | Offline


class Partition:
    """A hosted partition; it listens to its log. Loop thread only.

    ``wake(topic_partition)`` is called when requests that wait for the partition may have become
    ready. ``on_ended(leader)`` is called when a leadership has ended, for whatever reason, before
    the requests that wait for it are woken.
    """

    __slots__ = ("_on_ended", "_wake", "epochs", "log", "role", "topic_id", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog | None,
        *,
        wake: Callable[[TopicPartition], None],
        on_ended: Callable[[Leader], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log: PartitionLog | None = None
        self.role: Role = Unassigned()
        self.epochs = Epochs(-1, NO_PARTITION_EPOCH)
        """The epochs of the newest order."""
        self._wake = wake
        self._on_ended = on_ended
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
    def lead(self, order: PartitionOrder, min_in_sync: int) -> Leader | None:
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
        self._end(Ended.RESIGNED)
        self.epochs = epochs
        leader = Leader(order.leader, log, order, min_in_sync)
        self.role = leader
        leader.advance_watermark()
        return leader

    def follow(self, order: PartitionOrder) -> None:
        """Follow as ordered: another broker leads, or nobody."""
        self._end(Ended.RESIGNED)
        self.epochs = Epochs(order.leader_epoch, order.partition_epoch)
        self.role = Follower(order.leader)

    def stop(self, *, deletes: bool) -> None:
        """Stop: this broker is to have no replica any more. The caller deletes the log."""
        self._end(Ended.DELETED if deletes else Ended.RESIGNED)

    def go_offline(self) -> None:
        """The log cannot be used, or could not be made."""
        self._end(Ended.OFFLINE)
        self.role = Offline()

    def _end(self, ended: Ended) -> None:
        leader = self.role
        if not isinstance(leader, Offline):
            self.role = Unassigned()
        if isinstance(leader, Leader):
            leader.ended = ended
            self._on_ended(leader)
            self._wake(self.topic_partition)

    def take_settings(self, min_in_sync: int) -> None:
        """The settings of the topic have changed, and the log has been told."""
        leader = self.role
        if isinstance(leader, Leader):
            leader.set_min_in_sync(min_in_sync)
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
