"""The records of __transaction_state: the state of each transactional id (KIP-98, KIP-890).

The key is the transactional id. The value has the producer's id and epoch, the state of its
transaction, and the partitions of the transaction. A null value (a tombstone) deletes the state.
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
"""Value version that Kafka writes under transaction.version 0; all releases of Kafka read it. A
klog broker never writes this version."""
FLEXIBLE_VALUE_VERSION = 1
"""Value version that Kafka writes from transaction.version 1 on, and a klog broker always; Kafka
3.6 and later read it.

Only this version has tagged fields, for example the previous and the next producer id.
"""


class TransactionState(IntEnum):
    """The values of ``transaction_status``, with the numbers of Kafka's TransactionState."""

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
        """The state's name in responses to DescribeTransactions and ListTransactions, for example
        ``CompleteCommit``."""
        return self.name.title().replace("_", "")


class TransactionLogKey(Message, versions=(0, 0)):
    """Key of a transactional id's state. The version of a record's key stands for the kind of the
    record; __transaction_state has one kind of record, with key version 0."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """A topic's name and the numbers of its partitions in the transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions=(0, 1), flexible_since=1):
    """State of a transactional id. ``transaction_partitions`` is null in the state EMPTY.

    Timestamps are in milliseconds since 1970, or -1 for none. ``client_transaction_version`` is 2
    for clients that use the transactions of KIP-890.
    """

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
    """Return the key of a transactional id's records.

    :raises UnencodableMessage: for an id of more than 32,767 bytes
    """
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def decode_key(data: bytes) -> TransactionLogKey:
    """Decode a key of __transaction_state.

    :raises UnknownStateRecord: for a kind of record that a later release writes, or for fewer than
        two bytes
    :raises MalformedRequest: for damaged bytes
    """
    version = version_of(data)
    if version != KEY_VERSION:
        raise UnknownStateRecord(
            f"a key of __transaction_state has version {version}, known is version 0"
        )
    return decode_versioned(TransactionLogKey, data)


def encode_value(value: TransactionLogValue, version: int = FLEXIBLE_VALUE_VERSION) -> bytes:
    """Encode a value in ``version`` 0 or 1.

    :raises UnencodableMessage: with the name of a field that does not fit
    :raises UnsupportedVersion: in version 0, for a tagged field with a value other than the default
    """
    return encode_versioned(value, version)


def decode_value(data: bytes) -> TransactionLogValue:
    """Decode a value of __transaction_state.

    ``transaction_status`` is not checked, and may be a number that TransactionState does not have.

    :raises UnknownStateRecord: for a version that a later release writes, or for fewer than two
        bytes
    :raises MalformedRequest: for damaged bytes
    """
    return decode_versioned(TransactionLogValue, data)
