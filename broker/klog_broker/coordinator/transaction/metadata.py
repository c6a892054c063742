"""What is known of one transactional id, and its record in ``__transaction_state``."""

from typing import NamedTuple

from klog_broker.coordinator.transaction.states import LASTING
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from pyspark_klog.state_records.transaction_log import (
    TransactionLogValue,
    TransactionState,
)

VERSION_PLAIN = 0
"""The client's transaction.version: the epoch stays when a transaction ends."""
VERSION_RAISING = 2
"""The epoch rises with every end of a transaction; Produce adds partitions (KIP-890)."""

MAX_EPOCH = 32_767
NO_TIME_MS = -1


class UnusableRecord(KlogError):
    """A record of ``__transaction_state`` has a state that no record can have."""


class ProducerIdAndEpoch(NamedTuple):
    """Who a request says it is."""

    producer_id: int
    producer_epoch: int


class TransactionMetadata(NamedTuple):
    """The state of a transactional id. Times are milliseconds since 1970.

    ``partitions`` are those that take part, in the order in which they were added; a transaction
    that is being ended keeps them until all have their markers.
    """

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """That of the state before: the same one unless the last step has changed it."""
    next_producer_id: int = NO_PRODUCER_ID
    """While it is ended: what the producer goes on with, if its epochs are used up."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """What the producer knew before its epoch was raised last; -1 where nobody may come with it.
    Not in the record: lost with the process, as in Kafka."""
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = NO_TIME_MS
    update_ms: int = NO_TIME_MS
    client_version: int = VERSION_PLAIN
    """The transaction.version that its transaction was begun with."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a producer to go on with."""
        return is_exhausted(self.producer_epoch)

    @property
    def raises_epoch(self) -> bool:
        """Whether ending the transaction raises the epoch."""
        return self.client_version >= VERSION_RAISING

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the producer has had its time for the transaction that it began."""
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms


def is_exhausted(producer_epoch: int) -> bool:
    """The last epoch is kept for fencing: no producer gets it."""
    return producer_epoch >= MAX_EPOCH - 1


def from_record(value: TransactionLogValue) -> TransactionMetadata:
    """Raises UnusableRecord."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise UnusableRecord(f"no transaction has the state {value.transaction_status}") from None
    if state not in LASTING:
        raise UnusableRecord(f"no record has the state {state.kafkas_name}")
    topics = value.transaction_partitions or ()
    return TransactionMetadata(
        state=state,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        partitions=tuple(
            TopicPartition(each.topic, number) for each in topics for number in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
