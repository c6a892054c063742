"""The state of one transactional id, and its record in ``__transaction_state``."""

from typing import NamedTuple

from klog_broker.coordinator.transaction.states import LASTING
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from pyspark_klog.state_records.transaction_log import (
    TransactionLogValue,
    TransactionState,
)

VERSION_PLAIN = 0
"""The transaction.version of a client for which the end of a transaction does not raise the
producer epoch."""
VERSION_RAISING = 2
"""The transaction.version of a client for which each end of a transaction raises the producer
epoch, and Produce adds partitions to the transaction (KIP-890)."""

MAX_EPOCH = 32_767
NO_TIME_MS = -1


class UnusableRecord(KlogError):
    """A record of ``__transaction_state`` has an unknown state, or one that is never written to the
    log (DEAD, PREPARE_EPOCH_FENCE)."""


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and producer epoch that a request names."""

    producer_id: int
    producer_epoch: int


class TransactionMetadata(NamedTuple):
    """The state of a transactional id. Times are milliseconds since 1970.

    ``partitions`` are the transaction's partitions, in the order in which they were added; they
    stay until each of them has got its transaction marker.
    """

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition of ``state``. The two ids differ if that
    transition gave the producer a new id, because the epochs of its old id were exhausted."""
    next_producer_id: int = NO_PRODUCER_ID
    """While a transaction is being ended and the producer's epochs are exhausted: the id that the
    producer gets once the transaction has ended."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before ``producer_epoch`` was last raised, if an InitProducerId may still name it;
    otherwise -1. Records do not store this field, so it is lost when the process ends, as in
    Kafka."""
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = NO_TIME_MS
    update_ms: int = NO_TIME_MS
    client_version: int = VERSION_PLAIN
    """The transaction.version of the client that began the transaction. If a client with a lower
    transaction.version has ended the transaction, it is that lower version."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no further epoch to give to a producer."""
        return is_exhausted(self.producer_epoch)

    @property
    def raises_epoch(self) -> bool:
        """Whether the end of the transaction raises the producer epoch."""
        return self.client_version >= VERSION_RAISING

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the transaction is open for longer than its time-out."""
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms


def is_exhausted(producer_epoch: int) -> bool:
    """Whether the producer cannot get a higher epoch: the highest epoch, 32,767, is reserved for
    fencing."""
    return producer_epoch >= MAX_EPOCH - 1


def from_record(value: TransactionLogValue) -> TransactionMetadata:
    """Convert the value of a record of ``__transaction_state``. Raises UnusableRecord if the
    record's state is unknown, or is never written to the log."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise UnusableRecord(f"unknown transaction state {value.transaction_status}") from None
    if state not in LASTING:
        raise UnusableRecord(f"a record has a state that is never written: {state.kafkas_name}")
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
