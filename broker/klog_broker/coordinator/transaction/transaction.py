"""A transactional id on the coordinator runtime: what is decided is written, then answered."""

from dataclasses import dataclass

from klog_broker.coordinator.effects import Effects, Waiter
from klog_broker.coordinator.transaction.decisions import Decision
from klog_broker.coordinator.transaction.metadata import TransactionMetadata
from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TransactionEffects = Effects[str, TransactionMetadata]


@dataclass(slots=True)
class TransactionReply:
    """What whoever asked a transaction is told; the handlers make their messages of it."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class _Deciding:
    """A decision whose record is being appended."""

    becomes: TransactionMetadata
    waiter: Waiter | None
    reply: TransactionReply


class TransactionMachine:
    """A Machine (see effects.py). Only ``apply`` changes what survives a restart."""

    __slots__ = ("_deciding", "metadata", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.metadata: TransactionMetadata | None = None
        """None until the first record of the id."""
        self._deciding: _Deciding | None = None

    def apply(self, metadata: TransactionMetadata) -> None:
        """A record of the id is in the log. One that was decided here comes with the epoch before,
        which no record has."""
        self.metadata = metadata

    def decide(self, decision: Decision, waiter: Waiter | None = None) -> TransactionEffects:
        """Write what the decision says, then answer with a TransactionReply."""
        if self._deciding is not None:
            raise InvariantViolation(f"{self.transactional_id!r}: a decision within another")
        effects: TransactionEffects = Effects()
        reply = TransactionReply(decision.error, decision.producer_id, decision.producer_epoch)
        if decision.becomes is None:
            effects.answer(waiter, reply)
            return effects
        self._deciding = _Deciding(decision.becomes, waiter, reply)
        record = (self.transactional_id, decision.becomes)
        effects.records = lambda _: [record]
        return effects

    def appended(self, _now_ms: int, /) -> TransactionEffects:
        effects: TransactionEffects = Effects()
        deciding, self._deciding = self._deciding, None
        assert deciding is not None
        effects.answer(deciding.waiter, deciding.reply)
        return effects

    def append_failed(self, error: ErrorCode, _now_ms: int, /) -> TransactionEffects:
        effects: TransactionEffects = Effects()
        deciding, self._deciding = self._deciding, None
        assert deciding is not None
        effects.answer(deciding.waiter, TransactionReply(error))
        return effects

    def next_deadline_ms(self) -> int | None:
        """None: one sweep looks for all transactions that are overdue, as in Kafka."""
        return None

    def on_deadline(self, _now_ms: int, /) -> TransactionEffects:
        return Effects()

    def reloaded(self, now_ms: int) -> None:
        """What was being ended is ended once the shard serves (markers.py)."""

    def unload(self) -> TransactionEffects:
        """Nobody waits here: answers wait in the shard."""
        return Effects()
