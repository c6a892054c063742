"""The transaction coordinator of a broker: decides on the requests to a transactional id.

``answer`` is a callable that gets the TransactionResult, once the high watermark has passed all
records that the result depends on. Loop thread only.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from klog_broker.coordinator.errors import client_error
from klog_broker.coordinator.runtime import CoordinatorRuntime, RuntimeServices, count_in_steps
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.coordinator.state_log import StateLog
from klog_broker.coordinator.transaction.decisions import (
    TransactionDecision,
    aborted,
    add_partitions,
    initialize,
    needs_producer_id,
    verify,
)
from klog_broker.coordinator.transaction.end_decisions import decide_end, end_needs_producer_id
from klog_broker.coordinator.transaction.markers import MarkerSender, TransactionCompletion
from klog_broker.coordinator.transaction.shard_state import (
    TRANSACTION_RECORDS,
    TransactionRuntime,
    TransactionShard,
    TransactionShardState,
    UntrackedChanges,
)
from klog_broker.coordinator.transaction.states import ENDED
from klog_broker.coordinator.transaction.sweeps import Sweeps
from klog_broker.coordinator.transaction.transaction_machine import (
    TransactionMachine,
    TransactionResult,
)
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_RAISING,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_ID, TopicPartition
from pyspark_klog.records.compression import Codec
from pyspark_klog.state_records.transaction_log import TransactionState

TRANSACTION_STATE = "__transaction_state"

_NONE = ErrorCode.NONE
# Cost of starting the completion of one transaction after a shard was loaded, in elements (the unit
# of cost in runtime/event_loop/slices.py, about 5 us).
_END = 10

APPEND_TIMEOUT_MS = 30_000
"""How long a response waits until the high watermark has passed its record: Kafka's
request.timeout.ms."""

TransactionAnswer = Callable[[TransactionResult], object]
OnProducerId = Callable[[int | None], None]
PartitionErrors = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker settings (transaction.* and transactional.id.expiration.ms) that the transaction
    coordinator uses."""

    max_timeout_ms: int
    id_expiration_ms: int
    abort_interval_ms: int
    expire_interval_ms: int


class _DecisionRequest(NamedTuple):
    """How to decide on a request to a transactional id.

    ``decide`` gets a new producer id if ``needs_id`` returns True. ``creates`` says whether the
    request may create the transactional id.
    """

    needs_id: Callable[[TransactionMetadata | None], bool]
    decide: Callable[[TransactionMetadata | None, int], TransactionDecision]
    creates: bool = False


class TransactionCoordinator:
    """All transactional ids whose partition of ``__transaction_state`` this broker leads.

    ``num_partitions`` returns None while the topic does not exist. ``next_producer_id`` calls back
    with an unused producer id, or with None if none is available now.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        services: RuntimeServices,
        sender: MarkerSender,
        *,
        num_partitions: Callable[[], int | None],
        next_producer_id: Callable[[OnProducerId], None],
    ) -> None:
        self._settings = settings
        self._clock = services.clock
        self._slices = services.slices
        self._next_producer_id = next_producer_id
        self._runtime: TransactionRuntime = CoordinatorRuntime(
            services,
            TRANSACTION_RECORDS,
            lambda: (TransactionShardState(), UntrackedChanges()),
            num_partitions=num_partitions,
            append_timeout_ms=APPEND_TIMEOUT_MS,
            codec=Codec.NONE,
        )
        self._ends = TransactionCompletion(self._runtime, sender, services.loop, services.clock)
        Sweeps(
            self._runtime,
            services,
            abort=self._abort,
            abort_interval_ms=settings.abort_interval_ms,
            expire_interval_ms=settings.expire_interval_ms,
            id_expiration_ms=settings.id_expiration_ms,
        ).start_sweeps()

    # --- loading and unloading shards (partitions of __transaction_state) ------------------------
    def on_lead(self, log: StateLog) -> None:
        """Load a partition of ``__transaction_state`` that this broker now leads, then serve it.

        Once the shard serves, the coordinator goes on with the transactions that are decided but
        not complete: it sends their markers.
        """
        self._runtime.load_shard(log)
        shard = self._runtime.shard(log.topic_partition.partition)
        assert shard is not None
        if shard.status is ShardStatus.LOADING:
            shard.when_serving.append(partial(self._resume_endings, shard))
        else:
            self._resume_endings(shard)

    def on_resign(self, topic_partition: TopicPartition) -> None:
        """Stop serving a partition: pending requests get errors, and clients look the coordinator
        up again."""
        self._runtime.unload_shard(topic_partition.partition)

    def serving_error(self, transactional_id: str) -> ErrorCode:
        """Return NONE if this broker serves the transactional id now, else the error for the
        client."""
        return self._runtime.find(transactional_id)[0]

    def partition_for(self, transactional_id: str) -> int | None:
        """The partition that stores the transactional id's records; None while the topic does not
        exist."""
        return self._runtime.partition_for(transactional_id)

    def _resume_endings(self, shard: TransactionShard) -> None:
        def steps() -> Steps:
            for transactional_id in list(shard.state.ending):
                machine = shard.state.machine(transactional_id)
                if machine is not None:
                    self._ends.begin_completion(shard, machine)
                yield _END

        self._slices.run(steps(), lambda: shard.serving_error() is _NONE)

    # --- requests of producers -------------------------------------------------------------------
    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        answer: TransactionAnswer,
    ) -> None:
        """Handle InitProducerId. ``expected`` is set if the producer asks for a higher epoch
        (KIP-360): its producer id and epoch."""
        # Kafka checks the id before the time-out: an empty id gets its error from `_decide`.
        if transactional_id and not 0 < timeout_ms <= self._settings.max_timeout_ms:
            answer(TransactionResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        request = _DecisionRequest(
            needs_id=lambda known: needs_producer_id(known, expected),
            decide=lambda known, new_id: initialize(
                known, expected, timeout_ms, self._clock.now_ms(), new_id
            ),
            creates=True,
        )
        self._decide(transactional_id, request, answer)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        client_version: int,
        answer: TransactionAnswer,
    ) -> None:
        """Add partitions to the producer's transaction; the first one begins the transaction."""
        request = _DecisionRequest(
            needs_id=_never,
            decide=lambda known, _: add_partitions(
                known, producer, partitions, client_version, self._clock.now_ms()
            ),
        )
        self._decide(transactional_id, request, answer)

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client_version: int,
        answer: TransactionAnswer,
        *,
        is_commit: bool,
    ) -> None:
        """Commit or abort the producer's transaction (EndTxn).

        ``answer`` is called once the high watermark has passed the record of the decision. The
        markers are sent after that.
        """
        request = _DecisionRequest(
            needs_id=lambda known: end_needs_producer_id(known, client_version),
            decide=lambda known, new_id: decide_end(
                known,
                producer,
                client_version,
                self._clock.now_ms(),
                is_commit=is_commit,
                next_producer_id=new_id,
            ),
        )
        self._decide(transactional_id, request, answer)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Callable[[PartitionErrors], None],
    ) -> None:
        """Check that the producer's transaction includes partitions, before appends to them.

        With ``adds`` (a client of transaction.version 2), missing partitions are added first.
        ``done`` gets an error (or NONE) for each partition, like the response of AddPartitionsToTxn
        4 and later.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)

        def look() -> PartitionErrors:
            error, shard = self._find(transactional_id)
            machine = None if shard is None else shard.state.machine(transactional_id)
            known = None if machine is None else machine.metadata
            found = error if shard is None else verify(known, producer, partitions)
            return found if isinstance(found, dict) else dict.fromkeys(partitions, found)

        is_now = True

        def answer(response: TransactionResult) -> None:
            error = response.error_code
            if error is ErrorCode.NONE and not is_now:
                # While this check waited for the high watermark, the end of the transaction may
                # have been decided: check again.
                done(look())
            else:
                done(dict.fromkeys(partitions, error))

        if adds:
            version = VERSION_RAISING
            self.add_partitions(transactional_id, producer, partitions, version, answer)
            is_now = False
            return
        found = look()
        shard = self._find(transactional_id)[1]
        if shard is None or any(code is not ErrorCode.NONE for code in found.values()):
            done(found)
            return
        _answer_when_visible(shard, answer, TransactionResult())
        is_now = False

    # --- transactions for administrators and metrics ---------------------------------------------
    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """Return NONE and the transactional id's state, or an error and None. The error is
        TRANSACTIONAL_ID_NOT_FOUND if this broker serves the id's partition, but has no such id."""
        error, shard = self._find(transactional_id)
        if shard is None:
            return error, None
        machine = shard.state.machine(transactional_id)
        if machine is None or machine.metadata is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, machine.metadata

    def machines(self) -> tuple[ErrorCode, list[TransactionMachine]]:
        """Return NONE and the state machines of all transactional ids that this broker coordinates;
        or COORDINATOR_LOAD_IN_PROGRESS while a partition of ``__transaction_state`` is being
        loaded."""
        errors = [(each, each.serving_error()) for each in self._runtime.shards()]
        if any(error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for _, error in errors):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        serving = [each for each, error in errors if error is ErrorCode.NONE]
        return ErrorCode.NONE, [m for each in serving for m in each.state.machines.values()]

    def statuses(self) -> Counter[ShardStatus]:
        """The number of shards (partitions of ``__transaction_state`` that this broker leads) in
        each status."""
        return self._runtime.statuses()

    def partitions_in(self, status: ShardStatus) -> list[int]:
        """The numbers of these partitions whose shards have this status, in ascending order."""
        return self._runtime.partitions_in(status)

    def count_states(self) -> Generator[int, None, Counter[TransactionState]]:
        """Return the number of transactional ids in each state. A generator that yields after each
        part of the work, so that the event loop can serve requests in between (Slices)."""
        counts: Counter[TransactionState] = Counter()
        for shard in self._runtime.shards():
            known = [each.metadata for each in shard.state.machines.values()]
            counts += yield from count_in_steps([each.state for each in known if each is not None])
        return counts

    # --- decisions on transactional ids ----------------------------------------------------------
    def _find(self, transactional_id: str) -> tuple[ErrorCode, TransactionShard | None]:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        return self._runtime.find(transactional_id)

    def _abort(self, transactional_id: str, decide: Callable[..., TransactionDecision]) -> None:
        """Carry out the decision to abort a transaction that has timed out."""
        request = _DecisionRequest(lambda known: needs_producer_id(known, None), decide)
        self._decide(transactional_id, request, lambda _: None)

    def abort_ongoing(self, transactional_id: str) -> ErrorCode:
        """Begin to abort the ongoing transaction of an id as after its time-out: its producer is
        fenced. Returns an error if this broker does not serve the id, or INVALID_TXN_STATE if the
        id has no ongoing transaction. For faults that a test adds (klog_broker.faults)."""
        error, known = self.describe(transactional_id)
        if known is None:
            return error
        if known.state is not TransactionState.ONGOING:
            return ErrorCode.INVALID_TXN_STATE

        def decide(known: TransactionMetadata | None, new_id: int) -> TransactionDecision:
            if known is None or known.state is not TransactionState.ONGOING:
                return TransactionDecision(_NONE)
            return TransactionDecision(_NONE, aborted(known, self._clock.now_ms(), new_id))

        self._abort(transactional_id, decide)
        return _NONE

    def _decide(
        self,
        transactional_id: str,
        request: _DecisionRequest,
        answer: TransactionAnswer,
        new_id: int = NO_PRODUCER_ID,
    ) -> None:
        error, shard = self._find(transactional_id)
        if shard is None:
            answer(TransactionResult(error))
            return
        machine = shard.state.machine(transactional_id)
        known = None if machine is None else machine.metadata
        if new_id == NO_PRODUCER_ID and request.needs_id(known):
            self._decide_with_new_id(transactional_id, request, answer)
            return
        if machine is None and request.creates:
            machine = shard.state.get_or_create(transactional_id)
        decision = request.decide(known, new_id)
        if machine is None:
            answer(TransactionResult(decision.error))
            return
        fences = request.creates and decision.becomes is not None and _is_concurrent(decision)
        response = TransactionResult(decision.error, decision.producer_id, decision.producer_epoch)
        if decision.becomes is not None:
            code = self._runtime.append_decision(
                shard, transactional_id, ((transactional_id, decision.becomes),)
            )
            if code is not _NONE:
                response = TransactionResult(code)
        if machine.metadata is None:
            shard.state.drop_if_unused(transactional_id)
        if not fences:
            _answer_when_visible(shard, answer, response)
        self._ends.begin_completion(shard, machine)
        if fences:
            self._answer_after_abort(shard, machine, request, answer)

    def _answer_after_abort(
        self,
        shard: TransactionShard,
        machine: TransactionMachine,
        request: _DecisionRequest,
        answer: TransactionAnswer,
    ) -> None:
        """Answer an InitProducerId that has aborted an open transaction.

        If the abort is already complete, decide on the InitProducerId again, so that the client
        gets its producer id at once; if not, let the client retry. Kafka always lets the client
        retry, and some clients wait half a second before they do.
        """
        known = machine.metadata
        if known is not None and known.state in ENDED:
            self._decide(machine.transactional_id, request, answer)
            return
        concurrent = TransactionResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        _answer_when_visible(shard, answer, concurrent)

    def _decide_with_new_id(
        self, transactional_id: str, request: _DecisionRequest, answer: TransactionAnswer
    ) -> None:
        """Get a new producer id, perhaps from the controller, then decide on the request by the
        transactional id's state at that time, which may have changed."""

        def got(new_id: int | None) -> None:
            if new_id is None:
                # Kafka answers the same error, which makes the client retry.
                answer(TransactionResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                self._decide(transactional_id, request, answer, new_id)

        self._next_producer_id(got)


def _answer_when_visible(
    shard: TransactionShard, answer: TransactionAnswer, response: TransactionResult
) -> None:
    """Send the response once the high watermark has passed all records appended so far."""
    if shard.is_visible:
        answer(response)
        return

    def send(code: ErrorCode) -> None:
        answer(response if code is _NONE else TransactionResult(client_error(code)))

    shard.when_visible(send)


def _is_concurrent(decision: TransactionDecision) -> bool:
    return decision.error is ErrorCode.CONCURRENT_TRANSACTIONS


def _never(_: TransactionMetadata | None) -> bool:
    return False


def partitions_of(topics: Iterable[tuple[str, Iterable[int]]]) -> list[TopicPartition]:
    """The partitions of a request, without duplicates, in the order of the request."""
    named = (TopicPartition(topic, number) for topic, numbers in topics for number in numbers)
    return list(dict.fromkeys(named))
