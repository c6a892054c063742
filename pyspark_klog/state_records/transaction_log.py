"""The records of __transaction_state: what a transactional id has come to (KIP-98, KIP-890).

The key is the transactional id, and a null value (a tombstone) ends what is known of it. A value
has the producer's id and epoch, the state of its transaction, and the partitions that take part.
"""

from enum import IntEnum

from pyspark_klog.protocol.fields import array, int8, int16, int32, int64, string
from pyspark_klog.protocol.message import Message, Struct
from pyspark_klog.state_records.versions import (
    UnknownStateRecord,
    decode_versioned,
    encode_versioned,
    version_of,
)

KEY_VERSION = 0
VALUE_VERSION = 0
"""What brokers write under transaction.version 0; every release of Kafka reads it."""
FLEXIBLE_VALUE_VERSION = 1
"""What they write from transaction.version 1 on (Kafka 3.6 and later read it): alone it has tagged
fields, so also previous and next producer ids."""


class TransactionState(IntEnum):
    """``transaction_status``, by Kafka's numbers (its class of the same name)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafkas_name(self) -> str:
        """As DescribeTransactions and ListTransactions spell it: ``CompleteCommit``."""
        return self.name.title().replace("_", "")


class TransactionLogKey(Message, versions=(0, 0)):
    """The version, 0, is the one kind of record that this topic has."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """Partitions of one topic that take part in the transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions=(0, 1), flexible_since=1):
    """``transaction_partitions`` is null where the state is EMPTY. Times are in milliseconds since
    1970, -1 where there is none. ``client_transaction_version`` 2 is KIP-890's."""

    producer_id: int = int64()
    previous_producer_id: int = int64(since=1, tag=0, default=-1)
    next_producer_id: int = int64(since=1, tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(since=1, tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(
        PartitionsSchema, nullable_since=0
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(since=1, tag=2)


def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records.

    :raises UnencodableMessage: for an id of more than 32,767 bytes
    """
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(data: bytes) -> TransactionLogKey:
    """Raises UnknownStateRecord for a kind that came later, MalformedRequest for what is damaged
    (both are KlogErrors)."""
    version = version_of(data)
    if version != KEY_VERSION:
        raise UnknownStateRecord(f"a key of kind {version} in __transaction_state; known is 0")
    return decode_versioned(TransactionLogKey, data)


def encode_value(value: TransactionLogValue, version: int = FLEXIBLE_VALUE_VERSION) -> bytes:
    """The value in ``version`` 0 or 1.

    :raises UnencodableMessage: naming a field that does not fit
    :raises UnsupportedVersion: naming a tagged field that is not its default, in version 0
    """
    return encode_versioned(value, version)


def decode_value(data: bytes) -> TransactionLogValue:
    """Raises UnknownStateRecord for a version that came later, MalformedRequest for what is
    damaged. ``transaction_status`` is not checked: it may be a number that no state has."""
    return decode_versioned(TransactionLogValue, data)
