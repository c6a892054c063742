"""One leadership of a partition: its appends, its high watermark and the state of its followers.

leader_replicas.py decides about the followers and the ISR; this module applies the decisions to the
log. A leader without followers needs no such decisions.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.read.read_results import AppendInfo
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.log_validator import Validated
from klog_broker.log.validation.loop_share import LoopShare
from klog_broker.metadata.image import PartitionRegistration
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import (
    EndReason,
    LeadershipEnded,
    NotEnoughReplicas,
    TooLittleFreeSpace,
)
from klog_broker.replication.isr_changes import CommittedIsr, IsrChange, IsrOutcome, IsrResult
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.ids import BrokerId, Offset, TopicPartition
from pyspark_klog.records.control import EndTransactionMarker


def _ignore(_leader: "Leader") -> None:
    """Ignore an ISR change: a standalone broker (without ZooKeeper) has no controller to ask."""


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """The functions and values of the broker and its cluster that leaders use; the defaults serve a
    standalone broker (without ZooKeeper). Times are monotonic."""

    now_ms: Callable[[], int] = lambda: 0
    broker_epoch: Callable[[], int] = lambda: -1
    live: Collection[BrokerId] = ()
    """The ids of the live brokers; the collection always has the current ones."""
    max_lag_ms: int = 30_000
    """replica.lag.time.max.ms"""
    wake: Callable[[TopicPartition], None] = lambda _: None
    """Called when delayed requests about the partition (Fetch, Produce, DeleteRecords) may have
    become ready to be answered."""
    in_sync_changed: Callable[["Leader"], None] = _ignore
    """Called when the controller has to be asked for an ISR change, has committed or refused one,
    or has sent a newer ISR in UpdateMetadata; not for the ISR of a role assignment."""


class Leader:
    """One leadership of this broker: from the role assignment (the instruction to lead) that began
    it until `ended` is set.

    Made by ``Partition.lead`` only. The appends of the leadership go through this object, except
    those of produce plans (produce/planner.py), which use `log`, as reads do.
    """

    __slots__ = (
        "_context",
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
        assignment: RoleAssignment,
        min_in_sync: int,
        context: LeaderContext,
    ) -> None:
        self.broker_id = broker_id
        self.log = log
        self.leader_epoch = assignment.leader_epoch
        self.ended: EndReason | None = None
        """Why the leadership has ended; None while it lasts. After the end all appends are refused.
        Requests that wait for the replication of earlier appends get an error, or wait for the
        `successor` if there is one."""
        self.successor: Leader | None = None
        """This broker's next leadership of the partition, in a newer epoch, or None. The attribute
        stays None if this broker has another role between the two leaderships, because its log may
        be truncated in that role."""
        self._context = context
        self._seen_end = log.log_end_offset
        self.replicas = LeaderReplicas(
            broker_id,
            context.broker_epoch(),
            assignment,
            epoch_start_offset=log.log_end_offset,
            min_in_sync=min_in_sync,
            max_lag_ms=context.max_lag_ms,
            now_ms=context.now_ms(),
        )
        self.replicas.live = context.live
        self._has_followers = bool(self.replicas.followers)

    def __repr__(self) -> str:
        return f"Leader({self.topic_partition}, epoch {self.leader_epoch}, {self.ended})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def present(self) -> "Leader":
        """The broker's last leadership that followed this one without another role in between
        (`successor`), or this one if none did. A request that waits until records of this
        leadership are replicated then waits for the last one, because the records are still at the
        same offsets. Such chains of leaderships are common: the controller begins a new leader
        epoch each time that the failure of a broker removes a replica from the ISR."""
        leader = self
        while leader.successor is not None:
            leader = leader.successor
        return leader

    @property
    def is_enough_in_sync(self) -> bool:
        """Whether the ISR has at least min.insync.replicas members (or all replicas, if they are
        fewer), as acks=all requires."""
        return self.replicas.is_enough_in_sync

    @property
    def has_no_followers(self) -> bool:
        """Whether the partition has no other replica, so that records need no replication."""
        return not self._has_followers

    # --- appending batches to the log ------------------------------------------------------------
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

        Raises the errors of that method; also, before the log is changed, LeadershipEnded and
        TooLittleFreeSpace, and with `acks_all` NotEnoughReplicas.
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
        """Append a coordinator's batch, in most cases without validation, in this leadership's
        epoch (``PartitionLog.append_plain``), if min.insync.replicas are in sync, as for acks=all.

        Raises the errors of that method; also, before the log is changed, LeadershipEnded,
        TooLittleFreeSpace and NotEnoughReplicas."""
        self.check(acks_all=True)
        self.log.append_plain(
            batch, record_count, timestamp_ms, leader_epoch=self.leader_epoch, now_ms=now_ms
        )

    def append_validated(
        self,
        validated: Callable[[], Validated],
        *,
        acks_all: bool,
        now_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append a client's batch that :meth:`validation_job` has validated in a helper thread.
        ``validated`` returns the validated batch, or raises the error of the validation.

        Raises the errors of :meth:`append`, with nothing changed."""
        self.check(acks_all=acks_all, of_clients=True)
        return self.log.append_validated(
            validated(), leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard
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
        """Call ``PartitionLog.append_marker`` in this leadership's epoch, with acks=all.

        Raises the errors of that method; also, before the log is changed, LeadershipEnded,
        TooLittleFreeSpace and NotEnoughReplicas.
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

    def validation_job(
        self, records: bytes | bytearray | memoryview, now_ms: int
    ) -> Callable[[], Validated]:
        """Return a function that validates the records of an append; call it in a helper thread."""
        return self.log.validation_job(records, now_ms)

    @property
    def has_free_space(self) -> bool:
        """Whether the disk has enough free space for records of clients
        (log.dir.min.free.bytes)."""
        return not self.log.log_directory.space.refuses_clients

    def check(self, *, acks_all: bool, of_clients: bool = False) -> None:
        """Raise LeadershipEnded, TooLittleFreeSpace or (with `acks_all`) NotEnoughReplicas, if the
        append is not allowed now. A coordinator's append is refused only if the disk has much less
        free space than log.dir.min.free.bytes."""
        if self.ended is not None:
            raise LeadershipEnded(self.topic_partition, self.ended)
        space = self.log.log_directory.space
        if space.refuses_clients and (of_clients or space.refuses_state):
            raise TooLittleFreeSpace(space.refusal(self.topic_partition))
        if acks_all and not self.is_enough_in_sync:
            raise NotEnoughReplicas(
                f"{len(self.replicas.in_sync.members)} replicas of {self.topic_partition} are in"
                f" sync, acks=all needs {self.replicas.min_in_sync_replicas} (min.insync.replicas,"
                f" or the number of replicas if that is lower)"
            )

    # --- followers, ISR and high watermark -------------------------------------------------------
    def apply_assignment(self, assignment: RoleAssignment, min_in_sync: int) -> None:
        """Take the replicas and the ISR of a role assignment (an instruction to lead or to follow)
        that has this leader's epoch, unless its partition epoch is older than the present one."""
        self.replicas.apply_assignment(assignment)
        self.replicas.set_min_in_sync(min_in_sync)
        self._has_followers = bool(self.replicas.followers)

    def set_min_in_sync(self, min_in_sync: int) -> bool:
        """Take a new min.insync.replicas. Returns whether it differs from the previous value."""
        return self.replicas.set_min_in_sync(min_in_sync)

    def fetched(self, follower: BrokerId, fetch: FollowerFetch) -> None:
        """Handle a follower's Fetch, which shows that the follower has all records before
        `fetch.offset`: the high watermark may rise, and the follower may be added to the ISR.
        Raises NotAReplica or StaleBrokerEpoch, with nothing changed (LeaderReplicas.fetched)."""
        replicas = self.replicas
        known = replicas.followers.get(follower)
        replicas.fetched(follower, fetch, self.log.log_end_offset, self._context.now_ms())
        if replicas.grow(follower, self.log.high_watermark) is not None:
            self._context.in_sync_changed(self)
        self.advance_watermark()
        if known is not None and known.log_start_offset != fetch.log_start_offset:
            # DeleteRecords requests may wait until this follower's log start offset has risen.
            self._context.wake(self.topic_partition)

    def look_after_followers(self) -> None:
        """Ask the controller to remove lagging followers from the ISR, so that they do not hold up
        the high watermark; or else to add a follower that has all records and is not in the ISR.
        Called every replica.lag.time.max.ms / 2, and after a broker has left the cluster."""
        replicas, end = self.replicas, self.log.log_end_offset
        change = replicas.shrink(end, self._context.now_ms())
        if change is None:
            change = replicas.grow_by_idle(end, self.log.high_watermark)
        if change is not None:
            self._context.in_sync_changed(self)
        self.advance_watermark()

    def handle_isr_result(self, change: IsrChange, answer: IsrResult) -> IsrOutcome:
        """Handle the controller's response to an ISR change that this leader has requested, and
        return the leader's next state. The leadership must not have ended."""
        after = self.replicas.handle_result(change, answer)
        if after in (IsrOutcome.COMMITTED, IsrOutcome.REFUSED):
            self._context.in_sync_changed(self)
            self.advance_watermark()
        return after

    def apply_partition_state(self, state: PartitionRegistration) -> None:
        """Take the partition state in the metadata image (the snapshot of the cluster from the
        controller's UpdateMetadata requests), if it is a newer state of this leader epoch.
        The leadership must not have ended."""
        committed = CommittedIsr(state.leader_epoch, state.partition_epoch, state.in_sync)
        if self.replicas.apply_partition_state(committed):
            self._context.in_sync_changed(self)
            self.advance_watermark()

    def has_too_few_of(self, required_offset: int) -> bool:
        """Whether the high watermark has reached `required_offset`, but the in-sync replicas, which
        have the records before it, are fewer than min.insync.replicas."""
        safe = self.replicas.acks_all(required_offset, self.log.high_watermark)
        return safe is AcksAll.TOO_FEW

    @property
    def lags_behind_epoch(self) -> bool:
        """Whether the high watermark is below the log end offset at which this leadership began;
        False if the partition has no other replica. An earlier leader may have shown clients a
        higher watermark (KIP-207)."""
        start = self.replicas.epoch_start_offset
        return self._has_followers and self.log.high_watermark < start

    def low_watermark(self) -> Offset:
        """Return the lowest log start offset of the live replicas; -1 while the log start offset of
        a live follower is unknown."""
        return self.replicas.low_watermark(self.log.log_start_offset)

    def advance_watermark(self) -> None:
        """Raise the high watermark to the end of the records that all replicas for which it waits
        have, unless too few replicas are in sync (``LeaderReplicas.watermark``). If responses wait
        for flushes (flush.messages=1), the records must also be flushed on this broker."""
        log = self.log
        if log.config.responses_wait_for_flush:
            reached = log.flushed_offset
        else:
            reached = log.log_end_offset
        if self._has_followers:
            reached = self._replicated(reached)
        log.set_high_watermark(reached)

    def _replicated(self, own_end: Offset) -> Offset:
        log, now_ms = self.log, self._context.now_ms()
        end = log.log_end_offset
        if end != self._seen_end:
            self.replicas.end_grew(self._seen_end, now_ms)
            self._seen_end = end
            # Fetches of followers may wait for the new records.
            self._context.wake(self.topic_partition)
        return self.replicas.watermark(log.high_watermark, own_end, end, now_ms)
