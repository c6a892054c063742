"""Reads one range of offsets from a partition's segment files, in a task.

The broker may roll, delete and replace segments meanwhile. An open file keeps its contents; at the
end of each file the directory is listed again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog.records import layout as at
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.spark.files.discovery import PartitionGone, check_directory, with_stable_listing
from pyspark_klog.spark.planning.losses import (
    Loss,
    files_deleted,
    files_end_early,
    files_gone,
)
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.storage import names
from pyspark_klog.storage.data_directory import read_checkpoint
from pyspark_klog.storage.partition_files import (
    Listing,
    PartitionFiles,
    ReadCounter,
    ReadOnlyFile,
)
from pyspark_klog.storage.segment_walk import aborted_transactions, place_of
from pyspark_klog.storage.transaction_index import AbortedEntry

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.records.arrow import ArrowDecoder

CHUNK_BYTES = 2 << 20
"""How many bytes of a segment file one read gets at most, and the size of the buffer for them; the
buffer grows only for a larger batch."""


class _Open(NamedTuple):
    """A segment that is being read."""

    file: ReadOnlyFile
    base: int
    next_base: int | None
    """The base offset of the segment that followed when this one was opened; None if it was the
    last segment."""


class SegmentRange:
    """Reads ``offsets``, a range of one partition's offsets, from a broker's data directory.

    ``on_lost`` is called with the loss if records have disappeared since Spark planned the query.
    If it returns instead of raising, reading goes on at the next record that still exists.
    ``counter`` counts the bytes that were read.
    """

    def __init__(
        self,
        data_directory: Path,
        offsets: OffsetRange,
        *,
        read_committed: bool,
        on_lost: Callable[[Loss], None],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.counter = ReadCounter()
        self._path = data_directory
        self._partition = offsets.topic_partition
        self._position = offsets.start
        self._end = offsets.end
        self._read_committed = read_committed
        self._on_lost = on_lost
        self._buffer = bytearray(chunk_bytes)
        directory = data_directory / names.partition_directory_name(self._partition)
        self._files = PartitionFiles(directory, self.counter)
        self._aborted: list[AbortedEntry] = []

    def batches(self, decoder: "ArrowDecoder") -> "Iterator[RecordBatch]":
        """Pass the bytes of the range to ``decoder``, and yield each Arrow batch that is full.

        The caller gets the remaining rows from the decoder's ``flush``.
        """
        check_directory(self._path)
        try:
            yield from self._batches(decoder)
        except PartitionGone as error:
            self._on_lost(files_gone(f"{error}: {self._wanted()}"))

    def _batches(self, decoder: "ArrowDecoder") -> "Iterator[RecordBatch]":
        self._skip_deleted(decoder)
        if self._read_committed:
            # Read the indexes of aborted transactions of all segments before the first segment is
            # read: the broker may delete a segment and its index meanwhile. The segment stays
            # readable if it is open here, but its index is not open.
            self._aborted = with_stable_listing(self._files, self._find_aborted)
        before: _Open | None = None
        try:
            while self._position < self._end:
                segment = with_stable_listing(self._files, partial(self._open, before))
                # Close the previous file only after `_open`, which detects a replaced segment by a
                # new inode: a new file cannot get the inode of a file that is open.
                if before is not None:
                    before.file.close()
                before = segment
                if segment is None:
                    return
                yield from self._read(segment, decoder)
        finally:
            if before is not None:
                before.file.close()

    def _wanted(self) -> str:
        return f"offsets {self._position} to {self._end} (exclusive) were to be read"

    def _report_deleted(self, first: int) -> None:
        text = f"{self._partition} begins at offset {first} now: {self._wanted()}"
        self._on_lost(files_deleted(text, first))

    def _find_aborted(self, listing: Listing) -> list[AbortedEntry]:
        return aborted_transactions(self._files, listing, self._position, self._end)

    def _skip_deleted(self, decoder: "ArrowDecoder") -> None:
        """Skip offsets before the log start offset: their records are deleted, although the first
        segment may still have them."""
        starts = read_checkpoint(self._path, names.LOG_START_OFFSET_CHECKPOINT) or {}
        start = starts.get(self._partition, 0)
        if start > self._position:
            self._report_deleted(start)
            self._position = min(start, self._end)
            decoder.skip_to(self._position)

    # --- opening and reading segments ------------------------------------------------------------
    def _open(self, before: _Open | None, listing: Listing) -> _Open | None:
        """Open the segment that has the current position, or else the next segment. If no segment
        has records up to the range's end, report the loss and return None.

        :raises FileNotFoundError: if the segment was deleted after it was listed
        """
        base = listing.segment_of(self._position)
        if base is None:
            base = listing.bases[0]
            self._report_deleted(base)
            self._position = base
            if base >= self._end:
                return None
        file = self._files.open(base)
        if before is not None and file.identity == before.file.identity:
            # The file is the one that was just read to its end: the log cleaner has not replaced
            # the segment, so go on with the next segment.
            file.close()
            following = listing.after(base)
            if following is None:
                text = f"{self._partition} ends at offset {self._position}: {self._wanted()}"
                self._on_lost(files_end_early(text, self._position))
                return None
            base = following
            file = self._files.open(base)
        return _Open(file, base, listing.after(base))

    def _read(self, segment: _Open, decoder: "ArrowDecoder") -> "Iterator[RecordBatch]":
        """Read up to the end of the range or of the segment; ``_position`` becomes the next offset
        to read."""
        try:
            at_byte, likely_end = place_of(
                self._files, segment.file, segment.base, self._position, self._end
            )
        except FileNotFoundError:
            # The segment is being deleted, and its index has gone: read the whole open file.
            at_byte, likely_end = 0, None
        held = 0
        while self._position < self._end:
            room = len(self._buffer) - held
            if likely_end is not None and at_byte < likely_end:
                room = min(room, likely_end - at_byte)
            with memoryview(self._buffer) as view:
                count = segment.file.read_into(view[held : held + room], at_byte)
                at_byte += count
                filled = held + count
                if count:
                    try:
                        yield from decoder.decode(view[:filled], self._aborted_from(self._position))
                    except CorruptRecords as error:
                        raise CorruptRecords(
                            f"{segment.file.path}, from byte {at_byte - filled} on: {error}"
                        ) from None
                    self._position = max(self._position, decoder.next_offset)
                    held = decoder.cut_off_bytes
                    view[:held] = view[filled - held : filled]
            if not count:
                break
            if held == len(self._buffer) and not self._make_room(segment.file, at_byte - held):
                break
        if segment.next_base is not None and self._position < self._end:
            if held:
                raise CorruptRecords(
                    f"{segment.file.path}, from byte {at_byte - held} on: a batch is cut off by "
                    f"the file's end, though the segment of offset {segment.next_base} follows"
                )
            # The log cleaner may have removed all records before the next segment's base offset, so
            # go on at that offset.
            self._position = min(max(self._position, segment.next_base), self._end)

    def _make_room(self, file: ReadOnlyFile, position: int) -> bool:
        """Grow the buffer to the size of the batch at the buffer's start; False if the file ends
        before the batch does."""
        size = at.LOG_OVERHEAD_BYTES + at.INT32.unpack_from(self._buffer, at.SIZE_AT)[0]
        if size > file.size() - position:
            return False
        larger = bytearray(size)
        larger[: len(self._buffer)] = self._buffer
        self._buffer = larger
        return True

    def _aborted_from(self, offset: int) -> list[tuple[int, int]]:
        """The aborted transactions that end at ``offset`` or later, as a Fetch response lists them:
        the producer id and the first offset of each."""
        first = bisect_left(self._aborted, offset, key=lambda entry: entry.last_offset)
        return [(entry.producer_id, entry.first_offset) for entry in self._aborted[first:]]
