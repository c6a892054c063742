"""Control records, which brokers write themselves, in batches with the control bit set.

The key of a control record gives its type, and the type decides the format of the value. A broker
writes transaction markers (ABORT and COMMIT, KIP-98). The other types belong to KRaft; they are
listed so that logs that contain them are readable.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.errors import InvalidRecords, RecordsError
from pyspark_klog.records.layout import (
    BATCH_HEADER,
    CONTROL_BIT,
    CRC_AT,
    CRC_START_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    UINT32,
    Buffer,
)
from pyspark_klog.records.record import Record

CONTROL_KEY = Struct(">hh")  # version, type
END_TRANSACTION_VALUE = Struct(">hi")  # version, coordinator epoch
assert CONTROL_KEY.size == 4
assert END_TRANSACTION_VALUE.size == 6
_VERSION = 0

# The single record of a transaction marker as brokers write it. One unpack reads all fields: five
# bytes (record length, attributes, timestamp delta, offset delta, key length), version and type in
# the key, value length, version and coordinator epoch in the value, and header count.
_MARKER_RECORD = Struct(">5shhbhib")
_MARKER_RECORD_START = bytes((2 * 16, 0, 0, 0, 2 * CONTROL_KEY.size))
_PLAIN_MARKER = (_VERSION, 2 * END_TRANSACTION_VALUE.size, _VERSION, 0)
_MOST_INFLATED_BYTES = 1024
"""Bound on inflating a compressed control batch.

No broker writes such a batch, and a control record has only some bytes. The bound protects the
event loop against a small batch of another program that inflates to many bytes.
"""
_MARKER_BATCH_BYTES = RECORDS_AT + _MARKER_RECORD.size
assert _MARKER_RECORD.size == 17


class ControlType(IntEnum):
    """The type of a control record; UNKNOWN stands for newer types, which readers skip."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENDS = {each.value: each for each in (ControlType.ABORT, ControlType.COMMIT)}


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """A transaction marker: a producer's transaction ends on this partition, by ABORT or COMMIT."""

    control_type: ControlType
    coordinator_epoch: int

    def __post_init__(self) -> None:
        if self.control_type not in (ControlType.ABORT, ControlType.COMMIT):
            raise InvalidRecords(
                f"control type {self.control_type.name} ends no transaction: ABORT or COMMIT do"
            )


def control_type_of(key: bytes | None) -> ControlType:
    """Return the type in the key of a control record.

    Like Kafka, the function reads a newer version of the key as version 0. Raises InvalidRecords if
    the key is null or shorter than four bytes, or if its version is negative.
    """
    if key is None or len(key) < CONTROL_KEY.size:
        size = "null" if key is None else f"{len(key)} bytes"
        raise InvalidRecords(f"the key of a control record is {size}, expected 4 bytes or more")
    version, number = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecords(f"the key of a control record has version {version}, expected >= 0")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def decode_end_transaction(record: Record) -> EndTransactionMarker:
    """Read a transaction marker from a control record.

    Raises InvalidRecords if the record is not a transaction marker, or if its key or value is null,
    too short or of a negative version.
    """
    control_type = control_type_of(record.key)
    value = record.value
    if value is None or len(value) < END_TRANSACTION_VALUE.size:
        size = "null" if value is None else f"{len(value)} bytes"
        raise InvalidRecords(f"the value of a transaction marker is {size}, expected 6 or more")
    version, coordinator_epoch = END_TRANSACTION_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecords(f"a transaction marker has version {version}, expected >= 0")
    return EndTransactionMarker(control_type, coordinator_epoch)


def end_transaction_at(
    buffer: Buffer, position: int, size_bytes: int
) -> EndTransactionMarker | None:
    """Return the transaction marker in the control batch at ``position``; None without a marker.

    A control batch has no marker if Kafka's log cleaner removed its record, or if the record has
    another control type. The function also returns None for a batch that cannot be read.
    """
    if size_bytes == _MARKER_BATCH_BYTES:
        start, key_version, number, value_size, version, coordinator_epoch, headers = (
            _MARKER_RECORD.unpack_from(buffer, position + RECORDS_AT)
        )
        plain = (key_version, value_size, version, headers) == _PLAIN_MARKER
        if plain and start == _MARKER_RECORD_START and number in _ENDS:
            return EndTransactionMarker(_ENDS[number], coordinator_epoch)
    try:
        batch = BatchView(buffer, position, position + size_bytes)
        record = next(batch.records(_MOST_INFLATED_BYTES), None)
        return None if record is None else decode_end_transaction(record)
    except RecordsError:
        return None


def encode_control_key(control_type: ControlType) -> bytes:
    return CONTROL_KEY.pack(_VERSION, control_type)


def end_transaction_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return the batch that a broker appends for WriteTxnMarkers.

    The batch has one control record and no sequence number.
    """
    batch = bytearray(_MARKER_BATCH_BYTES)
    _MARKER_RECORD.pack_into(
        batch,
        RECORDS_AT,
        _MARKER_RECORD_START,
        _VERSION,
        marker.control_type,
        2 * END_TRANSACTION_VALUE.size,
        _VERSION,
        marker.coordinator_epoch,
        0,
    )
    BATCH_HEADER.pack_into(
        batch,
        0,
        base_offset,
        _MARKER_BATCH_BYTES - LOG_OVERHEAD_BYTES,
        partition_leader_epoch,
        MAGIC_V2,
        0,
        TRANSACTIONAL_BIT | CONTROL_BIT,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_START_AT:]))
    return bytes(batch)
