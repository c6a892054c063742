"""The machine of a transactional id in the coordinator runtime, and the results of requests."""

from dataclasses import dataclass

from klog_broker.coordinator.effects import Effects
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TransactionEffects = Effects[str, TransactionMetadata]


@dataclass(slots=True)
class TransactionResult:
    """The result of a request to a transaction; the handlers convert it to a response."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionMachine:
    """The Machine (effects.py) of a transactional id; only ``apply`` changes durable state."""

    __slots__ = ("metadata", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.metadata: TransactionMetadata | None = None
        """The id's state; None until the first record of the id is applied."""

    def apply(self, metadata: TransactionMetadata) -> None:
        """Apply a record of the id, from replay or from a decision.

        Only a decision's metadata has a ``last_producer_epoch``, because the log does not store it.
        """
        self.metadata = metadata

    def appended(self, _now_ms: int, /) -> TransactionEffects:
        """Return no effects: the coordinator appends records and answers (coordinator.py)."""
        return Effects()

    def append_failed(self, _error: ErrorCode, _now_ms: int, /) -> TransactionEffects:
        return Effects()

    def next_deadline_ms(self) -> int | None:
        """Return None: a sweep finds all transactions that have timed out, as in Kafka."""
        return None

    def on_deadline(self, _now_ms: int, /) -> TransactionEffects:
        return Effects()

    def reloaded(self, now_ms: int) -> None:
        """Do nothing: the coordinator resumes the ending of transactions (markers.py)."""

    def unload(self) -> TransactionEffects:
        """Return no effects: no requests are parked here, because the shard delays responses."""
        return Effects()
