"""A walk over the batches of a segment's .log file, for tests that have its bytes."""

from collections.abc import Iterator
from typing import NamedTuple

from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.record_sets import Entry, entries


class StoredBatch(NamedTuple):
    """A batch (or, of older formats, a message) and where it lies."""

    position: int
    entry: Entry


def stored_batches(log: Buffer, start: int = 0, end: int | None = None) -> Iterator[StoredBatch]:
    """Yield the batches in order; CorruptRecords if bytes form no batch. CRCs are not checked.

    A preallocated file has zeros after its last batch; they end the walk.
    """
    position = start
    stop = len(log) if end is None else end
    while position < stop:
        if not any(log[position : min(position + 12, stop)]):
            return
        entry = next(iter(entries(log, position, stop)), None)
        if entry is None:
            raise CorruptRecords(f"no batch at byte {position} of {stop}")
        yield StoredBatch(position, entry)
        position += entry.size_bytes
