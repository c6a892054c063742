"""Producer snapshots, ``<offset>.snapshot``: the state of all producers before that offset.

The format is version 1. Each producer id has one entry, which describes its last batch only. A
broker checks retries against the last five batches of a producer; it reads the other four back from
the log.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from pyspark_klog.ids import NO_SEQUENCE, Offset, ProducerEpoch, ProducerId
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.layout import Buffer
from pyspark_klog.storage.errors import StorageFormatError

VERSION = 1
HEADER = Struct(">hIi")  # version, CRC-32C of all that follows it, number of entries
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
# first offset of the transaction under way
ENTRY = Struct(">qhiqiqiq")
assert HEADER.size == 10
assert ENTRY.size == 46
_CRC_START_AT = 6
NO_OFFSET = Offset(-1)


class ProducerSnapshotEntry(NamedTuple):
    """The state of one producer: its epoch, its last batch and its open transaction.

    ``last_sequence`` and ``last_offset`` are -1 if the producer has no last batch.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int = NO_SEQUENCE
    last_offset: Offset = NO_OFFSET
    offset_delta: int = 0  # the last batch's last offset less its first offset
    timestamp_ms: int = -1  # the last batch's largest timestamp
    coordinator_epoch: int = -1
    current_transaction_first_offset: Offset = NO_OFFSET


def encode_producer_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return the bytes of a snapshot file with these entries."""
    rows = [ENTRY.pack(*entry) for entry in entries]
    data = bytearray(HEADER.pack(VERSION, 0, len(rows)))
    for row in rows:
        data += row
    with memoryview(data) as view, view[_CRC_START_AT:] as covered:
        HEADER.pack_into(data, 0, VERSION, crc32c(covered), len(rows))
    return bytes(data)


def decode_producer_snapshot(data: Buffer) -> list[ProducerSnapshotEntry]:
    """Return the entries of a snapshot file.

    :raises StorageFormatError: if the version is not 1, or the length or CRC is wrong
    """
    try:
        version, crc, count = HEADER.unpack_from(data, 0)
    except struct_error:
        raise StorageFormatError(
            f"a producer snapshot of {len(data)} bytes: expected at least {HEADER.size}"
        ) from None
    if version != VERSION:
        raise StorageFormatError(f"producer snapshot version {version}: expected {VERSION}")
    if count < 0 or count * ENTRY.size != len(data) - HEADER.size:
        raise StorageFormatError(
            f"a producer snapshot has {len(data)} bytes, which does not fit its header: "
            f"{HEADER.size} bytes, and a count of {count} entries of {ENTRY.size} bytes each"
        )
    with memoryview(data) as view, view[_CRC_START_AT:] as covered:
        computed = crc32c(covered)
        if computed != crc:
            raise StorageFormatError(
                f"a producer snapshot carries CRC {crc:#010x}, its bytes give {computed:#010x}"
            )
        return [ProducerSnapshotEntry(*row) for row in ENTRY.iter_unpack(view[HEADER.size :])]
