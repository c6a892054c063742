"""Brokers and a controller around klog's replication machines, for one partition in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog_broker.controller.decisions.leader_election import (
    LeaderAndIsr,
    after_bounce,
    elect_leader,
    without_replica,
)
from klog_broker.log.errors import LogError
from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.metadata.image import NO_BROKER
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.errors import NotAReplica
from klog_broker.replication.follower_state import (
    AppendRecords,
    AskEnds,
    AskingEnds,
    Changing,
    FetchedPart,
    FetchPosition,
    FollowBounds,
    FollowerState,
    StartOver,
    Step,
    Truncate,
)
from klog_broker.replication.isr_changes import CommittedIsr, IsrChange, IsrResult
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from klog_broker.replication.replica_progress import FollowerFetch
from klog_broker.replication.truncation import is_diverging_epoch
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, Offset
from tests.support.log.harness import PARTITION, TOPIC_ID
from tests.support.replication.log_model import ModelLog

if TYPE_CHECKING:
    from tests.support.replication.replicated_world import ReplicatedWorld

MAX_LAG_MS = 100
REQUEST_TIMEOUT_MS = 25
BACKOFF_MS = 10
MIN_IN_SYNC = 2
BROKERS = (BrokerId(0), BrokerId(1), BrokerId(2))


class ModelBroker:
    """One broker: its log outlives a restart, all other state belongs to one run."""

    def __init__(self, broker_id: BrokerId, world: ReplicatedWorld) -> None:
        self.broker_id = broker_id
        self.world = world
        self.log = ModelLog()
        self.is_alive = False
        self.life = 0
        self.broker_epoch = -1
        self.checkpoint = 0
        self._begin()

    def _begin(self) -> None:
        self.role: LeaderReplicas | FollowerState | None = None
        self.leader = NO_BROKER
        self.live: tuple[BrokerId, ...] = ()
        self.epochs = (-1, -1)
        self.waiting: list[tuple[int, int]] = []  # acks=all: required offset, value
        self.asked_change: IsrChange | None = None  # the last ISR change that was sent
        self.asked_ms: int | None = None  # when the pending fetch or ISR change was sent
        self.sending = 0

    # --- lives -----------------------------------------------------------------------------------
    def start(self) -> None:
        self.life += 1
        self.is_alive = True
        self._begin()
        self.tick(self.life)

    def kill(self, *, loses_power: bool) -> None:
        self.is_alive = False
        end: int = self.log.log_end_offset
        if loses_power:
            end = self.world.chance.randint(self.log.flushed_offset, end)
            self.log.flushed_offset = Offset(min(self.log.flushed_offset, end))
        watermark: int = self.log.high_watermark
        self.log.start_again(
            end, self.world.chance.randint(min(self.checkpoint, watermark), watermark)
        )
        self.checkpoint = self.log.high_watermark
        self._begin()

    def tick(self, life: int) -> None:
        """A broker's periodic work."""
        if not self.is_alive or self.life != life:
            return
        role, now_ms, chance = self.role, self.world.now_ms, self.world.chance
        if chance.random() < 0.3:
            self.log.flush()
        if chance.random() < 0.1:
            self.checkpoint = self.log.high_watermark
        is_free = self.asked_ms is None or now_ms - self.asked_ms > REQUEST_TIMEOUT_MS
        if isinstance(role, LeaderReplicas):
            role.shrink(self.log.log_end_offset, now_ms)
            self.settle()
            if role.pending_change is not None and is_free:
                self.ask_controller(role, role.pending_change)
        elif role is not None and self.leader != NO_BROKER and is_free:
            if isinstance(role.phase, AskingEnds):
                role.refused(now_ms)  # the response was lost
            position = role.position(now_ms, flushes_first=self.world.flushes)
            if position is not None:
                self.send_fetch(position)
        self.world.later(chance.randint(1, 8), lambda: self.tick(life))

    # --- orders ----------------------------------------------------------------------------------
    def update_live_brokers(self, live: tuple[BrokerId, ...]) -> None:
        """Take the live brokers of an UpdateMetadata request."""
        self.live = live
        if isinstance(self.role, LeaderReplicas):
            self.role.live = live

    def queue_controller_request(self, order: RoleAssignment) -> None:
        epochs = (order.leader_epoch, order.partition_epoch)
        if epochs < self.epochs:
            return
        role = self.role
        if isinstance(role, LeaderReplicas) and order.leader_epoch == self.epochs[0]:
            role.apply_assignment(order)
            self.epochs = epochs
            self.settle()
            return
        if isinstance(role, FollowerState) and isinstance(role.phase, Changing):
            self.world.soon(self, lambda: self.queue_controller_request(order))
            return
        is_newer = order.leader_epoch > self.epochs[0]
        self.epochs, self.leader = epochs, order.leader
        if not is_newer:
            return
        self.waiting.clear()
        self.asked_ms = None
        self.sending += 1
        if order.leader == self.broker_id:
            self.lead(order)
        elif order.leader == NO_BROKER:
            self.role = None
        else:
            self.role = FollowerState(self.log, order.leader_epoch, backoff_ms=BACKOFF_MS)
            self.begin_to_follow()

    def begin_to_follow(self) -> None:
        """Do nothing: the leader's responses show what the log has to truncate."""

    def lead(self, order: RoleAssignment) -> None:
        self.world.begins_to_lead(self, order)
        self.log.epochs.add_epoch(order.leader_epoch, self.log.log_end_offset)
        self.log.high_watermark = self.first_watermark()
        self.role = LeaderReplicas(
            self.broker_id,
            self.broker_epoch,
            order,
            epoch_start_offset=self.log.log_end_offset,
            min_in_sync=MIN_IN_SYNC,
            max_lag_ms=MAX_LAG_MS,
            now_ms=self.world.now_ms,
        )
        self.role.live = self.live
        self.settle()

    def first_watermark(self) -> Offset:
        return self.log.high_watermark

    # --- leading ---------------------------------------------------------------------------------
    def settle(self) -> None:
        role, log = self.role, self.log
        assert isinstance(role, LeaderReplicas)
        own_end = log.flushed_offset if self.world.flushes else log.log_end_offset
        log.high_watermark = role.watermark(
            log.high_watermark, own_end, log.log_end_offset, self.world.now_ms
        )
        still = []
        for required, value in self.waiting:
            outcome = role.acks_all(required, log.high_watermark)
            if outcome is AcksAll.SAFE:
                self.world.acknowledged(required - 1, value)
            elif outcome is AcksAll.WAITING:
                still.append((required, value))
        self.waiting = still

    def produce(self, value: int) -> None:
        role = self.role
        if isinstance(role, LeaderReplicas) and role.is_enough_in_sync:
            self.log.append_value(role.leader_epoch, value)
            self.waiting.append((self.log.log_end_offset, value))
            self.settle()

    def delete_records(self, offset: int) -> None:
        if isinstance(self.role, LeaderReplicas):
            self.log.raise_start(min(offset, self.log.high_watermark))

    def ask_controller(self, role: LeaderReplicas, change: IsrChange) -> None:
        if self.asked_ms is not None and self.asked_change is not None:
            role.handle_lost_request(self.asked_change)
        self.asked_ms, self.asked_change = self.world.now_ms, change
        self.sending += 1
        sending, epoch, life = self.sending, self.broker_epoch, self.life

        def on_response(answer: IsrResult) -> None:
            if self.life == life and self.role is role and self.sending == sending:
                self.asked_ms = None
                role.handle_result(change, answer)
                self.settle()

        def arrived() -> None:
            answer = world.controller.alter(self.broker_id, epoch, change)
            world.send(lambda: on_response(answer), loss=world.answer_loss)

        world = self.world
        # The controller may be busy.
        busy_ms = (0, 0, 200) if world.reads_late else (0, 0, 40)
        world.later(world.chance.choice(busy_ms), lambda: world.send(arrived))

    def answer_fetch(
        self, follower: ModelBroker, position: FetchPosition, fetch: FollowerFetch
    ) -> FetchedPart:
        """Return all but the records, which are read later, when the leadership may be lost."""
        role, log = self.role, self.log
        nothing = memoryview(b"")

        def refuse(error: ErrorCode) -> FetchedPart:
            return FetchedPart(error, nothing, -1, -1)

        if not isinstance(role, LeaderReplicas):
            return refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if position.leader_epoch != role.leader_epoch:
            is_old = position.leader_epoch < role.leader_epoch
            return refuse(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        try:
            role.check_fetch(follower.broker_id, fetch.broker_epoch)
        except NotAReplica:
            return refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.log_start_offset <= position.offset:
            return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        if position.last_epoch >= 0:
            found: EpochEndOffset = log.end_offset_for_epoch(position.last_epoch)
            if found.leader_epoch < 0:
                return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
            if is_diverging_epoch(found, position.offset, position.last_epoch):
                return FetchedPart(ErrorCode.NONE, nothing, -1, -1, found)
        if position.offset > log.log_end_offset:
            return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        role.fetched(follower.broker_id, fetch, log.log_end_offset, self.world.now_ms)
        role.grow(follower.broker_id, log.high_watermark)
        self.settle()
        return FetchedPart(ErrorCode.NONE, nothing, log.high_watermark, log.log_start_offset)

    def read_for(self, position: FetchPosition, part: FetchedPart) -> FetchedPart:
        if part.error is not ErrorCode.NONE or part.diverging is not None:
            return part
        if not self.log.log_start_offset <= position.offset <= self.log.log_end_offset:
            return part._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        count = self.world.chance.randint(1, 4)
        return part._replace(records=self.log.read(position.offset, count))

    # --- following -------------------------------------------------------------------------------
    def send_fetch(self, position: FetchPosition) -> None:
        world, leader, life = self.world, self.world.brokers[self.leader], self.life
        self.asked_ms = world.now_ms
        self.sending += 1
        sending = self.sending
        fetch = FollowerFetch(position.offset, self.log.log_start_offset, self.broker_epoch)

        def arrived() -> None:
            if leader.is_alive:
                part = leader.answer_fetch(self, position, fetch)
                world.soon(leader, lambda: reply(leader.read_for(position, part)))

        def reply(part: FetchedPart) -> None:
            world.send(lambda: on_response(part), leader, self)

        def on_response(part: FetchedPart) -> None:
            if self.life != life or not self.is_alive or not isinstance(self.role, FollowerState):
                return
            if self.sending == sending:
                self.asked_ms = None
            self.perform(self.role.handle_response(position, part, world.now_ms), part)

        world.send(arrived, self, leader)

    def perform(self, step: Step, part: FetchedPart | None) -> None:
        role, log, world = self.role, self.log, self.world
        assert isinstance(role, FollowerState)
        if isinstance(step, AppendRecords):
            assert part is not None
            try:
                log.append_as_follower(step.records, role.leader_epoch)
            except LogError:
                role.refused(world.now_ms)
            else:
                self.perform(role.appended(part), part)
        elif isinstance(step, FollowBounds):
            log.high_watermark = step.high_watermark
            log.raise_start(step.log_start_offset)
        elif isinstance(step, Truncate | StartOver):
            if isinstance(step, Truncate):
                log.truncate(step.offset)
            else:
                log.start_over(step.offset)
            world.soon(self, lambda: self.perform(role.changed(world.now_ms), part))
        elif isinstance(step, AskEnds):
            self.ask_ends(role)

    def ask_ends(self, role: FollowerState) -> None:
        world, leader, life = self.world, self.world.brokers[self.leader], self.life
        self.asked_ms = world.now_ms

        def arrived() -> None:
            if leader.is_alive and isinstance(leader.role, LeaderReplicas):
                log = leader.log
                told = (leader.role.leader_epoch, log.log_start_offset, log.log_end_offset)
                world.send(lambda: on_response(*told), leader, self)

        def on_response(epoch: LeaderEpoch, start: int, end: int) -> None:
            if self.life == life and self.is_alive and self.role is role:
                self.asked_ms = None
                self.perform(role.handle_ends(epoch, start, end, world.now_ms), None)

        world.send(arrived, self, leader)


class ModelController:
    """A controller that never fails, by klog's elections."""

    def __init__(self, world: ReplicatedWorld) -> None:
        self.world = world
        self.registered: dict[BrokerId, int] = {}
        self.state = LeaderAndIsr(BROKERS[0], LeaderEpoch(0), BROKERS)
        self.partition_epoch = 0
        self._last_epoch = 0

    @property
    def live(self) -> tuple[BrokerId, ...]:
        return tuple(self.registered)

    def register(self, broker: BrokerId, read_in_ms: int = 0) -> int:
        """Begin a session of the broker, which the controller reads after ``read_in_ms``; return
        the broker epoch."""
        self._last_epoch += 1
        epoch = self._last_epoch
        if read_in_ms:
            self.world.later(read_in_ms, lambda: self._read_later(broker, epoch))
        else:
            self._read(broker, epoch)
        return epoch

    def _read_later(self, broker: BrokerId, epoch: int) -> None:
        registered = self.world.brokers[broker]
        if registered.is_alive and registered.broker_epoch == epoch:
            self._read(broker, epoch)

    def _read(self, broker: BrokerId, epoch: int) -> None:
        has_bounced = broker in self.registered
        self.registered[broker] = epoch
        state: LeaderAndIsr | None = None
        if has_bounced:
            state = self.bounced(broker)
        elif self.state.leader == NO_BROKER:
            state = elect_leader(BROKERS, self.state, self.live, unclean=False)
        self._write(state)
        if state is None:
            self.world.order(self.world.brokers[broker], self.present_order())

    def move(self, broker: BrokerId) -> None:
        """Make an in-sync broker the leader although no broker has failed."""
        state = self.state
        if broker in state.in_sync and broker in self.registered and broker != state.leader:
            self._write(LeaderAndIsr(broker, LeaderEpoch(state.leader_epoch + 1), state.in_sync))

    def bounced(self, broker: BrokerId) -> LeaderAndIsr | None:
        return after_bounce(BROKERS, self.state, (broker,), self.live, unclean=False)

    def expired(self, broker: BrokerId) -> None:
        """Expire the broker's session."""
        was_leader = self.state.leader == broker
        del self.registered[broker]
        state = without_replica(self.state, broker)
        if state is not None and was_leader:
            state = elect_leader(BROKERS, state, self.live, unclean=False) or state
        self._write(state)

    def _write(self, state: LeaderAndIsr | None) -> None:
        if state is not None:
            self.state = state
            self.partition_epoch += 1
        for each in self.live:
            self.world.order(
                self.world.brokers[each], None if state is None else self.present_order()
            )

    def present_order(self) -> RoleAssignment:
        state = self.state
        return RoleAssignment(
            PARTITION,
            TOPIC_ID,
            state.leader,
            state.leader_epoch,
            self.partition_epoch,
            BROKERS,
            state.in_sync,
        )

    def alter(self, broker: BrokerId, broker_epoch: int, change: IsrChange) -> IsrResult:
        """AlterPartition of one partition."""
        members = tuple(each.broker_id for each in change.members)
        error = self.refusal(broker, broker_epoch, change)
        if error is not ErrorCode.NONE:
            return error
        if change.partition_epoch != self.partition_epoch:
            if members != self.state.in_sync:
                return ErrorCode.INVALID_UPDATE_VERSION
        elif members == self.state.in_sync:
            self.partition_epoch += 1
        elif any(
            self.registered.get(each.broker_id) != each.broker_epoch for each in change.members
        ):
            return self.ineligible()
        else:
            self.state = LeaderAndIsr(self.state.leader, self.state.leader_epoch, members)
            self.partition_epoch += 1
        return CommittedIsr(self.state.leader_epoch, self.partition_epoch, members)

    def refusal(self, broker: BrokerId, broker_epoch: int, change: IsrChange) -> ErrorCode:
        if self.registered.get(broker) != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if broker != self.state.leader or change.leader_epoch != self.state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE

    def ineligible(self) -> ErrorCode:
        return ErrorCode.INELIGIBLE_REPLICA
