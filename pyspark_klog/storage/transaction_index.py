"""Transaction indexes, ``<base>.txnindex``: the aborted transactions that end in a segment.

The broker adds a row when it appends to the segment the abort marker of a transaction that has
batches in the log. A segment without abort markers has no transaction index, or an empty one. A
read_committed reader leaves out the batches of the transactions that the index lists.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from pyspark_klog.records.layout import Buffer
from pyspark_klog.storage.errors import StorageFormatError

VERSION = 0
# version, producer id, first offset, last offset, last stable offset
ENTRY = Struct(">hqqqq")
assert ENTRY.size == 34


class AbortedEntry(NamedTuple):
    """One aborted transaction: the producer's transactional batches from ``first_offset`` to
    ``last_offset`` are not to be delivered to read_committed readers."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset right after the transaction ended. Transactions that end later have
    their first offset at or above this offset."""


def encode_transaction_index(entries: Iterable[AbortedEntry]) -> bytes:
    """Return the bytes of a .txnindex file with these entries."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def decode_transaction_index(data: Buffer) -> list[AbortedEntry]:
    """Return the aborted transactions, one for each complete row, in the order of the file.

    An incomplete row at the end, which the broker may be writing now, is left out.

    :raises StorageFormatError: if a row has a version other than 0, or its last offset is below its
        first offset
    """
    whole = memoryview(data)[: len(data) - len(data) % ENTRY.size]
    entries = []
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(whole)):
        if version != VERSION:
            raise StorageFormatError(
                f"transaction index: row {number} has version {version}, expected {VERSION}"
            )
        entry = AbortedEntry(*fields)
        if entry.last_offset < entry.first_offset:
            raise StorageFormatError(
                f"transaction index: row {number} has the last offset {entry.last_offset}, below "
                f"its first offset {entry.first_offset}"
            )
        entries.append(entry)
    return entries
