"""The record of a transaction's metadata as plain objects, to compare packed records with."""

from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from pyspark_klog.state_records.transaction_log import (
    PartitionsSchema,
    TransactionLogValue,
    TransactionState,
)


def to_record(metadata: TransactionMetadata) -> TransactionLogValue:
    """Return the record. Topics keep their order, and so do the partitions of each topic."""
    topics: dict[str, list[int]] | None = None
    if metadata.state is not TransactionState.EMPTY:
        topics = {}
        for topic, partition in metadata.partitions:
            topics.setdefault(topic, []).append(partition)
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if topics is None
        else [PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()],
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
