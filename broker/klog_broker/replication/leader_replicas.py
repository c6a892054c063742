"""What the leader of one epoch knows of the partition's replicas, and decides by it. Pure: the
state of the log and the time are arguments.

A leader goes by the maximal in-sync set: the replicas that the controller has in sync, and those
that it may have by now. No record before the high watermark is missing on any of them, so whoever
of them leads next has it.
"""

from collections.abc import Collection
from enum import Enum

from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import EarlierLife, NotAReplica
from klog_broker.replication.high_watermark import reached_watermark
from klog_broker.replication.isr import Committed, InSyncSet, fallen_behind, may_join
from klog_broker.replication.isr_changes import (
    Afterwards,
    CommittedIsr,
    InSyncMember,
    IsrAnswer,
    IsrChange,
    after_error,
)
from klog_broker.replication.replica_progress import NEVER_MS, FollowerFetch, FollowerProgress
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, Offset


class AcksAll(Enum):
    """Whether a record that was appended is as safe as acks=all asks."""

    WAITING = "not all replicas that have to have it are known to have it"
    SAFE = "all replicas that have to have it have it"
    TOO_FEW = "all have it, but they are fewer than min.insync.replicas (..._AFTER_APPEND)"


class LeaderReplicas:
    """The replicas of one leadership. `order` made `broker_id` the leader, while its log ended at
    `epoch_start_offset`."""

    __slots__ = (
        "_asked",
        "_awaits_order",
        "_broker_epoch",
        "_max_lag_ms",
        "_may_be_late",
        "_min_in_sync",
        "broker_id",
        "epoch_start_offset",
        "followers",
        "in_sync",
        "leader_epoch",
        "live",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: int,
        order: RoleAssignment,
        *,
        epoch_start_offset: int,
        min_in_sync: int,
        max_lag_ms: int,
        now_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch: LeaderEpoch = order.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.replicas = order.replicas
        self.partition_epoch = order.partition_epoch
        self.in_sync: InSyncSet = self._committed(order.in_sync)
        self.live: Collection[BrokerId] = order.replicas
        """The brokers that are alive, by what the controller last told; the driver keeps it. Only
        these are asked to join, and waited for by DeleteRecords."""
        # Who is in sync has the whole time limit to show that it still is. How far it has come is
        # not known: in an earlier epoch, or life, its log may have been longer.
        self.followers: dict[BrokerId, FollowerProgress] = {
            each: FollowerProgress(caught_up_ms=now_ms if each in order.in_sync else NEVER_MS)
            for each in order.replicas
            if each != broker_id
        }
        self._broker_epoch = broker_epoch
        self._min_in_sync = min_in_sync
        self._max_lag_ms = max_lag_ms
        self._asked: IsrChange | None = None
        self._may_be_late = False
        """A request from this partition epoch was given up; a controller may get it yet."""
        self._awaits_order = False
        """The controller knows another state than the one that is asked from."""

    # --- what comes in ---------------------------------------------------------------------------
    def take_over(self, order: RoleAssignment) -> None:
        """Take an order of the same leader epoch, unless a newer state is known already.

        An order that tells nothing new must not end a change that is asked for: the controller may
        be about to make it.
        """
        if order.partition_epoch < self.partition_epoch:
            return
        self.replicas = order.replicas
        if order.partition_epoch > self.partition_epoch:
            self._commit(order.partition_epoch, order.in_sync)
        self.followers = {
            each: self.followers.get(each, FollowerProgress())
            for each in order.replicas
            if each != self.broker_id
        }

    def set_min_in_sync(self, min_in_sync: int) -> bool:
        """Take a new min.insync.replicas. Returns whether it differs from the one before."""
        is_other = self._min_in_sync != min_in_sync
        self._min_in_sync = min_in_sync
        return is_other

    def check_fetch(self, follower: BrokerId, broker_epoch: int) -> None:
        """Raise NotAReplica, or EarlierLife, unless that broker, in that life, may fetch as a
        follower."""
        progress = self.followers.get(follower)
        if progress is None:
            raise NotAReplica(
                f"broker {follower} fetches as a follower, the replicas are {self.replicas}"
            )
        if progress.is_of_earlier_life(broker_epoch):
            raise EarlierLife(
                f"broker {follower} fetches with broker epoch {broker_epoch}, it was started anew"
                f" with {progress.broker_epoch}"
            )

    def fetched(
        self, follower: BrokerId, fetch: FollowerFetch, leader_end: int, now_ms: int
    ) -> None:
        """A follower has all records before `fetch.offset`. Only for a Fetch of this leader epoch
        that neither diverges from the leader's log nor begins outside of it. Raises as
        :meth:`check_fetch`, with nothing changed."""
        self.check_fetch(follower, fetch.broker_epoch)
        self.followers[follower] = self.followers[follower].fetched(fetch, leader_end, now_ms)

    def end_grew(self, before: int, now_ms: int) -> None:
        """The leader's log ends no longer at `before`: who has all up to there had caught up until
        now. A follower does not name a partition again that nothing happens in (KIP-227), so that
        its last fetch may be long ago."""
        for each, progress in self.followers.items():
            if progress.log_end_offset == before and progress.caught_up_ms < now_ms:
                self.followers[each] = progress.caught_up(now_ms)

    # --- the in-sync set -------------------------------------------------------------------------
    def grow(self, follower: BrokerId, high_watermark: int) -> IsrChange | None:
        """The change that adds the follower, if it belongs to the set now; asked for from now on.
        To be called after each fetch of one that is not in sync."""
        in_sync = self.in_sync
        if not isinstance(in_sync, Committed) or not self._may_ask_for(follower):
            return None
        if not may_join(
            self.followers[follower].log_end_offset,
            high_watermark=high_watermark,
            epoch_start_offset=self.epoch_start_offset,
        ):
            return None
        self.in_sync = expanding = in_sync.expanded(follower)
        return self._ask_for(expanding.wanted)

    def grow_by_idle(self, leader_end: int, high_watermark: int) -> IsrChange | None:
        """As :meth:`grow`, for any that has all there is. To be called as :meth:`shrink` is: a
        follower does not name a partition again that nothing happens in (KIP-227), and when it did
        it may have been unknown here, or the controller may have refused it."""
        for follower, progress in list(self.followers.items()):
            if progress.log_end_offset == leader_end:
                change = self.grow(follower, high_watermark)
                if change is not None:
                    # If it is refused again, another one comes first the next time.
                    self.followers[follower] = self.followers.pop(follower)
                    return change
        return None

    def shrink(self, leader_end: int, now_ms: int) -> IsrChange | None:
        """The change that takes out who has fallen behind, if anybody has; asked for from now on.
        To be called at least twice in replica.lag.time.max.ms."""
        in_sync = self.in_sync
        if not isinstance(in_sync, Committed):
            return None
        behind = fallen_behind(
            in_sync.members,
            self.followers,
            leader_end=leader_end,
            now_ms=now_ms,
            max_lag_ms=self._max_lag_ms,
        )
        if not behind:
            return None
        self.in_sync = shrinking = in_sync.shrunk(behind)
        return self._ask_for(shrinking.wanted)

    @property
    def asked(self) -> IsrChange | None:
        """The change that the controller has to be asked for, also once more after a lost reply or
        of the next controller; None if there is none."""
        return self._asked

    def answered(self, change: IsrChange, answer: IsrAnswer) -> Afterwards:
        """The controller's answer to a change, the very object that was asked for, when it was sent
        last: an answer to an earlier sending must not come any more. After COMMITTED the watermark
        may go on."""
        if change is not self._asked:
            return Afterwards.TOO_LATE
        after = self._taken(answer) if isinstance(answer, CommittedIsr) else self._refused(answer)
        self._awaits_order = after is Afterwards.AWAITS_ORDER
        return after

    @property
    def awaits_order(self) -> bool:
        """Whether the answer to what is asked for was AWAITS_ORDER. No order comes if the state was
        changed in this leader epoch. So the driver looks at what it is told beside the orders
        (`told`), and asks again, from time to time."""
        return self._awaits_order

    def told(self, state: CommittedIsr) -> bool:
        """What the controller has told everybody of the partition; whether that is a newer state of
        this leader epoch, which is taken: the watermark may go on. What was asked for from an
        earlier state is not made any more."""
        if (
            state.leader_epoch != self.leader_epoch
            or state.partition_epoch <= self.partition_epoch
            or not {self.broker_id} <= set(state.members) <= set(self.replicas)
        ):
            return False
        self._commit(state.partition_epoch, state.members)
        return True

    def unanswered(self, change: IsrChange) -> None:
        """No answer will come to what was sent last, and it may be carried out at any time: also by
        a controller that has refused the same meanwhile, or has become it again."""
        if change is self._asked:
            self._may_be_late = True

    def _taken(self, answer: CommittedIsr) -> Afterwards:
        if answer.leader_epoch != self.leader_epoch or (
            answer.partition_epoch < self.partition_epoch
        ):
            return Afterwards.AWAITS_ORDER
        self._commit(answer.partition_epoch, answer.members)
        return Afterwards.COMMITTED

    def _refused(self, error: ErrorCode) -> Afterwards:
        after = after_error(error)
        if after is Afterwards.TAKEN_BACK:
            if self._may_be_late:
                # Not before the partition has another epoch, which ends what was sent from this.
                self._ask_for(self.in_sync.members)
                return Afterwards.AGAIN
            self._commit(self.partition_epoch, self.in_sync.members)
        elif error is ErrorCode.INVALID_UPDATE_VERSION and self._asks_for_an_epoch:
            # An earlier sending came first. If it was that, asking once more tells.
            assert not isinstance(self.in_sync, Committed)
            self._ask_for(self.in_sync.wanted)
            return Afterwards.AGAIN
        return after

    @property
    def _asks_for_an_epoch(self) -> bool:
        asked = self._asked
        return asked is not None and (
            tuple(each.broker_id for each in asked.members) == self.in_sync.members
        )

    def _may_ask_for(self, follower: BrokerId) -> bool:
        return (
            follower in self.followers
            and follower in self.live
            and follower not in self.in_sync.maximal
        )

    def _ask_for(self, wanted: tuple[BrokerId, ...]) -> IsrChange:
        members = tuple(InSyncMember(each, self._epoch_of(each)) for each in wanted)
        self._asked = IsrChange(self.leader_epoch, self.partition_epoch, members)
        return self._asked

    def _epoch_of(self, broker_id: BrokerId) -> int:
        if broker_id == self.broker_id:
            return self._broker_epoch
        return self.followers[broker_id].broker_epoch

    def _commit(self, partition_epoch: int, members: tuple[BrokerId, ...]) -> None:
        self.in_sync = self._committed(members)
        self.partition_epoch = partition_epoch
        self._asked = None
        self._may_be_late = self._awaits_order = False

    def _committed(self, members: tuple[BrokerId, ...]) -> Committed:
        """Nothing keeps who is no replica out of a state in ZooKeeper. It has no records, and the
        controller refuses every set with it. Nor may one count for two (min.insync.replicas)."""
        return Committed(tuple(dict.fromkeys(each for each in members if each in self.replicas)))

    # --- what is replicated ----------------------------------------------------------------------
    @property
    def min_in_sync_replicas(self) -> int:
        """min.insync.replicas, but no more than there are replicas, as since Kafka 3.7."""
        return min(self._min_in_sync, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.in_sync.members) < len(self.replicas)

    @property
    def is_enough_in_sync(self) -> bool:
        """Whether an append with acks=all is possible; if not: NOT_ENOUGH_REPLICAS."""
        return len(self.in_sync.members) >= self.min_in_sync_replicas

    def watermark(self, set_before: int, own_end: int, leader_end: int, now_ms: int) -> Offset:
        """The high watermark, which was `set_before` last. `own_end` is the end of the leader's
        log, `leader_end`, or of its flushed part where replies wait for a flush.

        It stands still while fewer than min.insync.replicas are in sync (KIP-966). Besides the
        maximal in-sync set it waits for a follower that keeps pace and is not in sync yet:
        otherwise that could never reach the watermark of a busy leader, and never join.
        """
        if not self.is_enough_in_sync:
            return Offset(set_before)
        maximal = self.in_sync.maximal
        ends = []
        for each, progress in self.followers.items():
            if each in maximal or (
                each in self.live and progress.keeps_pace(leader_end, now_ms, self._max_lag_ms)
            ):
                ends.append(progress.log_end_offset)
        return reached_watermark(set_before, own_end, ends)

    def acks_all(self, required_offset: int, high_watermark: int) -> AcksAll:
        """Whether all records before `required_offset` are as safe as acks=all asks.

        The set may have shrunk since the watermark passed them. Who may be in sync has them.
        """
        if high_watermark < required_offset:
            return AcksAll.WAITING
        is_enough = len(self.in_sync.maximal) >= self.min_in_sync_replicas
        return AcksAll.SAFE if is_enough else AcksAll.TOO_FEW

    def low_watermark(self, log_start_offset: int) -> Offset:
        """The least start of the logs of all live replicas, for DeleteRecords: nobody can read an
        older record. -1 while a follower has not told its start in this epoch."""
        starts = (
            progress.log_start_offset
            for each, progress in self.followers.items()
            if each in self.live
        )
        return Offset(min((log_start_offset, *starts)))
