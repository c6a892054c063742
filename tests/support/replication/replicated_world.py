"""One replicated partition under faults, by one seed: a network, a clock, kills, and the checks."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import combinations
from random import Random

from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.leader_replicas import LeaderReplicas
from pyspark_klog.ids import BrokerId
from tests.support.replication.log_model import ModelRecord
from tests.support.replication.replicated_broker import BROKERS, ModelBroker, ModelController

FAULTS_MS = 1_500
HEALING_MS = 2_000
SESSION_MS = 50


class Broken(AssertionError):
    """A promise is broken."""


class ReplicatedWorld:
    """`flushes`: flush.messages=1. `cuts_power`: some kills lose what was not flushed. Without the
    one the other may lose records, and only the logs' matching is promised, unless a broker fails
    only while both others are in sync (`one_at_a_time`). `loses_one`: one broker never comes back.
    `reads_late`: a new session is known to other brokers before the controller reads of it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.flushes = chance.random() < 0.5
        self.cuts_power = chance.random() < 0.6
        self.loses_one = chance.random() < 0.5
        self.one_at_a_time = chance.random() < 0.3
        self.reads_late = seed % 4 == 2
        self.keeps_all = self.flushes or self.one_at_a_time or not self.cuts_power
        self.loss = chance.choice((0.0, 0.02, 0.1))
        self.answer_loss = chance.choice((self.loss, 0.3, 0.9))
        self.longest_ms = chance.choice((2, 6, 20))
        self.work_ms = chance.choice(((0, 1, 1, 3, 20), (1, 20, 40, 80), (0, 0, 1, 1, 150)))
        self.fault_rate = chance.choice((0.01, 0.04, 0.08))
        self.now_ms = 0
        self.is_healed = False
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._split: frozenset[BrokerId] = frozenset()
        self._orders: dict[BrokerId, int] = {}
        self._value = 0
        self._faults_until_ms = 0
        self._acked: dict[int, int] = {}
        self._seen: dict[int, ModelRecord] = {}
        self._deleted = 0
        self._gone: BrokerId | None = None
        self._checked: dict[BrokerId, tuple[int, int, int]] = {}
        self._watermarks: dict[tuple[BrokerId, int], int] = {}
        self.brokers = {each: ModelBroker(each, self) for each in BROKERS}
        self.controller = ModelController(self)

    # --- time and network ------------------------------------------------------------------------
    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (self.now_ms + delay_ms, self._count, act))

    def soon(self, broker: ModelBroker, act: Callable[[], None]) -> None:
        """Run a helper's work for the broker later, if the broker still runs then."""
        life = broker.life
        delay_ms = self.chance.choice((0, 1, 1, 3) if self.is_healed else self.work_ms)
        self.later(delay_ms, lambda: act() if broker.is_alive and broker.life == life else None)

    def send(
        self, arrive: Callable[[], None], *ends: ModelBroker, loss: float | None = None
    ) -> None:
        if not self.is_healed:
            is_split = len({each.broker_id in self._split for each in ends}) > 1
            if is_split or self.chance.random() < (self.loss if loss is None else loss):
                return
        longest_ms = 2 if self.is_healed else self.longest_ms
        self.later(self.chance.randint(0, longest_ms), arrive)

    def order(self, broker: ModelBroker, order: RoleAssignment | None) -> None:
        """The controller's requests arrive in order, and only under the broker epoch for which they
        were sent. A request whose response was lost arrives twice."""
        live = self.controller.live
        epoch = self.controller.registered[broker.broker_id]

        def arrive() -> None:
            if broker.is_alive and broker.broker_epoch == epoch:
                broker.update_live_brokers(live)
                if order is not None:
                    broker.queue_controller_request(order)

        at_ms = max(self._orders.get(broker.broker_id, 0), self.now_ms)
        for _ in range(2 if self.chance.random() < self.loss else 1):
            at_ms += self.chance.choice((0, 1, self.longest_ms, 120))
            self.later(at_ms - self.now_ms, arrive)
        self._orders[broker.broker_id] = at_ms

    # --- what happens ----------------------------------------------------------------------------
    def run(self) -> None:
        """Raises Broken."""
        for broker in BROKERS:
            self.start_broker(self.brokers[broker])
        self.later(1, self.load)
        self._run_until(FAULTS_MS)
        self.heal()
        self._run_until(FAULTS_MS + HEALING_MS)
        self.check_healed()

    def _run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, act = heappop(self._events)
            act()
            self.check()
        self.now_ms = end_ms

    def start_broker(self, broker: ModelBroker) -> None:
        if not broker.is_alive and broker.broker_id != self._gone:
            broker.start()
            broker.broker_epoch = self.controller.register(broker.broker_id)

    def load(self) -> None:
        """Act as clients, and cause faults, while these are wanted."""
        if self.now_ms < FAULTS_MS:
            chance = self.chance
            broker = self.brokers[chance.choice(BROKERS)]
            if chance.random() < 0.6:
                self._value += 1
                for each in self.brokers.values():
                    # A client may produce to any broker that considers itself the leader.
                    if isinstance(each.role, LeaderReplicas) and chance.random() < 0.8:
                        self._value += 1
                        each.produce(self._value)
            if chance.random() < 0.01:
                broker.delete_records(broker.log.high_watermark - chance.randint(0, 3))
                self._deleted = max(self._deleted, broker.log.log_start_offset)
            # One fault is often followed by another.
            rate = self.fault_rate * (3 if self.now_ms < self._faults_until_ms else 1)
            if chance.random() < rate:
                self._faults_until_ms = self.now_ms + 25
                self.fail(self._weak_one() or broker)
            self.later(chance.randint(1, 4), self.load)

    def fail(self, broker: ModelBroker) -> None:
        fault = self.chance.choice((self.kill, self.kill, self.expire, self.split, self.move))
        others = [each for each in self.brokers.values() if each is not broker]
        if fault in (self.kill, self.expire) and self.one_at_a_time:
            registered, in_sync = self.controller.registered, self.controller.state.in_sync
            for each in others:
                is_whole = registered.get(each.broker_id) == each.broker_epoch
                if not (each.is_alive and is_whole and each.broker_id in in_sync):
                    return
        fault(broker)

    def _weak_one(self) -> ModelBroker | None:
        """Choose a broker to kill: now and then the last in-sync one, or one about to be added."""
        in_sync = self.controller.state.in_sync
        if len(in_sync) == 1 and self.chance.random() < 0.3:
            return self.brokers[in_sync[0]]
        for each in self.brokers.values():
            role = each.role
            if (
                isinstance(role, LeaderReplicas)
                and role.pending_change
                and self.chance.random() < 0.15
            ):
                return self.brokers[role.pending_change.members[-1].broker_id]
        return None

    def move(self, broker: ModelBroker) -> None:
        self.controller.move(broker.broker_id)

    def kill(self, broker: ModelBroker) -> None:
        if not broker.is_alive:
            return
        broker.kill(loses_power=self.cuts_power and self.chance.random() < 0.5)
        epoch = broker.broker_epoch
        is_last = self.controller.state.in_sync == (broker.broker_id,)
        is_lost = self.chance.random() < (0.5 if is_last else 0.05)
        if self.loses_one and self._gone is None and is_lost:
            self._gone = broker.broker_id
        else:
            self.later(self.chance.choice((2, 20, 100, 300)), lambda: self.start_broker(broker))
        self.later(SESSION_MS, lambda: self._end_session(broker, epoch))

    def _end_session(self, broker: ModelBroker, epoch: int) -> None:
        if self.controller.registered.get(broker.broker_id) == epoch:
            self.controller.expired(broker.broker_id)

    def expire(self, broker: ModelBroker) -> None:
        """End the session of a broker that still runs and learns of the end later."""
        if broker.is_alive and broker.broker_id in self.controller.registered:
            life = broker.life
            self.controller.expired(broker.broker_id)

            def register() -> None:
                if broker.is_alive and broker.life == life:
                    late_ms = self.chance.choice((0, 60, 150)) if self.reads_late else 0
                    broker.broker_epoch = self.controller.register(broker.broker_id, late_ms)

            self.later(self.chance.choice((5, 50, 120)), register)

    def split(self, broker: ModelBroker) -> None:
        self._split = frozenset({broker.broker_id})

        def join() -> None:
            self._split = frozenset()

        self.later(self.chance.choice((20, 80, 300)), join)

    def heal(self) -> None:
        self.is_healed = True
        for broker in self.brokers.values():
            self.start_broker(broker)

    # --- the promises ----------------------------------------------------------------------------
    @property
    def acknowledged_count(self) -> int:
        return len(self._acked)

    def acknowledged(self, offset: int, value: int) -> None:
        self._acked[offset] = value

    def begins_to_lead(self, broker: ModelBroker, order: RoleAssignment) -> None:
        if self.keeps_all and order.leader_epoch == self.controller.state.leader_epoch:
            self._must_have_all(broker)

    def _must_have_all(self, broker: ModelBroker) -> None:
        for offset, value in self._acked.items():
            if offset >= self._deleted:
                found = broker.log.records.get(offset)
                if found is None or found.value != value:
                    raise Broken(f"acknowledged {value} at {offset} is lost: {found}")

    def check(self) -> None:
        """Check the promises after each event, for brokers that have changed since the last one."""
        changed = []
        for broker in self.brokers.values():
            log = broker.log
            facts = (broker.life, log.changes, log.high_watermark)
            if self._checked.get(broker.broker_id) == facts:
                continue
            self._checked[broker.broker_id] = facts
            changed.append(broker)
            if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
                raise Broken(f"watermark {log.high_watermark} is outside of the log")
            if self.keeps_all and broker.is_alive:
                life = (broker.broker_id, broker.life)
                if log.high_watermark < self._watermarks.get(life, 0):
                    raise Broken(f"the watermark of {life} falls to {log.high_watermark}")
                self._watermarks[life] = log.high_watermark
                self._check_seen(broker)
        for one, other in combinations(self.brokers.values(), 2):
            if one in changed or other in changed:
                _check_matching(one, other)

    def _check_seen(self, broker: ModelBroker) -> None:
        """All replicas are equal below their watermarks, now and later."""
        log = broker.log
        for offset in range(log.log_start_offset, log.high_watermark):
            record = log.records[offset]
            if self._seen.setdefault(offset, record) != record:
                raise Broken(f"{record} was seen at {offset} where {self._seen[offset]} was")

    def check_healed(self) -> None:
        survivors = [each for each in self.brokers.values() if each.is_alive]
        state = self.controller.state
        if self._gone is not None and self._gone in state.in_sync and state.leader < 0:
            # Only the lost broker may lead; acknowledged records are on other brokers, too.
            for offset, value in self._acked.items():
                if self.keeps_all and offset >= self._deleted:
                    found = [each.log.records.get(offset) for each in survivors]
                    if value not in (record.value for record in found if record is not None):
                        raise Broken(f"acknowledged {value} at {offset} is lost with one broker")
            return
        if set(state.in_sync) != {each.broker_id for each in survivors}:
            raise Broken(f"not all are in sync again: {state}, {[str(b.role) for b in survivors]}")
        leader = self.brokers[state.leader]
        if self.keeps_all:
            self._must_have_all(leader)
        for each in survivors:
            if each.log.log_end_offset != leader.log.log_end_offset:
                raise Broken("the logs do not end alike")
            if each.log.high_watermark != leader.log.log_end_offset:
                raise Broken(f"the watermark stays at {each.log.high_watermark}")


def _check_matching(one: ModelBroker, other: ModelBroker) -> None:
    """Log matching: if two records have the same offset and epoch, all before them are equal."""
    first = max(one.log.log_start_offset, other.log.log_start_offset)
    is_matching = False
    for offset in range(min(one.log.log_end_offset, other.log.log_end_offset) - 1, first - 1, -1):
        ours, theirs = one.log.records[offset], other.log.records[offset]
        is_matching |= ours.epoch == theirs.epoch
        if is_matching and ours != theirs:
            raise Broken(f"logs differ at {offset}: {ours}, {theirs}")
