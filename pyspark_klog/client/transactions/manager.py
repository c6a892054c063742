"""A transactional producer as a state machine: no socket, no clock.

A step is one request of a transaction. The user's calls put steps into a queue; `next_step` returns
the step to send now, and `on_response` or `on_lost` handles its response or the response's loss.
One step is under way at a time. A step is sent again, unchanged, until it has a final response:
coordinators recognize a repeated request. The tables of `outcomes` and `states` define what a
response means.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from enum import Enum, auto
from typing import Any

from pyspark_klog.client.errors import (
    AuthenticationFailed,
    DeliveryFailed,
    ProducerFenced,
    ProducerUnusable,
    TlsFailed,
    TransactionMisuse,
    TransactionMustAbort,
    UnsupportedByBroker,
)
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.producer.batches import ADDS_IMPLICITLY, NO_IDENTITY, Identity
from pyspark_klog.client.transactions.outcomes import Outcome, Step, outcome
from pyspark_klog.client.transactions.states import (
    TransactionalProducerState,
    TransactionEvent,
    after,
)
from pyspark_klog.client.transactions.steps import (
    TRANSACTION,
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    ConsumerGroupMetadata,
    CoordinatorKey,
    End,
    FindCoordinator,
    Initialize,
    PendingStep,
)
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.backoff import concurrent_wait_ms
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.message import Response

_NOTHING_HELPS = (AuthenticationFailed, TlsFailed, UnsupportedByBroker)
_ADVICE = "; abort the transaction"


class _Begun(Enum):
    """Whether the coordinator knows of the running transaction. PERHAPS: a request may have been
    sent that begins the transaction at the coordinator."""

    NO = auto()
    PERHAPS = auto()
    YES = auto()


class TransactionManager:
    """The transactions of one transactional id, seen from its producer.

    ``wait_ms`` returns how long to wait before a request is sent again, for the number of times
    that the request has failed; after CONCURRENT_TRANSACTIONS the wait is shorter.
    """

    def __init__(
        self, transactional_id: str, timeout_ms: int, wait_ms: Callable[[int], int]
    ) -> None:
        self.state = TransactionalProducerState.UNINITIALIZED
        self.identity = NO_IDENTITY
        self.version = 0
        """The transaction.version of the running transaction, or of the last one."""
        self._error: KlogError | None = None
        self._owner = CoordinatorKey(TRANSACTION, transactional_id)
        self._timeout_ms = timeout_ms
        self._wait_ms = wait_ms
        self._steps: deque[PendingStep] = deque()
        self._coordinators: dict[CoordinatorKey, Address] = {}
        self._begun = _Begun.NO
        self._is_unused = True
        """Whether no transaction has used the current producer epoch yet. Such an epoch can serve
        the first transaction with transaction.version 2 (`needs_new_epoch`)."""
        self._is_taken_over = False
        self._partitions: set[TopicPartition] = set()

    @property
    def error(self) -> KlogError | None:
        """Why the transaction must be aborted, or why the producer is unusable.

        A new copy each time: an error that has been raised has a traceback, which keeps the
        variables of all callers in memory.
        """
        return copy(self._error)

    # --- methods for the calls of the producer's user --------------------------------------------
    def initialize(self) -> None:
        """Queue the request for a producer id and epoch, which fences all older producers with the
        same transactional id; do nothing if it is queued already."""
        is_repeated = self.state is TransactionalProducerState.INITIALIZING
        self._move(TransactionEvent.INITIALIZE)
        if not is_repeated:
            self._steps.append(Initialize(self._owner, self._timeout_ms, NO_IDENTITY))

    def needs_new_epoch(self, version: int) -> bool:
        """Whether `request_new_epoch` must be called before a transaction with this version begins.

        ``version`` is a transaction.version. From version 2 on each transaction has a producer
        epoch of its own: the first transaction with version 2 must not reuse the epoch of earlier
        transactions (KIP-890).
        """
        is_first = self.version < ADDS_IMPLICITLY <= version
        return self.state is TransactionalProducerState.READY and is_first and not self._is_unused

    def request_new_epoch(self) -> None:
        """Queue the request that asks the coordinator for the producer's next epoch."""
        self._move(TransactionEvent.INITIALIZE)
        self._steps.append(Initialize(self._owner, self._timeout_ms, self.identity))

    def begin_transaction(self, version: int) -> None:
        """Begin a transaction, which keeps the transaction.version ``version`` until its end."""
        self._move(TransactionEvent.BEGIN)
        self.version = version
        self._begun = _Begun.NO
        self._is_unused = False
        self._partitions.clear()

    def resume_transaction(self, identity: Identity, version: int) -> None:
        """Take over a transaction that another producer began and wrote, in order to end it."""
        self.state = TransactionalProducerState.IN_TRANSACTION
        self._is_taken_over = True
        self.identity, self.version, self._begun = identity, version, _Begun.YES

    def write_to(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepare the transaction for batches to ``partitions``: before transaction.version 2,
        queue the request that adds those of them which the transaction lacks."""
        self._move(TransactionEvent.WRITE)
        added = [p for p in dict.fromkeys(partitions) if p not in self._partitions]
        if not added:
            return
        self._partitions.update(added)
        if self.version >= ADDS_IMPLICITLY:
            self._may_have_begun()
        else:
            self._steps.append(AddPartitions(self._owner, self.identity, added))

    def send_offsets(
        self, member: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Queue the requests that commit a group's offsets as part of the transaction."""
        self._move(TransactionEvent.WRITE)
        if not offsets:
            return
        if self.version < ADDS_IMPLICITLY:
            self._steps.append(AddOffsets(self._owner, self.identity, member.group_id))
        id_and_version = (self._owner.key, self.identity, self.version)
        self._steps.append(CommitOffsets(*id_and_version, member, offsets))

    def commit(self) -> None:
        """Queue the request that commits the transaction, unless it is queued already or nothing
        was written in the transaction. The caller has waited until all batches are written."""
        is_repeated = self.state is TransactionalProducerState.COMMITTING
        self._move(TransactionEvent.COMMIT)
        if is_repeated:
            return
        if self._begun is _Begun.NO and not self._steps:
            self._move(TransactionEvent.DONE)
            return
        self._steps.append(End(self._owner, self.identity, self.version, commit=True))

    def abort(self) -> None:
        """Drop the queued requests and queue the one that aborts the transaction, unless it is
        queued already or the coordinator knows nothing of the transaction. The caller has waited
        until no Produce request is under way."""
        is_repeated = self.state is TransactionalProducerState.ABORTING
        self._move(TransactionEvent.ABORT)
        if is_repeated:
            return
        self._steps.clear()
        self._error = None
        if self._begun is _Begun.NO:
            self._move(TransactionEvent.DONE)
            return
        self._steps.append(End(self._owner, self.identity, self.version, commit=False))

    def leave_open(self) -> None:
        """Leave the transaction open for another process to end. No request may be left to send."""
        assert not self._steps
        self._move(TransactionEvent.HAND_OVER)

    def check(self, event: TransactionEvent) -> None:
        """Check that an event is allowed in the current state.

        :raises TransactionMisuse, TransactionMustAbort, ProducerUnusable: if it is not allowed
        """
        if after(self.state, event) is None:
            if (
                self.state
                in (TransactionalProducerState.MUST_ABORT, TransactionalProducerState.UNUSABLE)
                and self.error is not None
            ):
                raise self.error
            raise TransactionMisuse(
                f"{event.value} is not allowed: the producer is {self.state.value}"
            )

    # --- the next request to send ----------------------------------------------------------------
    @property
    def is_settled(self) -> bool:
        """Whether no request of the transaction is left to send or waits for its response."""
        return not self._steps

    def next_step(self) -> PendingStep | None:
        """The request to send next; None if no request is left. A repeated request is sent at its
        ``not_before_ms`` or later."""
        if not self._steps:
            return None
        step = self._steps[0]
        if step.coordinator is not None and step.coordinator not in self._coordinators:
            step = FindCoordinator(step.coordinator)
            self._steps.appendleft(step)
        if step.step in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.COMMIT_OFFSETS):
            self._may_have_begun()
        return step

    def address_of(self, coordinator: CoordinatorKey) -> Address:
        """The address of ``coordinator``, to which the request from `next_step` must be sent."""
        return self._coordinators[coordinator]

    # --- responses and failures ------------------------------------------------------------------
    def on_response(self, step: PendingStep, response: Response, now_ms: int) -> None:
        """Handle the response to ``step``, the request that `next_step` returned."""
        codes = step.codes(response) or [("", ErrorCode.UNKNOWN_SERVER_ERROR)]
        what, code = max(codes, key=lambda each: outcome(step.step, each[1]).value)
        found = outcome(step.step, code)
        is_unsure = self._begun is _Begun.PERHAPS
        if step.step is Step.ABORT and code is ErrorCode.INVALID_TXN_STATE and is_unsure:
            # No earlier request began the transaction at the coordinator: nothing to abort.
            found = Outcome.DONE
        text = f"{step.step.value}{what}: {code.name}: {code.message}"
        if found is Outcome.DONE:
            self._finish_step(step, response)
        elif found in (Outcome.RETRY, Outcome.FIND):
            self._schedule_retry(step, text, now_ms, code=code, find=found is Outcome.FIND)
        elif found is Outcome.ABORT:
            self._fail(TransactionMustAbort(text, code, _ADVICE))
        elif found is Outcome.FENCED:
            self._become_unusable(ProducerFenced(text, code, self._of_owner))
        else:
            self._become_unusable(ProducerUnusable(text, code, self._of_owner))

    def on_lost(self, step: PendingStep, error: KlogError, now_ms: int) -> None:
        """Handle a request that has failed without a response: send it again, to a
        coordinator only after that coordinator's address was looked up again."""
        self._schedule_retry(step, f"{step.step.value}: {error}", now_ms, find=True)

    def on_error(self, error: KlogError) -> None:
        """Handle an error, which a retry cannot cure, of a request or of a batch of records."""
        code = error.code if isinstance(error, DeliveryFailed) else None
        found = Outcome.ABORT if code is None else outcome(Step.PRODUCE, code)
        if found is Outcome.FENCED:
            self._become_unusable(ProducerFenced(str(error), code))
        elif found is Outcome.FATAL or isinstance(error, _NOTHING_HELPS):
            self._become_unusable(ProducerUnusable(str(error), code))
        else:
            self._fail(TransactionMustAbort(str(error), code, _ADVICE))

    # --- changes of the state, of the queued requests and of the producer epoch ------------------
    @property
    def _of_owner(self) -> str:
        return f" (transactional id {self._owner.key})"

    def _move(self, event: TransactionEvent) -> None:
        self.check(event)
        following = after(self.state, event)
        assert following is not None
        self.state = following

    def _may_have_begun(self) -> None:
        if self._begun is _Begun.NO:
            self._begun = _Begun.PERHAPS

    def _finish_step(self, step: PendingStep, response: Any) -> None:
        assert self._steps[0] is step
        self._steps.popleft()
        if isinstance(step, FindCoordinator):
            self._coordinators[step.wanted] = step.address(response)
            return
        if isinstance(step, Initialize | End):
            self._take_identity(step, step.identity(response))
        else:
            self._begun = _Begun.YES
        ends = (
            TransactionalProducerState.INITIALIZING,
            TransactionalProducerState.COMMITTING,
            TransactionalProducerState.ABORTING,
        )
        if not self._steps and self.state in ends:
            self._begun = _Begun.NO
            self._move(TransactionEvent.DONE)

    def _take_identity(self, step: PendingStep, identity: Identity) -> None:
        if identity != NO_IDENTITY:
            self.identity = identity
            self._is_unused = True
        elif step.step is Step.ABORT and not self._is_taken_over:
            # Ask for a new epoch, under which the sequence numbers begin at 0: the producer does
            # not know which of the batches that it dropped for the abort were appended, so it
            # cannot continue the numbers of the old epoch.
            self._steps.append(Initialize(self._owner, self._timeout_ms, self.identity))

    def _schedule_retry(
        self,
        step: PendingStep,
        text: str,
        now_ms: int,
        *,
        code: ErrorCode | None = None,
        find: bool,
    ) -> None:
        step.failures += 1
        step.last_error = text
        short = code is ErrorCode.CONCURRENT_TRANSACTIONS
        wait_ms = concurrent_wait_ms(step.failures) if short else self._wait_ms(step.failures)
        step.not_before_ms = now_ms + wait_ms
        if find and step.coordinator is not None:
            self._coordinators.pop(step.coordinator, None)

    def _fail(self, error: TransactionMustAbort) -> None:
        if after(self.state, TransactionEvent.FAIL) is None:
            # There is no transaction to abort, or its abort has failed: an abort cannot help.
            self._become_unusable(ProducerUnusable(error.reason, error.code))
            return
        self._move(TransactionEvent.FAIL)
        if self._error is None:
            self._error = error
        self._steps.clear()

    def _become_unusable(self, error: ProducerUnusable) -> None:
        if self.state is not TransactionalProducerState.UNUSABLE:
            self._move(TransactionEvent.BREAK)
            self._error = error
        self._steps.clear()
