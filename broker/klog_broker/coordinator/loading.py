"""Loads a shard, one partition of a state topic: a helper thread reads and checks the partition's
log, the event loop applies the records.

The helper thread reads some batches, checks their CRCs and decompresses them, in calls that release
the GIL. The loop applies the records in slices, so that it serves other requests in between. Until
the kernels are loaded, the loop checks and decompresses the batches itself, one at a time, because
Python code in a helper thread would starve the loop. For __consumer_offsets, the helper thread
also decodes most committed offsets (BulkLoading).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Protocol

from klog_broker.coordinator.errors import is_out_of_descriptors
from klog_broker.coordinator.kernels import PlainReads, records_kernels_loaded
from klog_broker.coordinator.state_log import StateLog
from klog_broker.log.errors import ColdRead
from klog_broker.runtime.disk.files import ReadRegion
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import Slices, Steps
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import Offset
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, is_cut_off
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.record import Record
from pyspark_klog.records.record_section import read_records

LOAD_READ_BYTES = 256 * 1024
"""The most bytes of a shard's log that one read covers, unless its first batch is larger."""

MOST_INFLATED_BYTES = 16 * 1024 * 1024
"""Once the batches of a read have decompressed to this size, the next compressed batch and all
batches after it are left to the next read. Without the limit, a read of many small batches could
decompress to a huge size, because a few hundred bytes may decompress to the largest allowed
batch."""

# Pause before repeating a read of a shard's log that failed because no file descriptor was free.
_NO_DESCRIPTOR_PAUSE_MS = 1_000
# How many records one step applies (the event loop can serve requests only between two steps), and
# what one record costs, in elements (the unit of cost in runtime/event_loop/slices.py, 5 us).
_RECORDS_A_STEP = 50
_ELEMENTS_A_RECORD = 2


class CheckedBytes(NamedTuple):
    """The bytes that were read from a log, with the check's results.

    ``data`` ends before the first compressed batch that follows MOST_INFLATED_BYTES of decompressed
    records, if there is such a batch. The batches before ``checked_bytes`` are whole and have the
    right CRC; the event loop checks the CRC of the batches after them. ``inflated`` has the
    decompressed record sections of compressed batches, by the batch's position. ``table`` has one
    row per batch (kernels/scan.py) and is valid until the next check; None without kernels.
    """

    data: bytes
    checked_bytes: int
    inflated: dict[int, bytes | bytearray]
    table: Any | None = None


class BatchWalk(Protocol):
    """Checks the CRCs of the batches in a log's bytes, and decompresses them, in a helper
    thread."""

    def check(self, data: bytes) -> CheckedBytes: ...


class KernelWalk:
    """Checks the CRCs of batches with the compiled kernels, and decompresses the batches. An
    instance serves one thread at a time."""

    def __init__(self) -> None:
        import numpy as np

        from pyspark_klog.records.kernels import scan

        self._np = np
        self._scan = scan
        rows = LOAD_READ_BYTES // at.BATCH_HEADER_BYTES + 1
        self._table = np.zeros(rows * scan.TABLE_COLUMNS, dtype=np.int64)
        self._state = np.zeros(scan.STATE_FIELDS, dtype=np.int64)

    def check(self, data: bytes) -> CheckedBytes:
        scan, state = self._scan, self._state
        buffer = self._np.frombuffer(data, dtype=self._np.uint8)
        buffer.flags.writeable = False
        scan.scan_batches(buffer, 0, len(data), 1, len(data), self._table, state)
        inflated: dict[int, bytes | bytearray] = {}
        rows = int(state[scan.STATE_BATCHES])
        table = self._table[: rows * scan.TABLE_COLUMNS].reshape(rows, scan.TABLE_COLUMNS)
        if state[scan.STATE_ATTRIBUTES] & at.CODEC_MASK:
            is_compressed = (table[:, scan.ATTRIBUTES] & at.CODEC_MASK) != 0
            # A batch without records has nothing to decompress, whatever its codec.
            compressed = self._np.flatnonzero(is_compressed & (table[:, scan.RECORD_COUNT] > 0))
            inflated_bytes = 0
            for row in compressed.tolist():
                position = int(table[row, scan.POSITION])
                if inflated_bytes >= MOST_INFLATED_BYTES:
                    return CheckedBytes(data[:position], position, inflated, table[:row])
                section = inflated[position] = BatchView(data, position).records_section()
                inflated_bytes += len(section)
        return CheckedBytes(data, int(state[scan.STATE_POSITION]), inflated, table)


class BatchRun(NamedTuple):
    """Adjacent batches whose records were decoded together.

    ``end`` is the position after the batches in the bytes that were read, ``next_offset`` the
    offset after them. ``rows``, ``first_pair`` and ``pairs_end`` are for BulkLoading only, the
    object that has decoded the batches and can apply them at once.
    """

    end: int
    next_offset: Offset
    rows: Any
    first_pair: int
    pairs_end: int


class BulkLoading(Protocol):
    """Decodes and applies many batches at once, to the same effect as applying each record.

    The implementation chooses the batches; none of them may be part of a transaction.
    """

    def read(self, checked: CheckedBytes, from_offset: Offset) -> Mapping[int, BatchRun]:
        """Decode those of the checked batches that can be decoded together, perhaps none; the event
        loop applies the other batches one by one. Called in a helper thread.

        Returns the runs (adjacent batches that were decoded together) by the byte position of
        their first batch in the bytes that were read. No run has a record below ``from_offset``, or
        below the end of an earlier batch, because such records are applied already.
        """

    def apply(self, run: BatchRun) -> Steps:
        """Apply the records of a run (batches that were decoded together), which are below the high
        watermark. Called in the event loop's thread."""


Replay = Callable[[BatchView, Iterable[Record], Offset], int]
"""Applies those records of a batch that are at or after an offset; returns the number of records in
the iterable, which includes the skipped ones (Shard.replay)."""


class Loader:
    """Replays a log from its start to the log end offset at the time when the loader was made.

    ``new_walk`` makes the BatchWalk that checks batches in a helper thread. While ``new_walk``
    returns None, the loop checks the batches, until the loaders of the state topic together have
    read enough to load the kernels (``plain_reads``). Batches that ``bulk`` has decoded together
    are applied as a whole if ``begin_run`` (Shard.begin_run) says that the high watermark has
    passed them, or else record by record. ``on_loaded`` is called once: with None when everything
    is applied, or with the error that prevents loading (a damaged log, a failed disk).
    ``on_loaded`` is never called if the leadership ends (StateLog.ended) or ``cancel`` is called
    first.
    """

    def __init__(
        self,
        log: StateLog,
        replay: Replay,
        on_loaded: Callable[[Exception | None], None],
        *,
        new_walk: Callable[[], BatchWalk | None],
        plain_reads: PlainReads,
        bulk: BulkLoading | None,
        begin_run: Callable[[Offset], bool],
        loop: Loop,
        slices: Slices,
        helpers: Helpers,
    ) -> None:
        self._log = log
        self._replay = replay
        self._on_loaded = on_loaded
        self._new_walk = new_walk
        self._walk: BatchWalk | None = None
        self._plain_reads = plain_reads
        self._bulk = bulk
        self._begin_run = begin_run
        self._loop = loop
        self._slices = slices
        self._helpers = helpers
        self._position = log.log_start_offset
        self._end_offset = log.log_end_offset
        self._is_cancelled = False

    def start_loading(self) -> None:
        """Start loading. An empty log is loaded when this method returns."""
        self._load_next_region()

    def continue_with_log(self, log: StateLog) -> bool:
        """Continue with ``log``: this broker leads the partition again, in a newer epoch.

        Returns True if ``log`` still has the end offset up to which this loader loads; the
        remaining reads then use ``log``. Returns False if loading must start again.
        """
        if log.log_end_offset != self._end_offset:
            return False
        self._log = log
        return True

    def cancel(self) -> None:
        """Stop loading: ignore what a helper thread still reads, and apply no more records."""
        self._is_cancelled = True

    def _is_wanted(self) -> bool:
        return not self._is_cancelled and self._log.ended is None

    def _load_next_region(self) -> None:
        if not self._is_wanted():
            return
        try:
            region = self._next_region()
        except ColdRead as cold:
            self._helpers.submit(cold.warm, self._on_pages_warmed)
        except (KlogError, OSError) as error:
            self._on_failure(error)
        else:
            if region is None:
                self._on_loaded(None)
            else:
                self._read(region)

    def _next_region(self, *, may_block: bool = False) -> ReadRegion | None:
        """Return where the next batches are in the log's files.

        Returns None when nothing is left to load: the end offset is reached, the log was truncated
        to a lower end, or compaction has removed the remaining records.
        """
        log = self._log
        # The start of the log may have been deleted since the last read.
        self._position = max(self._position, log.log_start_offset)
        end_offset = min(self._end_offset, log.log_end_offset)
        if self._position >= end_offset:
            return None
        return log.read(
            self._position,
            LOAD_READ_BYTES,
            end_offset=end_offset,
            min_one_batch=True,
            may_block=may_block,
        ).region

    def _on_pages_warmed(self, _: object, error: BaseException | None) -> None:
        """Read the log after a helper thread has brought its next pages into the page cache.

        Some pages may have left the cache again, so this read may block.
        """
        if not self._is_wanted():
            return
        try:
            if isinstance(error, Exception):
                raise error
            region = self._next_region(may_block=True)
        except (KlogError, OSError) as failure:
            self._on_failure(failure)
        else:
            if region is None:
                self._on_loaded(None)
            else:
                self._read(region)

    def _read(self, region: ReadRegion) -> None:
        walk = self._walk = self._walk or self._new_walk()
        is_much = walk is None and self._plain_reads.is_kernel_worthwhile(region.size)
        bulk, from_offset = self._bulk, self._position

        def read() -> tuple[CheckedBytes, Mapping[int, BatchRun]]:
            data = region.file.pread(region.size, region.position)
            checks = walk
            if is_much and records_kernels_loaded():
                # A helper thread may set self._walk: until this read is over, no other method uses
                # the field.
                checks = self._walk = KernelWalk()
            if checks is None:
                return CheckedBytes(data, 0, {}), {}
            checked = checks.check(data)
            return checked, {} if bulk is None else bulk.read(checked, from_offset)

        self._helpers.submit(read, self._on_read)

    def _on_read(
        self,
        found: tuple[CheckedBytes, Mapping[int, BatchRun]] | None,
        error: BaseException | None,
    ) -> None:
        if not self._is_wanted():
            return
        if found is not None:
            self._slices.run(self._apply(*found), self._is_wanted)
        elif isinstance(error, Exception):
            self._on_failure(error)

    def _apply(self, checked: CheckedBytes, runs: Mapping[int, BatchRun]) -> Steps:
        before = self._position
        try:
            data, position = checked.data, 0
            while not is_cut_off(data, position, len(data)):
                run = runs.get(position)
                if run is not None and self._bulk is not None and self._begin_run(run.next_offset):
                    yield from self._bulk.apply(run)
                    self._position = max(run.next_offset, self._position)
                    position = run.end
                else:
                    batch = BatchView(data, position, len(data))
                    yield from self._apply_batch(batch, checked)
                    position += batch.size_bytes
            if self._position == before and self._position < self._log.log_end_offset:
                raise CorruptRecords(f"no whole batch at offset {self._position}")
        except Exception as error:
            self._on_failure(error)
        else:
            self._load_next_region()

    def _apply_batch(self, batch: BatchView, checked: CheckedBytes) -> Steps:
        if batch.position + batch.size_bytes > checked.checked_bytes:
            batch.check_crc()
        records = _records(batch, checked.inflated.get(batch.position))
        while count := self._replay(batch, islice(records, _RECORDS_A_STEP), self._position):
            yield count * _ELEMENTS_A_RECORD
        self._position = Offset(max(batch.next_offset, self._position))
        yield 1

    def _on_failure(self, error: Exception) -> None:
        if not self._is_wanted():
            return
        if is_out_of_descriptors(error):
            self._loop.call_later(_NO_DESCRIPTOR_PAUSE_MS, self._load_next_region)
        else:
            self._on_loaded(error)


def _records(batch: BatchView, inflated: bytes | bytearray | None) -> Iterator[Record]:
    if inflated is None:
        return iter(batch.records())
    return read_records(
        inflated,
        batch.record_count,
        base_offset=batch.base_offset,
        base_timestamp_ms=batch.base_timestamp_ms,
        timestamp_type=batch.timestamp_type,
        log_append_time_ms=batch.max_timestamp_ms,
    )
