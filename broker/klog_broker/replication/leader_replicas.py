"""A leader's state of its partition's replicas in one leader epoch, and its ISR decisions. Pure:
the state of the log and the time are arguments.

A leader uses the maximal ISR: the ISR that the controller has committed, and the follower that the
controller may have added by now. Each of these replicas has all records before the high watermark,
so none of these records is lost whichever of the replicas is elected next.
"""

from collections.abc import Collection
from enum import Enum

from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import NotAReplica, StaleBrokerEpoch
from klog_broker.replication.high_watermark import reached_watermark
from klog_broker.replication.isr import Committed, InSyncSet, fallen_behind, may_join
from klog_broker.replication.isr_changes import (
    CommittedIsr,
    InSyncMember,
    IsrChange,
    IsrOutcome,
    IsrResult,
    after_error,
)
from klog_broker.replication.replica_progress import NEVER_MS, FollowerFetch, FollowerProgress
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, Offset


class AcksAll(Enum):
    """Whether an appended record is replicated as acks=all requires."""

    WAITING = "some in-sync replicas may not have the record yet"
    SAFE = "all in-sync replicas have the record"
    TOO_FEW = (
        "all in-sync replicas have the record, but they are fewer than min.insync.replicas, so the"
        " response is NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    )


class LeaderReplicas:
    """The replicas of one leadership. The role assignment `assignment` (the instruction to lead)
    made `broker_id` the leader when its log ended at `epoch_start_offset`."""

    __slots__ = (
        "_awaits_leader_and_isr",
        "_broker_epoch",
        "_max_lag_ms",
        "_may_be_late",
        "_min_in_sync",
        "_pending_change",
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
        assignment: RoleAssignment,
        *,
        epoch_start_offset: int,
        min_in_sync: int,
        max_lag_ms: int,
        now_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch: LeaderEpoch = assignment.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.replicas = assignment.replicas
        self.partition_epoch = assignment.partition_epoch
        self.in_sync: InSyncSet = self._committed(assignment.in_sync)
        self.live: Collection[BrokerId] = assignment.replicas
        """The live brokers according to the controller's latest UpdateMetadata request; the Leader
        sets this collection. Only live followers are added to the ISR, and DeleteRecords waits for
        live followers only."""
        # An in-sync follower counts as caught up now, so it has replica.lag.time.max.ms to fetch.
        # Its log end offset is unknown, because its log may have been truncated since an earlier
        # leader epoch, or may be shorter after a restart.
        self.followers: dict[BrokerId, FollowerProgress] = {
            each: FollowerProgress(caught_up_ms=now_ms if each in assignment.in_sync else NEVER_MS)
            for each in assignment.replicas
            if each != broker_id
        }
        self._broker_epoch = broker_epoch
        self._min_in_sync = min_in_sync
        self._max_lag_ms = max_lag_ms
        self._pending_change: IsrChange | None = None
        self._may_be_late = False
        """Whether a request for an ISR change from the present partition epoch got no response, so
        that a controller may still receive it and make the change."""
        self._awaits_leader_and_isr = False
        """Whether the response to the latest ISR change was AWAITS_LEADER_AND_ISR: the controller
        has a newer partition state than the leader."""

    # --- role assignments from the controller, and fetches of followers --------------------------
    def apply_assignment(self, assignment: RoleAssignment) -> None:
        """Take a role assignment (an instruction to lead or to follow) that has this leader's
        epoch, unless its partition epoch is older than the present one.

        An assignment with the same partition epoch does not end an ISR change that this leader has
        requested, because the controller may be about to make that change.
        """
        if assignment.partition_epoch < self.partition_epoch:
            return
        self.replicas = assignment.replicas
        if assignment.partition_epoch > self.partition_epoch:
            self._commit(assignment.partition_epoch, assignment.in_sync)
        self.followers = {
            each: self.followers.get(each, FollowerProgress())
            for each in assignment.replicas
            if each != self.broker_id
        }

    def set_min_in_sync(self, min_in_sync: int) -> bool:
        """Take a new min.insync.replicas. Returns whether it differs from the previous value."""
        is_other = self._min_in_sync != min_in_sync
        self._min_in_sync = min_in_sync
        return is_other

    def check_fetch(self, follower: BrokerId, broker_epoch: int) -> None:
        """Raise NotAReplica if `follower` is no follower of this partition, or StaleBrokerEpoch if
        the follower has already fetched with a newer broker epoch."""
        progress = self.followers.get(follower)
        if progress is None:
            raise NotAReplica(
                f"broker {follower} fetches as a follower, but the partition's replicas are"
                f" {self.replicas}"
            )
        if progress.is_of_older_broker_epoch(broker_epoch):
            raise StaleBrokerEpoch(
                f"broker {follower} fetches with broker epoch {broker_epoch}, but has registered"
                f" again with {progress.broker_epoch}"
            )

    def fetched(
        self, follower: BrokerId, fetch: FollowerFetch, leader_end: int, now_ms: int
    ) -> None:
        """Record a Fetch, which shows that the follower has all records before `fetch.offset`. The
        Fetch must be of this leader epoch, must not diverge from the leader's log, and its offset
        must be in the leader's log. Raises the errors of :meth:`check_fetch`, with nothing
        changed."""
        self.check_fetch(follower, fetch.broker_epoch)
        self.followers[follower] = self.followers[follower].fetched(fetch, leader_end, now_ms)

    def end_grew(self, before: int, now_ms: int) -> None:
        """Record that the leader's log has grown beyond `before`: followers whose log ends at
        `before` had caught up until now. In an idle partition the last fetch of such a follower may
        be long ago, because a fetch session does not name an unchanged partition again
        (KIP-227)."""
        for each, progress in self.followers.items():
            if progress.log_end_offset == before and progress.caught_up_ms < now_ms:
                self.followers[each] = progress.caught_up(now_ms)

    # --- changes of the ISR ----------------------------------------------------------------------
    def grow(self, follower: BrokerId, high_watermark: int) -> IsrChange | None:
        """Return the change that adds the follower to the ISR, if it may join now; from then on the
        change is requested (`pending_change`). Call this after each fetch of a follower that is not
        in sync."""
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
        return self._request_change(expanding.wanted)

    def grow_by_idle(self, leader_end: int, high_watermark: int) -> IsrChange | None:
        """Return the change that adds one follower that has all records, if any may join (`grow`).
        Call this as often as :meth:`shrink`: a fetch session does not name an idle partition again
        (KIP-227), and after the last fetch of the follower the controller may have refused it, or
        this broker did not know yet that the follower is live."""
        for follower, progress in list(self.followers.items()):
            if progress.log_end_offset == leader_end:
                change = self.grow(follower, high_watermark)
                if change is not None:
                    # Move the follower to the end of the dict: if the controller refuses to add it
                    # to the ISR, the next call tries the other followers first.
                    self.followers[follower] = self.followers.pop(follower)
                    return change
        return None

    def shrink(self, leader_end: int, now_ms: int) -> IsrChange | None:
        """Return the change that removes the lagging followers from the ISR, if there are any and
        no change is requested yet; from then on the change is requested (`pending_change`). Call
        this at least twice in replica.lag.time.max.ms."""
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
        return self._request_change(shrinking.wanted)

    @property
    def pending_change(self) -> IsrChange | None:
        """The ISR change that the controller has to be asked for; None if there is none. The caller
        sends the request again after a lost response or a change of the controller."""
        return self._pending_change

    def handle_result(self, change: IsrChange, answer: IsrResult) -> IsrOutcome:
        """Handle the controller's response to the latest request for `change`, which must be the
        object that `pending_change` returned. The caller must drop responses to earlier
        requests. After COMMITTED or REFUSED the high watermark may rise."""
        if change is not self._pending_change:
            return IsrOutcome.STALE
        after = (
            self._apply_committed(answer)
            if isinstance(answer, CommittedIsr)
            else self._refused(answer)
        )
        self._awaits_leader_and_isr = after is IsrOutcome.AWAITS_LEADER_AND_ISR
        return after

    @property
    def awaits_leader_and_isr(self) -> bool:
        """Whether the response to the requested change was AWAITS_LEADER_AND_ISR. The controller
        sends no LeaderAndIsr request if the partition state (partition epoch and ISR) was changed
        within this leader epoch. So the caller has to pass the partition state of the latest
        UpdateMetadata request to `apply_partition_state` and repeat the AlterPartition request,
        periodically."""
        return self._awaits_leader_and_isr

    def apply_partition_state(self, state: CommittedIsr) -> bool:
        """Take a partition state that the controller has sent in UpdateMetadata, if it is a newer
        state of this leader epoch, and its ISR has this leader and only replicas of the partition.
        Returns whether the state was taken: the high watermark may rise then, and a change
        requested from the earlier state is dropped, because the controller will refuse it."""
        if (
            state.leader_epoch != self.leader_epoch
            or state.partition_epoch <= self.partition_epoch
            or not {self.broker_id} <= set(state.members) <= set(self.replicas)
        ):
            return False
        self._commit(state.partition_epoch, state.members)
        return True

    def handle_lost_request(self, change: IsrChange) -> None:
        """Record that the latest request for `change` gets no response. A controller may still
        carry that request out at any time, even after it has refused a later copy of the
        request."""
        if change is self._pending_change:
            self._may_be_late = True

    def _apply_committed(self, answer: CommittedIsr) -> IsrOutcome:
        if answer.leader_epoch != self.leader_epoch or (
            answer.partition_epoch < self.partition_epoch
        ):
            return IsrOutcome.AWAITS_LEADER_AND_ISR
        self._commit(answer.partition_epoch, answer.members)
        return IsrOutcome.COMMITTED

    def _refused(self, error: ErrorCode) -> IsrOutcome:
        after = after_error(error)
        if after is IsrOutcome.REFUSED:
            if self._may_be_late:
                # An earlier request for an ISR change from this partition epoch got no response,
                # and the controller may still carry it out. Request the present ISR: the change
                # raises the partition epoch, and then the controller refuses that earlier request.
                self._request_change(self.in_sync.members)
                return IsrOutcome.RETRY
            self._commit(self.partition_epoch, self.in_sync.members)
        elif error is ErrorCode.INVALID_UPDATE_VERSION and self._asks_for_an_epoch:
            # The controller has a newer partition epoch, perhaps because it has carried out an
            # earlier request for the wanted ISR. Request that ISR again: if the controller has
            # committed it, the response is the committed state.
            assert not isinstance(self.in_sync, Committed)
            self._request_change(self.in_sync.wanted)
            return IsrOutcome.RETRY
        return after

    @property
    def _asks_for_an_epoch(self) -> bool:
        pending_change = self._pending_change
        return pending_change is not None and (
            tuple(each.broker_id for each in pending_change.members) == self.in_sync.members
        )

    def _may_ask_for(self, follower: BrokerId) -> bool:
        return (
            follower in self.followers
            and follower in self.live
            and follower not in self.in_sync.maximal
        )

    def _request_change(self, wanted: tuple[BrokerId, ...]) -> IsrChange:
        members = tuple(InSyncMember(each, self._epoch_of(each)) for each in wanted)
        self._pending_change = IsrChange(self.leader_epoch, self.partition_epoch, members)
        return self._pending_change

    def _epoch_of(self, broker_id: BrokerId) -> int:
        if broker_id == self.broker_id:
            return self._broker_epoch
        return self.followers[broker_id].broker_epoch

    def _commit(self, partition_epoch: int, members: tuple[BrokerId, ...]) -> None:
        self.in_sync = self._committed(members)
        self.partition_epoch = partition_epoch
        self._pending_change = None
        self._may_be_late = self._awaits_leader_and_isr = False

    def _committed(self, members: tuple[BrokerId, ...]) -> Committed:
        """Return the committed ISR, without duplicates and without brokers that are no replicas. A
        partition state in ZooKeeper may contain both. A broker that is no replica has no records,
        and the controller would refuse every ISR with it; a duplicate would count twice for
        min.insync.replicas."""
        return Committed(tuple(dict.fromkeys(each for each in members if each in self.replicas)))

    # --- high watermark and min.insync.replicas --------------------------------------------------
    @property
    def min_in_sync_replicas(self) -> int:
        """min.insync.replicas, limited to the number of replicas, like Kafka since 3.7."""
        return min(self._min_in_sync, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        """Whether at least one replica is not in sync."""
        return len(self.in_sync.members) < len(self.replicas)

    @property
    def is_enough_in_sync(self) -> bool:
        """Whether an append with acks=all is possible; otherwise it gets NOT_ENOUGH_REPLICAS."""
        return len(self.in_sync.members) >= self.min_in_sync_replicas

    def watermark(self, set_before: int, own_end: int, leader_end: int, now_ms: int) -> Offset:
        """Return the high watermark, whose last value was `set_before`. `own_end` is `leader_end`,
        the end of the leader's log, or the end of its flushed part if responses wait for flushes
        (flush.messages=1).

        The high watermark stands still while fewer than min.insync.replicas are in sync (KIP-966).
        The high watermark waits for the maximal ISR (the larger one of the committed ISR and the
        ISR that this leader has requested), and for live followers that are not in sync yet, but
        have caught up within replica.lag.time.max.ms. If the high watermark did not wait for such a
        follower, the follower could never reach the high watermark of a busy leader, and so could
        never join the ISR.
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
        """Return whether all records before `required_offset` are replicated as acks=all requires.

        All replicas of the maximal ISR (the committed ISR, and a follower that the controller may
        have added) have the records before the high watermark. The result is TOO_FEW if these
        replicas are fewer than min.insync.replicas: the ISR may have shrunk.
        """
        if high_watermark < required_offset:
            return AcksAll.WAITING
        is_enough = len(self.in_sync.maximal) >= self.min_in_sync_replicas
        return AcksAll.SAFE if is_enough else AcksAll.TOO_FEW

    def low_watermark(self, log_start_offset: int) -> Offset:
        """Return the lowest log start offset of all live replicas, for DeleteRecords: no live
        replica serves a record before that offset. -1 while a live follower has not sent its log
        start offset in this leader epoch."""
        starts = (
            progress.log_start_offset
            for each, progress in self.followers.items()
            if each in self.live
        )
        return Offset(min((log_start_offset, *starts)))
