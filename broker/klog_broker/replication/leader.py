"""One leadership of a partition: its appends, and what it knows of the other replicas.

What a leader of many decides is in leader_replicas.py; here it meets the log. A leader without
followers pays nothing for them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.read.read_results import AppendInfo
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.log_validator import Validated
from klog_broker.log.validation.loop_share import LoopShare
from klog_broker.metadata.image import PartitionState
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import Ended, LeadershipEnded, NotEnoughReplicas, TooLittleRoom
from klog_broker.replication.isr_changes import Afterwards, CommittedIsr, IsrAnswer, IsrChange
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.ids import BrokerId, Offset, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker


def _ignore(_leader: "Leader") -> None:
    """A broker alone asks nobody."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What leaders need of the broker and the cluster around them; by default there is none.

    Times are monotonic."""

    now_ms: Callable[[], int] = lambda: 0
    broker_epoch: Callable[[], int] = lambda: -1
    live: Collection[BrokerId] = ()
    """The brokers that are alive, at any time."""
    max_lag_ms: int = 30_000
    """replica.lag.time.max.ms"""
    wake: Callable[[TopicPartition], None] = lambda _: None
    """Called when requests that wait for the partition may have become ready."""
    in_sync_changed: Callable[["Leader"], None] = _ignore
    """Called when the in-sync set is another one, or the controller has to be asked for another."""


class Leader:
    """One leadership of this broker: from the order that gave it to `ended`.

    Made by ``Partition.lead`` only. All its appends go through here; reads use `log`.
    """

    __slots__ = (
        "_around",
        "_has_followers",
        "_seen_end",
        "broker_id",
        "ended",
        "leader_epoch",
        "log",
        "replicas",
        "successor",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        log: PartitionLog,
        order: RoleAssignment,
        min_in_sync: int,
        around: Surroundings,
    ) -> None:
        self.broker_id = broker_id
        self.log = log
        self.leader_epoch = order.leader_epoch
        self.ended: Ended | None = None
        """Why the leadership is over; None while it is not. Afterwards nothing is appended, and all
        requests that wait for this leadership are answered."""
        self.successor: Leader | None = None
        """The broker's next leadership, in a newer epoch, if it followed at once: nobody else led
        the log in between, and nothing of it was cut."""
        self._around = around
        self._seen_end = log.log_end_offset
        self.replicas = LeaderReplicas(
            broker_id,
            around.broker_epoch(),
            order,
            epoch_start_offset=log.log_end_offset,
            min_in_sync=min_in_sync,
            max_lag_ms=around.max_lag_ms,
            now_ms=around.now_ms(),
        )
        self.replicas.live = around.live
        self._has_followers = bool(self.replicas.followers)

    def __repr__(self) -> str:
        return f"Leader({self.topic_partition}, epoch {self.leader_epoch}, {self.ended})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def present(self) -> "Leader":
        """This leadership or, of those that followed it at once, the last. For whoever waits until
        records that were appended in this one are replicated: they are where they were. The
        controller begins an epoch whenever somebody leaves the in-sync set by dying."""
        leader = self
        while leader.successor is not None:
            leader = leader.successor
        return leader

    @property
    def is_enough_in_sync(self) -> bool:
        """Whether acks=all is possible: at least min.insync.replicas replicas are in sync."""
        return self.replicas.is_enough_in_sync

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has to have a record: there is no other replica."""
        return not self._has_followers

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
                f"{len(self.replicas.in_sync.members)} replicas of {self.topic_partition} are in"
                f" sync, min.insync.replicas asks for {self.replicas.min_in_sync_replicas}"
            )

    # --- what is replicated ----------------------------------------------------------------------
    def take_over(self, order: RoleAssignment, min_in_sync: int) -> None:
        """Take an order of the same leader epoch, unless a newer state is known already."""
        self.replicas.take_over(order)
        self.replicas.set_min_in_sync(min_in_sync)
        self._has_followers = bool(self.replicas.followers)

    def set_min_in_sync(self, min_in_sync: int) -> bool:
        """Take a new min.insync.replicas. Returns whether it differs from the one before."""
        return self.replicas.set_min_in_sync(min_in_sync)

    def fetched(self, follower: BrokerId, fetch: FollowerFetch) -> None:
        """A follower has all records before `fetch.offset`: the watermark may go on, and the
        follower may join. See LeaderReplicas.fetched."""
        replicas = self.replicas
        known = replicas.followers.get(follower)
        replicas.fetched(follower, fetch, self.log.log_end_offset, self._around.now_ms())
        if replicas.grow(follower, self.log.high_watermark) is not None:
            self._around.in_sync_changed(self)
        self.advance_watermark()
        if known is not None and known.log_start_offset != fetch.log_start_offset:
            # DeleteRecords waits for it.
            self._around.wake(self.topic_partition)

    def look_after_followers(self) -> None:
        """From time to time: who has fallen behind leaves the in-sync set, and holds nothing up.
        Who has all there is, and could not join when it came to that, joins."""
        replicas, end = self.replicas, self.log.log_end_offset
        change = replicas.shrink(end, self._around.now_ms())
        if change is None:
            change = replicas.grow_by_idle(end, self.log.high_watermark)
        if change is not None:
            self._around.in_sync_changed(self)
        self.advance_watermark()

    def in_sync_answered(self, change: IsrChange, answer: IsrAnswer) -> Afterwards:
        """See LeaderReplicas.answered. Not for a leadership that has ended."""
        after = self.replicas.answered(change, answer)
        if after in (Afterwards.COMMITTED, Afterwards.TAKEN_BACK):
            self._around.in_sync_changed(self)
            self.advance_watermark()
        return after

    def told(self, state: PartitionState) -> None:
        """See LeaderReplicas.told. Not for a leadership that has ended."""
        committed = CommittedIsr(state.leader_epoch, state.partition_epoch, state.in_sync)
        if self.replicas.told(committed):
            self._around.in_sync_changed(self)
            self.advance_watermark()

    def has_too_few_of(self, required_offset: int) -> bool:
        """Whether records before that offset, which the watermark has passed, are on fewer replicas
        than acks=all asks for."""
        safe = self.replicas.acks_all(required_offset, self.log.high_watermark)
        return safe is AcksAll.TOO_FEW

    @property
    def lags_behind_epoch(self) -> bool:
        """Whether the watermark has not reached yet where the log ended when this leadership began:
        an earlier leader may have shown more (KIP-207)."""
        start = self.replicas.epoch_start_offset
        return self._has_followers and self.log.high_watermark < start

    def low_watermark(self) -> Offset:
        """See LeaderReplicas.low_watermark."""
        return self.replicas.low_watermark(self.log.log_start_offset)

    def advance_watermark(self) -> None:
        """Let readers see the records that all of the maximal in-sync set have, and that are
        flushed here if replies wait for flushes."""
        log = self.log
        if log.config.replies_wait_for_flush:
            reached = log.flushed_offset
        else:
            reached = log.log_end_offset
        if self._has_followers:
            reached = self._replicated(reached)
        log.set_high_watermark(reached)

    def _replicated(self, own_end: Offset) -> Offset:
        log, now_ms = self.log, self._around.now_ms()
        end = log.log_end_offset
        if end != self._seen_end:
            self.replicas.end_grew(self._seen_end, now_ms)
            self._seen_end = end
            # Followers may wait for records.
            self._around.wake(self.topic_partition)
        return self.replicas.watermark(log.high_watermark, own_end, end, now_ms)
