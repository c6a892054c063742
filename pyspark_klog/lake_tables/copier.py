"""Copies a topic's committed records into its table, each record exactly once."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import EARLIEST, LATEST, list_offsets
from pyspark_klog.ids import NO_TOPIC_ID, UUID, TopicPartition
from pyspark_klog.lake_tables.border import Border, Head, Origin
from pyspark_klog.lake_tables.data_files import new_file_name
from pyspark_klog.lake_tables.errors import CommitFailed, LakeError, RecordsLost
from pyspark_klog.lake_tables.parquet_file import Compression, ParquetFile
from pyspark_klog.lake_tables.table import LakeTable, WrittenFile
from pyspark_klog.lake_tables.topics import find_topic
from pyspark_klog.records.arrow import ArrowDecoder
from pyspark_klog.records.arrow_columns import COLUMN_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_ARROW_BATCH_BYTES = 4 << 20
_FILES_A_COMMIT = 8
"""A commit has at most this many files of the full size: after a failure at most as much is copied
again."""
_PATIENCE_MS = 60_000

StartOffsets = Callable[[BlockingClient, Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Finds the offsets at which the copy of a topic that has no table yet begins."""


@dataclass(frozen=True, slots=True)
class CopySettings:
    """How a topic is copied."""

    roll_bytes: int = 128 << 20
    """The size at which a file is complete, in bytes of the file."""
    compression: Compression = field(default_factory=Compression)
    keep_snapshots: int = 100
    continue_after_loss: bool = False
    """Whether to go on at the log's first offset if the broker has deleted records that are not
    copied yet, instead of raising RecordsLost."""


@dataclass(slots=True)
class CopyCounts:
    """The records, files and commits of a copier since the process began."""

    records: int = 0
    files: int = 0
    file_bytes: int = 0
    commits: int = 0
    failed_commits: int = 0
    commit_ms: float = 0.0
    """How long the last commit took."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far a topic's copy is behind the topic."""

    origin: Origin
    head: Head
    """The table's newest version."""
    start: Border
    """By partition the first offset that the broker has."""
    end: Border
    """By partition the last stable offset: the offset before which all records are committed or
    aborted."""

    @property
    def border(self) -> dict[int, int]:
        """By partition the next offset to copy: for a partition that was added to the topic since
        the last commit, the first offset."""
        return {number: self.head.border.get(number, self.start[number]) for number in self.end}

    @property
    def ahead(self) -> list[int]:
        """The partitions whose log ends before the border."""
        border = self.border
        return [number for number, end in sorted(self.end.items()) if end < border[number]]

    @property
    def behind(self) -> dict[int, int]:
        """By partition how many offsets the copy is behind, for partitions that are behind."""
        border = self.border
        return {
            number: self.end[number] - border[number]
            for number in self.end
            if self.end[number] > border[number]
        }


class _TopicGone(LakeError):
    """The topic was deleted, or deleted and created again, while it was copied."""


class TopicCopier:
    """Copies one topic of a cluster into a table. Each commit begins with a look at the
    table, and a copier keeps no other state: a process that is killed, or a second one that copies
    the same topic, loses and doubles nothing.

    ``client`` must read committed records only. ``on_step`` is called with the name of each step of
    a commit, before the step: "write", "commit", "done"; a test stops the copier there.
    ``on_copied`` is called with a number of records that have just been written to a file.
    """

    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        table: LakeTable,
        settings: CopySettings,
        start_offsets: StartOffsets,
        *,
        on_copied: Callable[[int], None] = lambda _count: None,
        on_step: Callable[[str], None] = lambda _name: None,
    ) -> None:
        assert client.settings["isolation.level"] == "read_committed"
        self.topic = topic
        self.table = table
        self.counts = CopyCounts()
        self.failure: LakeError | None = None
        """Why the last call of `copy` has returned False."""
        self._client = client
        self._settings = settings
        self._start_offsets = start_offsets
        self._on_copied = on_copied
        self._on_step = on_step
        self._topic_id: UUID = NO_TOPIC_ID
        self._ahead_since_ms: int | None = None

    def backlog(self) -> Backlog:
        """Read the table's newest version, which is created if it is missing, and ask brokers for
        the topic's offsets.

        :raises OtherTopic: if the table belongs to another topic, topic id or cluster
        :raises RecordsLost: if the broker does not have the records at the border any more
        :raises TopicMissing: if the topic does not exist
        """
        backlog = self.look()
        if backlog is None:
            topic = find_topic(self._client, self.topic)
            offsets = self._start_offsets(self._client, topic.partitions)
            self.table.create(
                topic.origin, {each.partition: offsets[each] for each in topic.partitions}
            )
            backlog = self.look()
            assert backlog is not None, "the table was created"
        backlog.head.origin.check(backlog.origin, self.table.name)
        self._check_start(backlog)
        self._check_end(backlog)
        return backlog

    def look(self) -> Backlog | None:
        """Like `backlog`, but without a check, and None if the table does not exist."""
        topic = find_topic(self._client, self.topic)
        self._topic_id = topic.topic_id
        head = self.table.load()
        if head is None:
            return None
        start, end = (self._offsets(topic.partitions, time) for time in (EARLIEST, LATEST))
        return Backlog(topic.origin, head, start, end)

    def copy(self, backlog: Backlog) -> bool:
        """Copy records from the border on, at most one file for each partition, and commit them.

        Return whether the commit has succeeded. After False the caller goes on with a new
        `backlog`: another writer has committed, or the commit has failed for another reason.

        :raises KlogError: if records cannot be read, `TimedOut` for example; nothing is committed
        """
        border = {number: max(at, backlog.start[number]) for number, at in backlog.border.items()}
        try:
            files = self._write_files(backlog, border)
        except _TopicGone as error:
            self.failure = error
            return False
        except OSError as error:
            text = f"{self.table.name}: a file could not be written: {error}; nothing is committed"
            self.failure = CommitFailed(text)
            return False
        written_bytes = sum(each.size_bytes for each in files)
        self._on_step("commit")
        began_ms = self._client.now_ms()
        try:
            self.table.commit(files, border)
        except CommitFailed as error:
            self.counts.failed_commits += 1
            self.failure = error
            return False
        self.counts.commit_ms = self._client.now_ms() - began_ms
        self.counts.commits += 1
        self.counts.files += len(files)
        self.counts.records += sum(each.metadata.num_rows for each in files)
        self.counts.file_bytes += written_bytes
        _log.info(
            "%s: committed %d records in %d files, %d bytes; %d offsets are left",
            self.table.name,
            sum(each.metadata.num_rows for each in files),
            len(files),
            written_bytes,
            sum(max(end - border[number], 0) for number, end in backlog.end.items()),
        )
        self._on_step("done")
        self._expire()
        return True

    def _offsets(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[int, int]:
        found = list_offsets(
            self._client, dict.fromkeys(partitions, timestamp), read_committed=True
        )
        return {each.partition: at.offset for each, at in found.items()}

    def _check_start(self, backlog: Backlog) -> None:
        for number, border in backlog.border.items():
            if border < backlog.start[number]:
                self._on_lost(number, border, backlog.start[number])

    def _on_lost(self, number: int, border: int, start: int) -> None:
        """Report that the broker has deleted records between the border and its first offset.

        :raises RecordsLost: unless the settings say to go on
        """
        text = (
            f"{self.table.name} ends before offset {border} of {self.topic}-{number}, and the "
            f"broker's first offset is {start}: it has deleted records that were not copied"
        )
        if not self._settings.continue_after_loss:
            raise RecordsLost(
                f"{text}. Raise the topic's retention.ms or retention.bytes; to leave the lost "
                "records out of the table, use --on-lost continue"
            )
        _log.warning("%s; the copy goes on at offset %d", text, start)

    def _check_end(self, backlog: Backlog) -> None:
        """Notice a log that ends before the border. Shortly after an election of a leader the log
        may end earlier than before; after a longer time records that were read are lost.

        :raises RecordsLost: after `_PATIENCE_MS`
        """
        border, ahead = backlog.border, backlog.ahead
        now_ms = self._client.now_ms()
        if not ahead:
            self._ahead_since_ms = None
            return
        if self._ahead_since_ms is None:
            self._ahead_since_ms = now_ms
        if now_ms - self._ahead_since_ms < _PATIENCE_MS:
            return
        number = ahead[0]
        raise RecordsLost(
            f"{self.table.name} has the records of {self.topic}-{number} before offset "
            f"{border[number]}, and the broker's log ends at {backlog.end[number]}: the brokers "
            "have lost records, perhaps in an unclean leader election. To copy what is written "
            "from now on, run klog lake restart"
        )

    def _write_files(self, backlog: Backlog, border: dict[int, int]) -> list[WrittenFile]:
        """Copy records from the border on, and move the border behind them. If this fails, delete
        the files that were finished before: nothing was committed."""
        files: list[WrittenFile] = []
        written_bytes = 0
        behind = {n: backlog.end[n] - border[n] for n in border if backlog.end[n] > border[n]}
        with ExitStack() as undo:
            for number in sorted(behind, key=lambda each: -behind[each]):
                self._on_step("write")
                file, border[number] = self._copy_partition(
                    number, border[number], backlog.end[number]
                )
                if file is not None:
                    undo.callback(self._delete, file)
                    files.append(file)
                    written_bytes += file.size_bytes
                if written_bytes >= _FILES_A_COMMIT * self._settings.roll_bytes:
                    break
            undo.pop_all()
        return files

    def _delete(self, file: WrittenFile) -> None:
        with suppress(Exception):  # klog lake sweep deletes it later
            self.table.delete(file.path)

    def _copy_partition(self, number: int, start: int, end: int) -> tuple[WrittenFile | None, int]:
        """Copy the records from ``start`` on into one file, until the file is large enough or the
        records reach ``end``. Return the file, None if there was no record, and the next offset to
        copy."""
        settings, partition = self._settings, TopicPartition(self.topic, number)
        decoder = ArrowDecoder(
            topic=self.topic,
            partition=number,
            columns=tuple(COLUMN_TYPES),
            start_offset=start,
            end_offset=end,
            check_crc=self._client.settings.flag("check.crcs"),
            target_bytes=_ARROW_BATCH_BYTES,
        )

        def on_lost(lost: OffsetsLost) -> None:
            if lost.is_recreated or lost.is_deleted:
                raise _TopicGone(str(lost)) from lost
            self._on_lost(number, lost.start, lost.available[0])
            decoder.skip_to(min(lost.available[0], end))

        fetcher = RangeFetcher(
            self._client,
            partition,
            start,
            end,
            progress_timeout_ms=self._client.settings.number("default.api.timeout.ms"),
            progress_bound="--timeout",
            on_lost=on_lost,
            topic_id=self._topic_id,
        )
        file: ParquetFile | None = None
        next_offset = end
        with ExitStack() as stack:
            for chunk in fetcher:
                for batch in decoder.decode(chunk.data, chunk.aborted):
                    file = file or stack.enter_context(self._new_file(number, start))
                    self._write(file, batch)
                if file is not None and file.size_bytes >= settings.roll_bytes:
                    next_offset = min(decoder.next_offset, end)
                    break
            rest = decoder.flush()
            if rest is not None:
                file = file or stack.enter_context(self._new_file(number, start))
                self._write(file, rest)
            return None if file is None else file.finish(), next_offset

    def _new_file(self, number: int, start: int) -> ParquetFile:
        return ParquetFile(self.table, new_file_name(number, start), self._settings.compression)

    def _write(self, file: ParquetFile, batch: "pa.RecordBatch") -> None:
        file.write(batch)
        self._on_copied(batch.num_rows)

    def _expire(self) -> None:
        """Let the table forget old snapshots, so that commits do not get slower."""
        try:
            self.table.expire(self._settings.keep_snapshots)
        except LakeError as error:
            _log.warning("%s; it is tried again after the next commit", error)
