"""The transaction coordinator of a broker: finds a request's shard, and decides on its id.

Answers are callables: they get a TransactionReply when what it rests on is visible. Loop thread
only.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from klog_broker.coordinator.errors import told
from klog_broker.coordinator.runtime import CoordinatorRuntime, RuntimeServices, counted
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.coordinator.state_log import StateLog
from klog_broker.coordinator.transaction.decisions import (
    Decision,
    add_partitions,
    initialize,
    needs_producer_id,
    verify,
)
from klog_broker.coordinator.transaction.ending import end, end_needs_producer_id
from klog_broker.coordinator.transaction.markers import MarkerSender, TransactionEnds
from klog_broker.coordinator.transaction.metadata import (
    VERSION_RAISING,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from klog_broker.coordinator.transaction.shard_state import (
    TRANSACTION_RECORDS,
    NoTimeline,
    TransactionRuntime,
    TransactionShard,
    TransactionShardState,
)
from klog_broker.coordinator.transaction.states import ENDED
from klog_broker.coordinator.transaction.sweeps import Sweeps
from klog_broker.coordinator.transaction.transaction import TransactionMachine, TransactionReply
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_ID, TopicPartition
from pyspark_klog.records.compression import Codec
from pyspark_klog.state_records.transaction_log import TransactionState

TRANSACTION_STATE = "__transaction_state"

_NONE = ErrorCode.NONE
# In elements (runtime/event_loop/slices.py): going on with a transaction that was being ended.
_END = 10

APPEND_TIMEOUT_MS = 30_000
"""How long an answer waits for its record to be visible: Kafka's request.timeout.ms."""

TransactionAnswer = Callable[[TransactionReply], object]
GotProducerId = Callable[[int | None], None]
PartitionErrors = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's transaction.* settings."""

    max_timeout_ms: int
    id_expiration_ms: int
    abort_interval_ms: int
    expire_interval_ms: int


class _Question(NamedTuple):
    """What a request asks about an id. ``decide`` gets a new producer id if ``needs_id``."""

    needs_id: Callable[[TransactionMetadata | None], bool]
    decide: Callable[[TransactionMetadata | None, int], Decision]
    creates: bool = False


class TransactionCoordinator:
    """All transactional ids whose partition of ``__transaction_state`` this broker leads.

    ``num_partitions`` is None while the topic does not exist. ``next_producer_id`` calls back with
    an id that nobody has had, or with None if there is none now.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        services: RuntimeServices,
        sender: MarkerSender,
        *,
        num_partitions: Callable[[], int | None],
        next_producer_id: Callable[[GotProducerId], None],
    ) -> None:
        self._settings = settings
        self._clock = services.clock
        self._slices = services.slices
        self._next_producer_id = next_producer_id
        self._runtime: TransactionRuntime = CoordinatorRuntime(
            services,
            TRANSACTION_RECORDS,
            lambda: (TransactionShardState(), NoTimeline()),
            num_partitions=num_partitions,
            append_timeout_ms=APPEND_TIMEOUT_MS,
            codec=Codec.NONE,
        )
        self._ends = TransactionEnds(self._runtime, sender, services.loop, services.clock)
        Sweeps(
            self._runtime,
            services,
            abort=self._abort,
            abort_interval_ms=settings.abort_interval_ms,
            expire_interval_ms=settings.expire_interval_ms,
            id_expiration_ms=settings.id_expiration_ms,
        ).begin()

    # --- shards ----------------------------------------------------------------------------------
    def on_lead(self, log: StateLog) -> None:
        """This broker leads a partition of ``__transaction_state``: load it, go on with what was
        being ended, then serve."""
        self._runtime.lead(log)
        shard = self._runtime.shard(log.topic_partition.partition)
        assert shard is not None
        if shard.status is ShardStatus.LOADING:
            shard.when_serving.append(partial(self._go_on, shard))
        else:
            self._go_on(shard)

    def on_resign(self, topic_partition: TopicPartition) -> None:
        """It does no longer: whoever waits is told to look for the coordinator anew."""
        self._runtime.resign(topic_partition.partition)

    def find(self, transactional_id: str) -> ErrorCode:
        """Whether this broker serves the id now."""
        return self._runtime.find(transactional_id)[0]

    def partition_for(self, transactional_id: str) -> int | None:
        """The partition of ``__transaction_state`` that has the id; None while there is none."""
        return self._runtime.partition_for(transactional_id)

    def _go_on(self, shard: TransactionShard) -> None:
        def steps() -> Steps:
            for transactional_id in list(shard.state.ending):
                machine = shard.state.machine(transactional_id)
                if machine is not None:
                    self._ends.begin(shard, machine)
                yield _END

        self._slices.run(steps(), lambda: shard.error() is _NONE)

    # --- producers -------------------------------------------------------------------------------
    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        answer: TransactionAnswer,
    ) -> None:
        """A producer begins to use the id, or (``expected``) wants its own epoch raised."""
        # Kafka checks the id before the timeout, and so `_ask` refuses an empty id here.
        if transactional_id and not 0 < timeout_ms <= self._settings.max_timeout_ms:
            answer(TransactionReply(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        question = _Question(
            needs_id=lambda known: needs_producer_id(known, expected),
            decide=lambda known, new_id: initialize(
                known, expected, timeout_ms, self._clock.now_ms(), new_id
            ),
            creates=True,
        )
        self._ask(transactional_id, question, answer)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        client_version: int,
        answer: TransactionAnswer,
    ) -> None:
        """Partitions take part in the producer's transaction, which begins with the first one."""
        question = _Question(
            needs_id=_never,
            decide=lambda known, _: add_partitions(
                known, producer, partitions, client_version, self._clock.now_ms()
            ),
        )
        self._ask(transactional_id, question, answer)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        client_version: int,
        answer: TransactionAnswer,
        *,
        is_commit: bool,
    ) -> None:
        """Commit or abort: answered when that is decided for good; markers follow."""
        question = _Question(
            needs_id=lambda known: end_needs_producer_id(known, client_version),
            decide=lambda known, new_id: end(
                known,
                producer,
                client_version,
                self._clock.now_ms(),
                is_commit=is_commit,
                next_producer_id=new_id,
            ),
        )
        self._ask(transactional_id, question, answer)

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
        """Whether partitions take part in the producer's transaction, before records that say so
        are appended; with ``adds`` (a client of transaction.version 2) they do from now on.

        ``done`` gets an error for each partition, as AddPartitionsToTxn 4 and later answers them.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)

        def look() -> PartitionErrors:
            error, shard = self._find(transactional_id)
            machine = None if shard is None else shard.state.machine(transactional_id)
            known = None if machine is None else machine.metadata
            found = error if shard is None else verify(known, producer, partitions)
            return found if isinstance(found, dict) else dict.fromkeys(partitions, found)

        is_now = True

        def answer(reply: TransactionReply) -> None:
            error = reply.error_code
            if error is ErrorCode.NONE and not is_now:
                # It may have been decided how the transaction ends, while this was waited for.
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
        _answer_when_visible(shard, answer, TransactionReply())
        is_now = False

    # --- what tools see --------------------------------------------------------------------------
    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """What is known of the id; TRANSACTIONAL_ID_NOT_FOUND if that is nothing."""
        error, shard = self._find(transactional_id)
        if shard is None:
            return error, None
        machine = shard.state.machine(transactional_id)
        if machine is None or machine.metadata is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, machine.metadata

    def machines(self) -> tuple[ErrorCode, list[TransactionMachine]]:
        """Those of all ids; COORDINATOR_LOAD_IN_PROGRESS if some shards still load."""
        errors = [(each, each.error()) for each in self._runtime.shards()]
        if any(error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for _, error in errors):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        serving = [each for each, error in errors if error is ErrorCode.NONE]
        return ErrorCode.NONE, [m for each in serving for m in each.state.machines.values()]

    def statuses(self) -> Counter[ShardStatus]:
        """How many shards have which status."""
        return self._runtime.statuses()

    def count_states(self) -> Generator[int, None, Counter[TransactionState]]:
        """How many transactional ids have which state: in steps (runtime/event_loop/slices.py)."""
        counts: Counter[TransactionState] = Counter()
        for shard in self._runtime.shards():
            known = [each.metadata for each in shard.state.machines.values()]
            counts += yield from counted([each.state for each in known if each is not None])
        return counts

    # --- inside ----------------------------------------------------------------------------------
    def _find(self, transactional_id: str) -> tuple[ErrorCode, TransactionShard | None]:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        return self._runtime.find(transactional_id)

    def _abort(self, transactional_id: str, decide: Callable[..., Decision]) -> None:
        """A transaction is overdue."""
        question = _Question(lambda known: needs_producer_id(known, None), decide)
        self._ask(transactional_id, question, lambda _: None)

    def _ask(
        self,
        transactional_id: str,
        question: _Question,
        answer: TransactionAnswer,
        new_id: int = NO_PRODUCER_ID,
    ) -> None:
        error, shard = self._find(transactional_id)
        if shard is None:
            answer(TransactionReply(error))
            return
        machine = shard.state.machine(transactional_id)
        known = None if machine is None else machine.metadata
        if new_id == NO_PRODUCER_ID and question.needs_id(known):
            self._ask_with_new_id(transactional_id, question, answer)
            return
        if machine is None and question.creates:
            machine = shard.state.get_or_create(transactional_id)
        decision = question.decide(known, new_id)
        if machine is None:
            answer(TransactionReply(decision.error))
            return
        fences = question.creates and decision.becomes is not None and _is_concurrent(decision)
        reply = TransactionReply(decision.error, decision.producer_id, decision.producer_epoch)
        if decision.becomes is not None:
            code = self._runtime.record(
                shard, transactional_id, ((transactional_id, decision.becomes),)
            )
            if code is not _NONE:
                reply = TransactionReply(code)
        if machine.metadata is None:
            shard.state.settled(transactional_id)
        if not fences:
            _answer_when_visible(shard, answer, reply)
        self._ends.begin(shard, machine)
        if fences:
            self._fenced(shard, machine, question, answer)

    def _fenced(
        self,
        shard: TransactionShard,
        machine: TransactionMachine,
        question: _Question,
        answer: TransactionAnswer,
    ) -> None:
        """InitProducerId has aborted an open transaction. Where that is over by now it goes on at
        once; Kafka lets the client ask again, and some wait half a second before they do."""
        known = machine.metadata
        if known is not None and known.state in ENDED:
            self._ask(machine.transactional_id, question, answer)
            return
        concurrent = TransactionReply(ErrorCode.CONCURRENT_TRANSACTIONS)
        _answer_when_visible(shard, answer, concurrent)

    def _ask_with_new_id(
        self, transactional_id: str, question: _Question, answer: TransactionAnswer
    ) -> None:
        """Others may come first: the question is asked anew then, of what is known by then."""

        def got(new_id: int | None) -> None:
            if new_id is None:
                # As Kafka tells while it waits for a block of ids: the client asks again.
                answer(TransactionReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                self._ask(transactional_id, question, answer, new_id)

        self._next_producer_id(got)


def _answer_when_visible(
    shard: TransactionShard, answer: TransactionAnswer, reply: TransactionReply
) -> None:
    """All that the reply rests on was written: answer once readers may see that."""
    if shard.is_visible:
        answer(reply)
        return

    def send(code: ErrorCode) -> None:
        answer(reply if code is _NONE else TransactionReply(told(code)))

    shard.when_visible(send)


def _is_concurrent(decision: Decision) -> bool:
    return decision.error is ErrorCode.CONCURRENT_TRANSACTIONS


def _never(_: TransactionMetadata | None) -> bool:
    return False


def partitions_of(topics: Iterable[tuple[str, Iterable[int]]]) -> list[TopicPartition]:
    """As the requests name them, each once."""
    named = (TopicPartition(topic, number) for topic, numbers in topics for number in numbers)
    return list(dict.fromkeys(named))
