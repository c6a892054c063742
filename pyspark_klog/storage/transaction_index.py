"""Transaction indexes, ``<base>.txnindex``: the aborted transactions that end in a segment.

A row is added when a marker of an abort is. A segment without such markers has no file, or an empty
one. Readers of committed records find in it what to leave out.
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
    """The producer's transactional batches from ``first_offset`` to ``last_offset`` are void."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's."""
    last_stable_offset: int
    """As it was once the transaction had ended: whatever ends later begins there or behind it."""


def encode_transaction_index(entries: Iterable[AbortedEntry]) -> bytes:
    """The bytes of a .txnindex file."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def decode_transaction_index(data: Buffer) -> list[AbortedEntry]:
    """The whole rows, in order: a row that is being written now is none yet.

    :raises StorageFormatError: for a row of another version, and one that ends before it begins
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
                f"transaction index: row {number} goes from offset {entry.first_offset} to "
                f"{entry.last_offset}"
            )
        entries.append(entry)
    return entries
