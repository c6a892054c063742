"""One cleaning round over one log: maps the keys of the dirty part, then rewrites the segments.

The round runs step by step in helper threads. Between two steps the event loop's thread may pause
the round to limit its I/O, swap the new segment into the log, or give the round up. The round reads
only closed segments below the last stable offset, which do not change meanwhile.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from klog_broker.compaction.candidates import Extent
from klog_broker.compaction.chunks import SegmentChunk, chunks_of
from klog_broker.compaction.cleaned_transactions import CleanedTransactions
from klog_broker.compaction.filtering import RETAIN_EMPTY, ChunkFilter
from klog_broker.compaction.grouping import GroupedSegment, group_sizes
from klog_broker.compaction.key_map import KeyMap
from klog_broker.compaction.verdicts import Verdicts
from klog_broker.log.log_config import LogConfig
from klog_broker.log.maintenance.cleaned_segment import CleanedSegment
from klog_broker.log.maintenance.cleaning import LastProducerBatch
from klog_broker.log.segment.segment import Segment
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.errors import KlogError
from pyspark_klog.records.kernels import scan
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from pyspark_klog.storage.transaction_index import AbortedEntry


class MapTooSmall(KlogError):
    """The map of keys to offsets is too small for the keys of the first dirty batch, so the round
    cannot clean anything."""


class SourceSegment(NamedTuple):
    """A segment to be cleaned, as it was when the cleaning round began."""

    segment: Segment
    size_bytes: int
    end_offset: int
    """The base offset of the segment that follows in the log."""


class StepDone(NamedTuple):
    """The result of a step of a cleaning round: the numbers of bytes that the step has read and
    written, as the limit for the cleaner's I/O counts them."""

    bytes_read: int
    bytes_written: int = 0


class Ready(NamedTuple):
    """The result of a step of a cleaning round that has completed ``segment``: before the next
    step, ``segment`` replaces ``sources`` in the log."""

    segment: Segment
    sources: Sequence[SourceSegment]


class Finished(NamedTuple):
    """The result of the last step of a cleaning round."""

    end_offset: int
    """The log is clean up to this offset."""


Step = StepDone | Ready | Finished


@dataclass
class Tally:
    """The totals of one cleaning round."""

    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0
    is_map_full: bool = False


@dataclass(frozen=True)
class Job:
    """The input of one cleaning round: segments, settings, producers and transactions of a log."""

    sources: Sequence[SourceSegment]
    """The closed segments before the first uncleanable offset."""
    extent: Extent
    config: LogConfig
    last_of_producers: Mapping[int, LastProducerBatch]
    aborted: Callable[[], Sequence[AbortedEntry]]
    """The log's aborted transactions, read in a helper thread."""
    new_segment: Callable[[int, int], CleanedSegment]
    checks: Callable[[], RecordChecks]
    now_ms: int


class CleaningRound:
    """One cleaning of one log. Its ``steps`` run in helper threads, one after the other."""

    def __init__(self, job: Job, key_map: KeyMap) -> None:
        self.tally = Tally()
        self._job = job
        self._map = key_map
        self._aborted: Sequence[AbortedEntry] = ()
        self._writing: CleanedSegment | None = None

    def drop(self) -> None:
        """Give the round up at any step: remove the segment that it was writing. Blocks; raises
        OSError.

        The generator of `steps` must not remove the segment when it is closed: Python also closes
        it when it collects the objects of a broker that has crashed, and by then the next broker in
        the same process (in tests) may use the files.
        """
        if self._writing is not None:
            self._writing.remove()
            self._writing = None

    def steps(self) -> Generator[Step, None, None]:
        """Run the cleaning round, and yield the result of each step. Raises OSError, DamagedLog,
        RecordsError, MapTooSmall.

        After an error, the cleaned segments that have already replaced old ones stay in the log.
        """
        self._aborted = self._job.aborted()
        end_offset = yield from self._map_keys()
        if end_offset <= self._job.extent.first_dirty_offset:
            raise MapTooSmall(
                "the keys of a single batch do not fit into the log cleaner's map of keys; raise "
                "log.cleaner.dedupe.buffer.size, or lower log.cleaner.threads"
            )
        self.tally.keys = self._map.size
        yield from self._rewrite(end_offset)
        yield Finished(end_offset)

    # --- mapping the keys of dirty records -------------------------------------------------------
    def _map_keys(self) -> Generator[Step, None, int]:
        """Put the keys of the dirty records into the map of keys. Returns the offset up to which
        all keys are in the map: the end of the segments to clean, or less if the map is full."""
        first_dirty = self._job.extent.first_dirty_offset
        verdicts = Verdicts(self._transactions_from(first_dirty), {}, self._job.now_ms)
        end_offset = first_dirty
        for source in self._job.sources:
            if source.end_offset <= first_dirty:
                continue
            for chunk in self._chunks(source):
                skip = verdicts.keyless_rows(chunk.data, chunk.table)
                skip |= chunk.table[:, scan.LAST_OFFSET] < first_dirty
                table = chunk.table.reshape(-1)
                if not self._map.add_chunk(chunk.data, table, len(chunk.table), skip, first_dirty):
                    self.tally.is_map_full = True
                    return max(end_offset, self._map.latest_offset + 1)
                yield StepDone(chunk.size_bytes)
            # The map covers the offsets up to the next segment, not only up to the last batch:
            # earlier rounds have removed the records in between.
            end_offset = source.end_offset
        return end_offset

    def _transactions_from(self, offset: int) -> CleanedTransactions:
        limit = self._job.extent.first_uncleanable_offset
        return CleanedTransactions(
            entry
            for entry in self._aborted
            if entry.last_offset >= offset and entry.first_offset < limit
        )

    # --- rewriting the segments ------------------------------------------------------------------
    def _rewrite(self, end_offset: int) -> Generator[Step, None, None]:
        job = self._job
        transactions = self._transactions_from(0)
        verdicts = Verdicts(transactions, job.last_of_producers, job.now_ms)
        horizon_ms = self._old_tombstones_horizon_ms()
        sources = [each for each in job.sources if each.segment.base_offset < end_offset]
        for group in self._groups(sources):
            cleaned = job.new_segment(group[0].segment.base_offset, job.now_ms)
            self._writing = cleaned
            for source in group:
                modified_ms = source.segment.log_file.modified_ms()
                each = ChunkFilter(
                    self._map,
                    now_ms=job.now_ms,
                    delete_retention_ms=job.config.delete_retention_ms,
                    max_decompressed_bytes=job.config.max_decompressed_bytes,
                    keep_old_tombstones=modified_ms > horizon_ms,
                )
                is_last = source is group[-1]
                for chunk in self._chunks(source):
                    yield self._filter(chunk, each, verdicts, cleaned, source, is_last)
                    cleaned.add_aborted(transactions.pop_retained())
                self._count(each)
            modified_ms = group[-1].segment.log_file.modified_ms()
            finishing = cleaned.finish(job.checks(), modified_ms)
            segment = yield from _as_steps(finishing)
            self._writing = None
            yield Ready(segment, group)

    def _filter(
        self,
        chunk: SegmentChunk,
        chunk_filter: ChunkFilter,
        verdicts: Verdicts,
        cleaned: CleanedSegment,
        source: SourceSegment,
        is_last_source: bool,
    ) -> StepDone:
        found = verdicts.verdicts(chunk.data, chunk.table)
        if is_last_source and chunk.end_position == source.size_bytes:
            # The new segment must end where the old ones did. From this end offset, start-up after
            # a crash knows which segments the new one replaces, and followers and coordinators know
            # the next offset. So the header of the last batch stays even if no record of it stays.
            found[-1] |= RETAIN_EMPTY
        before = cleaned.size_bytes
        table = np.ascontiguousarray(chunk.table).reshape(-1)
        cleaned.write(chunk_filter.filter_chunk(chunk.data, table, len(chunk.table), found))
        return StepDone(chunk.size_bytes, cleaned.size_bytes - before)

    def _groups(self, sources: Sequence[SourceSegment]) -> list[Sequence[SourceSegment]]:
        config = self._job.config
        interval_bytes = max(config.index_interval_bytes, 1)
        facts = []
        for each in sources:
            rows = each.size_bytes // interval_bytes + 1
            facts.append(
                GroupedSegment(
                    each.segment.base_offset,
                    each.end_offset,
                    each.size_bytes,
                    rows * OFFSET_INDEX_ENTRY.size,
                    rows * TIME_INDEX_ENTRY.size,
                )
            )
        sizes = group_sizes(
            facts, max_bytes=config.segment_bytes, max_index_bytes=config.segment_index_bytes
        )
        groups = []
        start = 0
        for size in sizes:
            groups.append(sources[start : start + size])
            start += size
        return groups

    def _old_tombstones_horizon_ms(self) -> int:
        """Return a time: v0 and v1 tombstones in segments last modified at or before it are
        removed.

        Formats v0 and v1 cannot store a delete horizon. Their tombstones are removed once their
        segment is older, by delete.retention.ms, than the newest segment that was clean before this
        round.
        """
        job = self._job
        clean = [
            each for each in job.sources if each.segment.base_offset < job.extent.first_dirty_offset
        ]
        if not clean:
            return 0
        return clean[-1].segment.log_file.modified_ms() - job.config.delete_retention_ms

    def _chunks(self, source: SourceSegment) -> Iterator[SegmentChunk]:
        file = source.segment.log_file
        return chunks_of(file, source.size_bytes, file.path)

    def _count(self, chunk_filter: ChunkFilter) -> None:
        tally = self.tally
        tally.bytes_read += chunk_filter.bytes_read
        tally.bytes_kept += chunk_filter.bytes_kept
        tally.records_read += chunk_filter.records_read
        tally.records_kept += chunk_filter.records_kept


def _as_steps(finishing: Generator[int, None, Segment]) -> Generator[Step, None, Segment]:
    """Run ``finishing``, which reads and checks a cleaned segment that was just written; yield a
    step for each part that it has checked, and return the segment.

    The part is read from the page cache, so the step counts no bytes for the I/O limit.
    """
    while True:
        try:
            next(finishing)
        except StopIteration as over:
            segment: Segment = over.value
            return segment
        yield StepDone(0)
