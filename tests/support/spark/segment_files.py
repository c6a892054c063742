"""Data directories made by hand: logs with every format, transactions, indexes and checkpoints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark_klog.ids import Offset, ProducerEpoch, ProducerId, TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.storage import names
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.producer_snapshot import (
    ProducerSnapshotEntry,
    encode_producer_snapshot,
)
from pyspark_klog.storage.text_files import encode_offset_checkpoint
from pyspark_klog.storage.transaction_index import AbortedEntry, encode_transaction_index


class LogFiles:
    """A partition's files as a broker would have left them; an index row for every batch but a
    segment's first, so that each look-up matters."""

    def __init__(self, data: Path, topic: str = "t", partition: int = 0) -> None:
        self.data = data
        self.partition = TopicPartition(topic, partition)
        self.path = data / names.partition_directory_name(self.partition)
        self.path.mkdir(parents=True)
        self.end = 0
        self.base = 0
        self.open: dict[int, int] = {}
        self._largest_ms = -1
        self._time_rows = b""
        self.roll()

    # --- appending -------------------------------------------------------------------------------
    def append(
        self,
        count: int = 1,
        *,
        at_ms: int = 1_000,
        value: bytes = b"v",
        codec: Codec = Codec.NONE,
        magic: int = 2,
        **fields: Any,
    ) -> None:
        """A batch of records whose values are ``value`` and their offsets."""
        if magic == 2:
            builder: BatchBuilder | LegacyBuilder = BatchBuilder(self.end, codec, **fields)
        else:
            builder = LegacyBuilder(magic, self.end, codec)
        for number in range(count):
            timestamp_ms = at_ms + number if magic else -1
            builder.append(b"k", value + b"%d" % (self.end + number), timestamp_ms)
        self._write(builder.build(), count, at_ms + count - 1 if magic else -1)

    def in_transaction(self, producer_id: int, count: int = 1, **fields: Any) -> None:
        """A batch of an open transaction, which it begins if need be."""
        self.open.setdefault(producer_id, self.end)
        self.append(
            count, producer_id=producer_id, producer_epoch=0, is_transactional=True, **fields
        )

    def finish(self, producer_id: int, *, abort: bool) -> None:
        """The marker that ends a producer's transaction."""
        marker = EndTransactionMarker(ControlType.ABORT if abort else ControlType.COMMIT, 0)
        first = self.open.pop(producer_id)
        data = end_transaction_batch(
            marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=1, base_offset=self.end
        )
        self._write(data, 1, 1)
        if abort:
            stable = min([*self.open.values(), self.end])
            entry = AbortedEntry(producer_id, first, self.end - 1, stable)
            with self.file(Suffix.TRANSACTION_INDEX).open("ab") as index:
                index.write(encode_transaction_index([entry]))

    def _write(self, data: bytes, count: int, largest_ms: int) -> None:
        log = self.file(Suffix.LOG)
        position = log.stat().st_size
        last = self.end + count - 1 - self.base
        if largest_ms > self._largest_ms:
            self._largest_ms = largest_ms
            self._time_rows += TIME_INDEX_ENTRY.pack(largest_ms, last)
        if position:
            with self.file(Suffix.OFFSET_INDEX).open("ab") as index:
                index.write(OFFSET_INDEX_ENTRY.pack(last, position))
        with log.open("ab") as file:
            file.write(data)
        self.end += count

    def roll(self) -> None:
        """Complete the segment, and begin a new one at the log's end."""
        if self.end:
            self.file(Suffix.TIME_INDEX).write_bytes(self._time_rows)
        self.base = self.end
        self._largest_ms, self._time_rows = -1, b""
        self.file(Suffix.LOG).write_bytes(b"")
        self.file(Suffix.OFFSET_INDEX).write_bytes(b"")
        # A broker preallocates index files: zeros until the segment is rolled.
        self.file(Suffix.TIME_INDEX).write_bytes(bytes(1_200))
        if self.end:
            self.file(Suffix.PRODUCER_SNAPSHOT).write_bytes(
                encode_producer_snapshot(
                    ProducerSnapshotEntry(
                        ProducerId(producer_id),
                        ProducerEpoch(0),
                        current_transaction_first_offset=Offset(first),
                    )
                    for producer_id, first in self.open.items()
                )
            )

    # --- files -----------------------------------------------------------------------------------
    def file(self, suffix: Suffix, base: int | None = None) -> Path:
        """Return the path of one of a segment's files, by default the active segment's."""
        return self.path / names.segment_file_name(self.base if base is None else base, suffix)

    def files_of(self, base: int) -> Iterator[Path]:
        """Yield the paths of all files of a segment."""
        for suffix in Suffix:
            path = self.file(suffix, base)
            if path.exists():
                yield path

    def delete(self, base: int) -> None:
        """Rename a segment's files, as retention does before it deletes them."""
        for path in list(self.files_of(base)):
            path.rename(path.with_name(path.name + names.DELETED_SUFFIX))

    def commit(self, offset: int | None = None) -> None:
        """Write the high watermark (the log's end) into the checkpoint."""
        write_checkpoint(
            self.data,
            names.HIGH_WATERMARK_CHECKPOINT,
            {self.partition: self.end if offset is None else offset},
        )


def write_checkpoint(data: Path, name: str, offsets: dict[TopicPartition, int]) -> None:
    """Write one of a data directory's checkpoints."""
    (data / name).write_bytes(encode_offset_checkpoint(offsets))
