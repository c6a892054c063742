"""Iterates over entries of mixed formats: v2 batches and v0 or v1 messages in one buffer."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, is_cut_off
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView

Entry: TypeAlias = BatchView | LegacyView


class EntryHead(NamedTuple):
    """The fields in the first 17 bytes of an entry: of a v2 batch, or of a v0 or v1 message.

    ``offset`` is the base offset of a v2 batch, the offset of a v0 or v1 message, or the last
    offset in a v0 or v1 wrapper. ``size_bytes`` counts the whole entry.
    """

    offset: int
    size_bytes: int
    magic: int


def read_entry_head(buffer: Buffer, position: int = 0) -> EntryHead:
    """Read the first 17 bytes of the batch or message at ``position``.

    The rest of the batch or message need not be in the buffer. Raises CorruptRecords if fewer than
    17 bytes are left, for an unknown magic, and for a size below the minimum of the format.
    """
    if len(buffer) - position < at.UP_TO_MAGIC_BYTES:
        raise CorruptRecords(
            f"the batch or message at byte {position} is cut off after "
            f"{max(len(buffer) - position, 0)} bytes"
        )
    offset, size = at.LOG_OVERHEAD.unpack_from(buffer, position)
    magic: int = at.INT8.unpack_from(buffer, position + at.MAGIC_AT)[0]
    if not at.MAGIC_V0 <= magic <= at.MAGIC_V2:
        raise CorruptRecords(
            f"the batch or message at byte {position} has magic {magic}, known are 0 to 2"
        )
    least = at.MIN_BATCH_LENGTH if magic == at.MAGIC_V2 else at.MIN_MESSAGE_SIZE[magic]
    if size < least:
        raise CorruptRecords(
            f"the batch or message at byte {position} (format {magic}) gives its size as {size}, "
            f"the least is {least}"
        )
    return EntryHead(offset, at.LOG_OVERHEAD_BYTES + size, magic)


def entries(
    buffer: Buffer, start: int = 0, end: int | None = None, *, allow_partial: bool = False
) -> Iterator[Entry]:
    """Yield the entries of ``buffer[start:end]``: v2 batches, and v0 or v1 messages.

    Raises CorruptRecords at bytes that are no entry. An entry that is cut off at the end raises
    too, unless ``allow_partial`` is set: Fetch responses may end with a partial entry, and then
    the iteration stops before that entry.
    """
    position = start
    stop = len(buffer) if end is None else end
    while position < stop:
        if allow_partial and is_cut_off(buffer, position, stop):
            return
        entry = entry_at(buffer, position, stop)
        yield entry
        position += entry.size_bytes


def entry_at(buffer: Buffer, position: int = 0, end: int | None = None) -> Entry:
    """Return a view of the batch or message at ``position``; CorruptRecords if it is malformed or
    ``end`` cuts it off."""
    if read_entry_head(buffer, position).magic == at.MAGIC_V2:
        return BatchView(buffer, position, end)
    return LegacyView(buffer, position, end)


def offset_after(data: memoryview) -> int | None:
    """Return the offset after the last whole batch or message of ``data``; None if there is none.

    :raises CorruptRecords: for a batch or message that is too short for its magic byte, or if the
        last one is a malformed v2 batch
    """
    last = -1
    position, end = 0, len(data)
    # Local variables are faster than attributes of the module ``at``, and this loop runs for every
    # batch that a consumer fetches.
    unpack, size_at, overhead_bytes = at.INT32.unpack_from, at.SIZE_AT, at.LOG_OVERHEAD_BYTES
    least_bytes = at.UP_TO_MAGIC_BYTES
    while end - position >= least_bytes:
        length = unpack(data, position + size_at)[0]
        if length < least_bytes - overhead_bytes:
            raise CorruptRecords(
                f"the batch at byte {position} is too short: its length field says {length}"
            )
        if length > end - position - overhead_bytes:
            break
        last = position
        position += overhead_bytes + length
    if last < 0:
        return None
    if data[last + at.MAGIC_AT] >= at.MAGIC_V2:
        return BatchView(data, last).next_offset
    # A v0 or v1 message stores its own offset, and a v0 or v1 wrapper the offset of its last
    # message.
    offset: int = at.INT64.unpack_from(data, last)[0]
    return offset + 1
