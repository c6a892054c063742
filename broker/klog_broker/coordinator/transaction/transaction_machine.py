"""The state machine of one transactional id in the transaction coordinator, and the result of a
request."""

from dataclasses import dataclass

from klog_broker.coordinator.effects import Effects
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TransactionEffects = Effects[str, TransactionMetadata]


@dataclass(slots=True)
class TransactionResult:
    """The result of a client's request about a transaction; the handler of the API converts it to a
    response."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionMachine:
    """The state of one transactional id, which implements ``Machine`` (effects.py). Only ``apply``
    changes the state."""

    __slots__ = ("metadata", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.metadata: TransactionMetadata | None = None
        """The transactional id's state; None until its first record is applied."""

    def apply(self, metadata: TransactionMetadata) -> None:
        """Set the transactional id's state: from a record when the shard is loaded, or as the
        coordinator has decided and appended it.

        Only a decided state has a ``last_producer_epoch``, because records do not store this field.
        """
        self.metadata = metadata

    def appended(self, _now_ms: int, /) -> TransactionEffects:
        """Return no effects: after an append, the transaction coordinator itself sends the response
        (coordinator.py)."""
        return Effects()

    def append_failed(self, _error: ErrorCode, _now_ms: int, /) -> TransactionEffects:
        return Effects()

    def next_deadline_ms(self) -> int | None:
        """Return None: a transaction has no deadline of its own. The coordinator searches all
        transactions at intervals for those that have timed out, as in Kafka."""
        return None

    def on_deadline(self, _now_ms: int, /) -> TransactionEffects:
        return Effects()

    def reloaded(self, now_ms: int) -> None:
        """Do nothing: once a shard is loaded, the coordinator itself resumes the transactions that
        were being ended (coordinator.py)."""

    def unload(self) -> TransactionEffects:
        """Return no effects: no request is parked in this object. Responses wait in the shard until
        the high watermark has passed their records."""
        return Effects()
