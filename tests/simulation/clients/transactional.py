"""Processes that write in transactions, on the real client's core, and that may die or be late.

A process commits or aborts, dies at any step, or sleeps past its transaction timeout and goes on as
if nothing had happened. Several processes may share a transactional id: each fences the earlier
ones. In its transactions a process also moves the offsets of a group, as a copy from topic to topic
does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.client.errors import (
    ConnectionFailed,
    DeliveryFailed,
    ProducerUnusable,
    TransactionMustAbort,
)
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.producer.batches import ADDS_IMPLICITLY, Batch
from pyspark_klog.client.transactions.manager import TransactionManager
from pyspark_klog.client.transactions.outcomes import Step
from pyspark_klog.client.transactions.states import TransactionalProducerState
from pyspark_klog.client.transactions.steps import (
    ConsumerGroupMetadata,
    End,
    Initialize,
    PendingStep,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.protocol.message import Response
from tests.simulation.checks.records import value_of
from tests.simulation.checks.transactions import Transaction
from tests.simulation.clients.base import Lost, Script, check_code
from tests.simulation.clients.producer import EXPECTED, NAMED, TIMEOUT_MS, Producer
from tests.simulation.plan import LONGEST_TIMEOUT_MS
from tests.simulation.world import Violation

EXCUSED = "a producer goes on until it is late or another one takes over"
_RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)


class _Died(Exception):
    """The process has died."""


class TransactionalProducer(Producer):
    """Runs one process after another under one transactional id."""

    is_transactional = True
    timeouts_ms = (1_000, LONGEST_TIMEOUT_MS)
    transaction_versions: tuple[int, ...] = (0, ADDS_IMPLICITLY)
    _expected = (
        *EXPECTED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )

    def __init__(self, *given: Any, transactional_id: str, **named: Any) -> None:
        super().__init__(*given, idempotent=True, large=[], **named)
        self._id = transactional_id
        self._group = f"positions-of-{transactional_id}"
        self._manager = self._new_manager()
        self._transaction_version = 0
        self._positions: dict[TopicPartition, int] = {}
        self._inputs = [each for each in self._partitions if each.topic == "t0"]
        self._circumstances: tuple[int, ...] | None = None
        """The circumstances in which the process must not be fenced; None: unknown."""
        self._newest_then = -1
        """The newest epoch that was known when the last step was sent."""
        self._late_ms = 0
        """The time when the transaction's timeout has passed."""

    def script(self) -> Script:
        while True:
            try:
                yield from self._process()
            except (_Died, ProducerUnusable) as end:
                self.note(f"process ends: {type(end).__name__} {end}")
            if self.must_end:
                return
            is_long = self.world.chance(0.15)
            yield from self.sleep(12_000 if is_long else self.world.between(100, 4_000))

    @property
    def _adds_implicitly(self) -> bool:
        return self._transaction_version >= ADDS_IMPLICITLY

    @property
    def resets_when_late(self) -> bool:
        # A late request of the same epoch would count in the next transaction. transaction.version
        # 2 (KIP-890) prevents that with a new epoch for each transaction.
        return not self._adds_implicitly

    # --- a process -------------------------------------------------------------------------------
    def _new_manager(self) -> TransactionManager:
        self._timeout_ms = self.world.between(*self.timeouts_ms)
        return TransactionManager(
            self._id, self._timeout_ms, lambda count: self.world.between(1, 20 * min(count, 10))
        )

    def _process(self) -> Script:
        self._calls = []
        self._core, self._manager = self._new_core(), self._new_manager()
        self._transaction_version = self.world.random.choice(self.transaction_versions)
        self._manager.initialize()
        self._circumstances = None
        with self.history.transactions.taking_over(self._id):
            yield from self._carry_out()
        self._circumstances = self.history.transactions.circumstances(self._id)
        yield from self._fetch_positions()
        while not self.must_end:
            yield from self._transaction()
            yield from self.sleep(self.world.between(1, self._pause_ms))

    def _transaction(self) -> Script:
        """Run one transaction to its end."""
        world, manager = self.world, self._manager
        self._late_ms = world.now_ms + self._timeout_ms
        begun = self.history.transactions.begins(self._id, manager.identity, self.name)
        self.note(f"begins {begun.name} as {manager.identity} version {self._transaction_version}")
        manager.begin_transaction(self._transaction_version)
        try:
            writes = world.between(0, 3)
            for _ in range(writes):
                yield from self._write(begun)
                yield from self._dawdle()
            if world.chance(0.5):
                yield from self._move_positions(begun)
                yield from self._dawdle()
            if (writes or begun.moves) and world.chance(0.12):
                yield from self._hand_over(begun)
            if world.chance(0.8):
                manager.commit()
                yield from self._carry_out(begun)
        except TransactionMustAbort as error:
            self.note(f"must abort: {error}")
        if manager.state is not TransactionalProducerState.READY:
            yield from self._abort(begun)
        else:
            for partition, (_, end) in begun.moves.items():
                self._positions[partition] = end
            if begun.moves and world.chance(0.5):
                yield from self._fetch_positions()

    def _hand_over(self, begun: Transaction) -> Script:
        """Let another process end the transaction, at times twice; this process ends."""
        world, identity, version = self.world, self._manager.identity, self._manager.version
        self._manager.leave_open()
        self.hang_up()
        is_commit = world.chance(0.8)
        self.note(f"hands over {begun.name}, to be ended: {is_commit}")
        if world.chance(0.2):
            yield from self.sleep(world.between(0, self._timeout_ms + 3_000))
        for _ in range(world.between(1, 2)):
            self._manager = self._new_manager()
            self._manager.resume_transaction(identity, version)
            if is_commit:
                self._manager.commit()
            else:
                self._manager.abort()
            yield from self._carry_out(begun)
            self.hang_up()
        raise _Died

    def _dawdle(self) -> Script:
        """Let time pass, at times more than the timeout; at times the process dies."""
        world = self.world
        if world.chance(0.3 if self.must_end else 0.04):
            if world.chance(0.5):
                self.hang_up()
            raise _Died
        if world.chance(0.04):
            yield from self.sleep(world.between(0, self._timeout_ms + 3_000))
        yield from self.sleep(world.between(0, self._pause_ms // 4))

    def _abort(self, begun: Transaction) -> Script:
        while any(not call.is_done for call, _, _ in self._calls):
            yield None
        self._calls = []
        self._core.drop_all()
        self._manager.abort()
        yield from self._carry_out(begun)

    # --- what it writes --------------------------------------------------------------------------
    def _write(self, begun: Transaction) -> Script:
        """Write some batches, and wait until all are acknowledged."""
        world = self.world
        partitions = world.random.sample(self._partitions, min(2, len(self._partitions)))
        self._manager.write_to(partitions)
        yield from self._carry_out(begun)
        for partition in partitions:
            for _ in range(world.between(1, 3)):
                numbers = self._make_batch(partition)
                names = [value_of(self.name, number) for number in numbers]
                self.history.transactions.holds(begun, names)
        yield from self._deliver(partitions)

    def _deliver(self, _partitions: list[TopicPartition]) -> Script:
        """Send all pending batches, which are for these partitions."""
        while not self._core.is_idle:
            try:
                yield from self.connect()
                self._send()
                yield self.world.between(1, 20)
                self._take_answers()
            except Lost:
                self._take_back()
            self._check_manager()

    def _new_request(self) -> ProduceRequest:
        return ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=TIMEOUT_MS)

    def _versions(self) -> tuple[int, int]:
        return (NAMED, NAMED) if self._adds_implicitly else (3, min(self._version or 11, 11))

    def _fail(self, batch: Batch, code: ErrorCode) -> None:
        self._manager.on_error(DeliveryFailed(f"{batch.partition} {code.name}", code))

    # --- positions -------------------------------------------------------------------------------
    def _move_positions(self, begun: Transaction) -> Script:
        world = self.world
        offsets = {}
        for partition, first in self._positions.items():
            end = first + world.between(1, 9)
            begun.moves[partition] = first, end
            offsets[partition] = CommittedOffset(end)
        self._manager.send_offsets(ConsumerGroupMetadata(self._group), offsets)
        yield from self._carry_out(begun)

    def _fetch_positions(self) -> Script:
        while not (yield from self._fetch_once()):
            yield from self.sleep(self.world.between(10, 200))

    def _fetch_once(self) -> Generator[Any, Any, bool]:
        asked = OffsetFetchRequestTopic(name=self._inputs[0].topic)
        asked.partition_indexes += [each.partition for each in self._inputs]
        request = OffsetFetchRequest(group_id=self._group, topics=[asked], require_stable=True)
        try:
            yield from self.connect()
            found = yield from self.call_broker(
                FindCoordinatorRequest(key=self._group), FindCoordinatorResponse, high=3
            )
            if check_code(self, found.error_code, *_RETRIED) is not ErrorCode.NONE:
                return False
            yield from self.go_to(found.node_id)
            asked_ms = self.world.now_ms
            reply = yield from self.call_broker(request, OffsetFetchResponse, low=7, high=7)
        except Lost:
            return False
        rows = [row for topic in reply.topics for row in topic.partitions]
        codes = [reply.error_code, *(row.error_code for row in rows)]
        if any(check_code(self, code, *_RETRIED) is not ErrorCode.NONE for code in codes):
            return False
        for row in rows:
            partition = TopicPartition(asked.name, row.partition_index)
            offset = row.committed_offset
            self.note(f"is at {offset} of {partition}")
            if self.is_current():
                self.history.transactions.was_fetched(self._id, partition, offset, asked_ms)
            self._positions[partition] = max(offset, 0)
        return True

    # --- requests of the manager -----------------------------------------------------------------
    def _carry_out(self, begun: Transaction | None = None) -> Script:
        """Carry out the manager's steps; may raise TransactionMustAbort or ProducerUnusable."""
        manager, world = self._manager, self.world
        while (step := manager.next_step()) is not None:
            yield from self.sleep(max(step.not_before_ms - world.now_ms, 0))
            try:
                yield from self._reach(step)
                reply = yield from self._ask_step(step, begun)
            except Lost:
                if isinstance(step, Initialize):
                    self.history.transactions.may_come_late(self._id)
                if isinstance(step, End) and world.chance(0.4):
                    raise _Died from None
                manager.on_lost(step, ConnectionFailed("lost"), world.now_ms)
                continue
            self._take_step(step, reply, begun)
            self._check_manager()
        if manager.identity != self._core.identity:
            self._core.set_identity(manager.identity)

    def _reach(self, _step: PendingStep) -> Script:
        """Connect to the coordinator of the step."""
        yield from self.connect()

    def _ask_step(
        self, step: PendingStep, begun: Transaction | None
    ) -> Generator[Any, Any, Response]:
        low, high = step.versions
        if step.step is Step.COMMIT:
            assert begun is not None
            begun.is_asked_for = True
        self._newest_then = self.history.transactions.newest_epoch(self._id)
        if isinstance(step, End) and self.world.chance(0.03):
            self.send(step.request, step.response, low=low, high=high)
            self.hang_up()
            raise _Died
        return (yield from self.call_broker(step.request, step.response, low=low, high=high))

    def _take_step(self, step: PendingStep, reply: Response, begun: Transaction | None) -> None:
        manager, transactions = self._manager, self.history.transactions
        codes = [code for _, code in step.codes(reply)]
        self.note(f"{step.step.value}: {', '.join(code.name for code in codes)}")
        if isinstance(step, Initialize) and ErrorCode.NOT_COORDINATOR in codes:
            # The coordinator may have written the new epoch when it lost its role. The next one,
            # which may be the same broker after a restart, knows no earlier epoch (nor does
            # Kafka's).
            transactions.may_come_late(self._id)
        before, failures = manager.identity, step.failures
        manager.on_response(step, reply, self.world.now_ms)
        is_done = manager.error is None and step.failures == failures
        if isinstance(step, Initialize) and manager.identity != before:
            transactions.was_given(self._id, manager.identity, self._newest_then)
        if isinstance(step, End) and is_done and begun is not None:
            is_commit = step.step is Step.COMMIT
            transactions.was_ended(begun, is_commit=is_commit)
            self.machine.has_told("decided")

    def _check_manager(self) -> None:
        """Raise the manager's error; Violation if nothing excuses it."""
        manager = self._manager
        if manager.error is None or manager.state is TransactionalProducerState.ABORTING:
            return
        transactions = self.history.transactions
        is_late = self.world.now_ms >= self._late_ms
        is_late |= not transactions.is_newest(self._id, manager.identity)
        now = transactions.circumstances(self._id)
        if not is_late and now is not None and now == self._circumstances:
            raise Violation(EXCUSED, f"{self.name}: {manager.error}")
        raise manager.error
