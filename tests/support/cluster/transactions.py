"""A transaction coordinator on a log, partitions and a clock of the test's own."""

from collections.abc import Callable, Sequence

from klog_broker.coordinator.transaction.coordinator import (
    TRANSACTION_STATE,
    TransactionCoordinator,
    TransactionSettings,
)
from klog_broker.coordinator.transaction.markers import MarkerResults, TransactionMarker
from klog_broker.coordinator.transaction.shard_state import TRANSACTION_RECORDS
from klog_broker.coordinator.transaction.transaction_machine import TransactionResult
from klog_broker.coordinator.transaction.transaction_metadata import (
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from tests.support.cluster.coordinators import CoordinatorTime
from tests.support.cluster.state_log import MemoryStateLog
from tests.support.records.record_sets import iterate

NONE = ErrorCode.NONE
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
TIMEOUT_MS = 60_000
SWEEP_MS = 10_000
EXPIRATION_MS = 7 * 24 * 3600 * 1000
EXPIRY_SWEEP_MS = 3600 * 1000


class Partitions:
    """Stands for the partitions' leaders: keeps the markers and responds with set error codes."""

    def __init__(self) -> None:
        self.markers: list[TransactionMarker] = []
        self.answers: dict[TopicPartition, list[ErrorCode]] = {}
        """By partition: error codes of the next responses; NONE after the last."""
        self.is_silent = False
        self.unanswered: list[Callable[[], None]] = []

    def send(
        self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        self.markers.extend(markers)
        results: dict[tuple[int, TopicPartition], ErrorCode] = {}
        for marker in markers:
            for each in marker.partitions:
                codes = self.answers.get(each)
                results[marker.producer_id, each] = codes.pop(0) if codes else NONE
        if self.is_silent:
            self.unanswered.append(lambda: done(results))
        else:
            done(results)

    def sent(self) -> list[tuple[bool, int, tuple[TopicPartition, ...]]]:
        """Return for each marker whether it commits, its epoch and its partitions."""
        return [(m.is_commit, m.producer_epoch, tuple(m.partitions)) for m in self.markers]


class Sim:
    """The id "t" on one shard."""

    def __init__(
        self,
        log: MemoryStateLog | None = None,
        partitions: Partitions | None = None,
        *,
        now_ms: int | None = None,
    ) -> None:
        """Replays the records of ``log``, if it has any."""
        self.time = CoordinatorTime()
        if now_ms is not None:
            self.time.clock.advance(now_ms - self.time.clock.now_ms())
        self.log = log or MemoryStateLog(TRANSACTION_STATE)
        self.partitions = partitions or Partitions()
        self.ids: list[int | None] = list(range(500, 600))
        self.give_id: Callable[[Callable[[int | None], None]], None]
        self.give_id = lambda got: got(self.ids.pop(0))
        self.replies: list[TransactionResult] = []
        self.coordinator = TransactionCoordinator(
            TransactionSettings(
                max_timeout_ms=900_000,
                id_expiration_ms=EXPIRATION_MS,
                abort_interval_ms=SWEEP_MS,
                expire_interval_ms=EXPIRY_SWEEP_MS,
            ),
            self.time.services,
            self.partitions,
            num_partitions=lambda: 1,
            next_producer_id=lambda got: self.give_id(got),
        )
        self.coordinator.on_lead(self.log)
        self.time.settle()

    # --- asking ----------------------------------------------------------------------------------
    def init(
        self,
        producer: ProducerIdAndEpoch | None = None,
        *,
        key: str = "t",
        timeout_ms: int = TIMEOUT_MS,
    ) -> TransactionResult | None:
        self.coordinator.initialize(key, timeout_ms, producer, self.replies.append)
        return self.reply()

    def begun(self, *partitions: TopicPartition, version: int = 2) -> ProducerIdAndEpoch:
        """A producer with an open transaction."""
        reply = self.init()
        assert reply is not None
        producer = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
        assert self.add(producer, *(partitions or (A,)), version=version) == NONE
        return producer

    def add(
        self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, version: int = 2
    ) -> ErrorCode | None:
        self.coordinator.add_partitions("t", producer, partitions, version, self.replies.append)
        reply = self.reply()
        return None if reply is None else reply.error_code

    def end_transaction(
        self, producer: ProducerIdAndEpoch, *, is_commit: bool = True, version: int = 2
    ) -> TransactionResult | None:
        self.coordinator.end_transaction(
            "t", producer, version, self.replies.append, is_commit=is_commit
        )
        return self.reply()

    def reply(self) -> TransactionResult | None:
        """The last response; None if no request was answered since the last call."""
        return self.replies.pop() if self.replies else None

    # --- looking ---------------------------------------------------------------------------------
    def known(self, key: str = "t") -> TransactionMetadata | None:
        return self.coordinator.describe(key)[1]

    def written(self) -> list[TransactionMetadata | None]:
        """Return the records of the log, decoded."""
        found = []
        for batch in self.log.batches:
            for record in iterate(batch):
                decoded = TRANSACTION_RECORDS.decode(record.key or b"", record.value)
                assert decoded is not None
                found.append(decoded[1])
        return found

    def states(self) -> list[str]:
        """The states of the records, in their order."""
        return ["tombstone" if each is None else each.state.kafkas_name for each in self.written()]

    # --- faults ----------------------------------------------------------------------------------
    def lost_after(self, records: int) -> "Sim":
        """Another process, on a log that has only the first ones; the same partitions."""
        log = MemoryStateLog(TRANSACTION_STATE)
        log.leader_epoch = self.log.leader_epoch + 1
        for batch in self.log.batches[:records]:
            log.put(batch)
        return Sim(log, self.partitions, now_ms=self.time.clock.now_ms())
