"""A transactional id on the coordinator runtime, and what whoever asks about it is told."""

from dataclasses import dataclass

from klog_broker.coordinator.effects import Effects
from klog_broker.coordinator.transaction.metadata import TransactionMetadata
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TransactionEffects = Effects[str, TransactionMetadata]


@dataclass(slots=True)
class TransactionReply:
    """What whoever asked a transaction is told; the handlers make their messages of it."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionMachine:
    """A Machine (see effects.py). Only ``apply`` changes what survives a restart."""

    __slots__ = ("metadata", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.metadata: TransactionMetadata | None = None
        """None until the first record of the id."""

    def apply(self, metadata: TransactionMetadata) -> None:
        """A record of the id is in the log. One that was decided here comes with the epoch before,
        which no record has."""
        self.metadata = metadata

    def appended(self, _now_ms: int, /) -> TransactionEffects:
        """Nothing is left to do: the coordinator records and answers (coordinator.py)."""
        return Effects()

    def append_failed(self, _error: ErrorCode, _now_ms: int, /) -> TransactionEffects:
        return Effects()

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
