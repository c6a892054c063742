"""Every reader of batches takes what a log cleaner leaves: gaps, emptied batches, horizons."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.coordinator.loading import KernelWalk
from klog_broker.inspection.lines import Finding
from klog_broker.inspection.partition_checks import DirectoryFacts, PartitionCheck
from klog_broker.inspection.report import Report
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import Files, RealFiles
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.arrow_decode import ArrowDecoder
from pyspark_klog.spark.files.segment_range import SegmentRange
from pyspark_klog.spark.planning.losses import Loss
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.planning.samples import parse_sample
from pyspark_klog.storage.partition_files import PartitionFiles
from pyspark_klog.storage.segment_walk import last_stable_offset, offset_at_time, whole_end
from tests.support.compaction.cleaned_batches import FIRST_MS, CleanedBatch, cleaned_logs
from tests.support.log.harness import PARTITION, SMALL, open_log
from tests.support.records.decoding import decode_to_arrow
from tests.support.records.record_sets import iterate
from tests.support.runtime.memory_files import MemoryFiles

Rows = list[tuple[int, int]]
LOGS = cleaned_logs()
CONFIG = replace(SMALL, index_interval_bytes=100)


def rows_of(batches: Sequence[CleanedBatch]) -> Rows:
    return [row for each in batches for row in each.rows]


def write(log: PartitionLog, batches: Sequence[CleanedBatch], rolls: Sequence[bool]) -> None:
    """Append the leader's batches; ``rolls`` says after which of them a segment ends."""
    for number, each in enumerate(batches):
        data = memoryview(bytearray(each.build()))
        log.append_as_follower(data, leader_epoch=LeaderEpoch(0), now_ms=5_000)
        if rolls[number % len(rolls)]:
            log.roll(10_000)


ROLLS = st.lists(st.booleans(), min_size=1, max_size=5)


# --- decoding ------------------------------------------------------------------------------------
@settings(deadline=None)
@given(LOGS, st.floats(0, 1.1), st.floats(0, 1.1), st.integers(1, 4))
def test_arrow_has_what_is_left(
    batches: list[CleanedBatch], first: float, last: float, max_rows: int
) -> None:
    end = batches[-1].end_offset
    start_offset, end_offset = int(first * end), int(last * end)
    found = decode_to_arrow(
        b"".join(each.build() for each in batches),
        topic="t",
        partition=0,
        start_offset=start_offset,
        end_offset=end_offset,
        max_rows=max_rows,
    )
    rows = [
        (row["offset"], round(row["timestamp"].timestamp() * 1000))
        for batch in found.batches
        for row in batch.to_pylist()
    ]
    assert rows == [row for row in rows_of(batches) if start_offset <= row[0] < end_offset]
    assert found.next_offset >= min(end, end_offset)


@settings(deadline=None)
@given(LOGS)
def test_a_sample_has_the_first_time_and_counts_offsets(batches: list[CleanedBatch]) -> None:
    sample = parse_sample(memoryview(b"".join(each.build() for each in batches)), 0)
    assert sample is not None
    rows = rows_of(batches)
    assert sample.timestamp_ms == (rows[0][1] if rows else None)
    assert sample.offsets == batches[-1].end_offset - batches[0].base_offset


@given(LOGS)
def test_a_coordinator_checks_all_of_it(batches: list[CleanedBatch]) -> None:
    data = b"".join(each.build() for each in batches)
    checked = KernelWalk().check(data)
    assert checked.checked_bytes == len(data)


# --- the broker's log ----------------------------------------------------------------------------
@settings(deadline=None)
@given(LOGS, ROLLS, st.booleans())
def test_a_log_serves_every_offset_and_time(
    batches: list[CleanedBatch], rolls: list[bool], restarts: bool
) -> None:
    files = MemoryFiles()
    log = open_log(files, CONFIG)
    write(log, batches, rolls)
    if restarts:
        log = open_log(files.killed(), CONFIG)
    rows, end = rows_of(batches), batches[-1].end_offset
    assert log.log_end_offset == end
    for offset in {0, *(e.base_offset for e in batches), *(e.end_offset for e in batches)}:
        assert served_from(log, offset) == [row for row in rows if row[0] >= offset]
    for time_ms in range(FIRST_MS - 1, FIRST_MS + 32):
        found = log.offset_for_timestamp(time_ms)
        expected = next((row for row in rows if row[1] >= time_ms), None)
        assert (found and (found.offset, found.timestamp_ms)) == expected
    latest = log.offset_for_timestamp(-3)
    expected = max(rows, key=lambda row: (row[1], -row[0]), default=None)
    assert (latest and (latest.offset, latest.timestamp_ms)) == expected


def served_from(log: PartitionLog, offset: int) -> Rows:
    """Read on from the offset as a consumer does: from each fetch's last batch to the next one."""
    rows: Rows = []
    while offset < log.log_end_offset:
        region = log.read(offset, 1, min_one_batch=True).region
        assert region is not None
        data = region.file.pread(region.size, region.position)
        rows += [(r.offset, r.timestamp_ms) for r in iterate(data) if r.offset >= offset]
        delta = int.from_bytes(data[23:27], "big")
        after = int.from_bytes(data[:8], "big") + delta + 1
        assert after > offset
        offset = after
    return rows


# --- segment files -------------------------------------------------------------------------------
@settings(deadline=None, max_examples=40)
@given(LOGS, ROLLS, st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_segment_files_and_verify(
    batches: list[CleanedBatch], rolls: list[bool], cuts: list[float]
) -> None:
    rows, end = rows_of(batches), batches[-1].end_offset
    with TemporaryDirectory() as folder:
        files: Files = RealFiles()
        log = open_log(files, CONFIG, directory=Path(folder) / "data")
        write(log, batches, rolls)
        found: Rows = []
        edges = sorted({0, end, *(int(cut * end) for cut in cuts)})
        for start, stop in pairwise(edges):
            found += segment_rows(log.path.parent, start, stop)
        assert found == rows
        partition = PartitionFiles(log.path)
        listing = partition.listing()
        assert whole_end(partition, listing, None) == end
        assert last_stable_offset(partition, listing, 0, end) == end
        for time_ms in range(FIRST_MS - 1, FIRST_MS + 32, 3):
            expected = next((row[0] for row in rows if row[1] >= time_ms), None)
            assert offset_at_time(partition, listing, time_ms, 0, end) == expected
        said: list[Finding] = []
        report = Report(said.append)
        PartitionCheck(log.path, DirectoryFacts(is_running=True), report).run()
        assert report.is_sound, said


def segment_rows(data: Path, start: int, stop: int) -> Rows:
    def on_lost(loss: Loss) -> None:
        raise AssertionError(str(loss))

    offsets = OffsetRange(*PARTITION, start, stop)
    decoder = ArrowDecoder(topic="t", partition=0, start_offset=start, end_offset=stop)
    reading = SegmentRange(data, offsets, read_committed=False, on_lost=on_lost, chunk_bytes=200)
    batches = [*reading.batches(decoder)]
    rest = decoder.flush()
    return [
        (row["offset"], round(row["timestamp"].timestamp() * 1000))
        for batch in [*batches, *([rest] if rest else [])]
        for row in batch.to_pylist()
    ]
