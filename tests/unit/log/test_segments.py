"""Segments: their rolls, their indexes' rows, preallocated and trimmed files."""

from dataclasses import replace

import pytest

from klog_broker.log.errors import RecordBatchTooLarge
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.rolling import should_roll
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.storage.names import CLEANED_SUFFIX, Suffix
from tests.support.log.harness import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.runtime.memory_files import MemoryFiles

BATCH_BYTES = len(batch())


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- rolling -------------------------------------------------------------------------------------
def test_a_segment_is_filled_to_the_byte_and_not_past_it() -> None:
    log = open_log(MemoryFiles(), replace(SMALL, segment_bytes=3 * BATCH_BYTES))
    for _ in range(7):
        append(log)
    assert bases(log) == [0, 3, 6]
    assert [segment.size_bytes // BATCH_BYTES for segment in log.segments] == [3, 3, 1]
    tight = open_log(MemoryFiles(), replace(SMALL, segment_bytes=3 * BATCH_BYTES - 1))
    for _ in range(4):
        append(tight)
    assert bases(tight) == [0, 2]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(MemoryFiles(), replace(SMALL, segment_bytes=BATCH_BYTES - 1))
    with pytest.raises(RecordBatchTooLarge, match=f"segment.bytes is {BATCH_BYTES - 1}"):
        append(log)
    assert log.log_end_offset == 0


def test_age_counts_in_timestamps_from_the_first_batch() -> None:
    log = open_log(MemoryFiles(), replace(SMALL, segment_ms=100))
    for timestamp_ms in (1_000, 1_100, 900, 1_101, 1_150, 1_202):
        append(log, batch(timestamp_ms=timestamp_ms))
    assert bases(log) == [0, 3, 5]


def test_age_counts_by_the_clock_where_the_first_batch_has_no_timestamp() -> None:
    log = open_log(MemoryFiles(), replace(SMALL, segment_ms=100))
    created_ms = log.segments[0].created_ms
    append(log, batch(timestamp_ms=-1), now_ms=created_ms)
    append(log, batch(timestamp_ms=5), now_ms=created_ms + 100)
    append(log, batch(timestamp_ms=5), now_ms=created_ms + 101)
    assert bases(log) == [0, 2]


def test_age_survives_a_restart() -> None:
    files = MemoryFiles()
    config = replace(SMALL, segment_ms=100)
    manager = open_manager(files, config=config)
    append(manager.create(PARTITION, TOPIC_ID, config), batch(timestamp_ms=1_000))
    manager.close()
    log = open_log(files.killed(), config)
    append(log, batch(timestamp_ms=1_100))
    append(log, batch(timestamp_ms=1_101))
    assert bases(log) == [0, 2]


def test_jitter_makes_segments_roll_early_and_not_all_at_once() -> None:
    sizes = set()
    for seed in range(20):
        manager = open_manager(MemoryFiles(), chance=Chance(seed))
        config = replace(SMALL, segment_ms=1_000, segment_jitter_ms=500)
        log = manager.create(PARTITION, TOPIC_ID, config)
        while len(log.segments) == 1:
            append(log, batch(timestamp_ms=1_000 + 10 * log.log_end_offset))
        sizes.add(log.log_end_offset)
    assert len(sizes) > 5
    assert min(sizes) >= 50
    assert max(sizes) <= 102


@pytest.mark.parametrize(("index_bytes", "rows"), [(16, 2), (64, 8)])
def test_a_full_offset_index_rolls(index_bytes: int, rows: int) -> None:
    # A time index of 16 bytes would have room for its final entry only: timestamps stay equal.
    config = replace(SMALL, segment_index_bytes=index_bytes, index_interval_bytes=0)
    log = open_log(MemoryFiles(), config)
    for _ in range(30):
        append(log, batch(timestamp_ms=-1))
    offset_rows = {segment.offset_index.entries for segment in log.segments[:-1]}
    time_room = index_bytes // 12 - 1
    assert offset_rows == ({rows} if time_room > 0 else {0})


def test_a_full_time_index_rolls_and_reserves_its_final_entry() -> None:
    config = replace(SMALL, segment_index_bytes=48, index_interval_bytes=0)
    log = open_log(MemoryFiles(), config)
    for number in range(30):
        append(log, batch(timestamp_ms=1_000 + number))
    for segment in log.segments[:-1]:
        # Each index keeps one of four rows free; the last batch's row serves as the final one.
        assert segment.time_index.entries == 3
        assert segment.time_index.last.timestamp_ms == segment.max_timestamp.timestamp_ms


def test_an_index_too_small_for_a_row_rolls_at_every_batch() -> None:
    log = open_log(MemoryFiles(), replace(SMALL, segment_index_bytes=4))
    for _ in range(4):
        append(log)
    assert bases(log) == [0, 1, 2, 3]
    assert len(read_all(log)) == 4


def test_an_offset_that_does_not_fit_the_index_rolls() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log)
    segment = log.segments[-1]
    asked = {"size_bytes": 1, "max_timestamp_ms": 0, "now_ms": 0, "jitter_ms": 0}
    assert not should_roll(segment, SMALL, last_offset=2**31 - 1, **asked)
    assert should_roll(segment, SMALL, last_offset=2**31, **asked)


# --- indexes -------------------------------------------------------------------------------------
def test_the_offset_index_holds_last_offsets_and_no_row_for_the_first_batch() -> None:
    config = replace(SMALL, index_interval_bytes=2 * BATCH_BYTES - 1)
    log = open_log(MemoryFiles(), config)
    for _ in range(9):
        append(log, batch(1))
    # More than the interval lies before the third batch, then before every second one.
    rows = [(2, 2), (4, 4), (6, 6), (8, 8)]
    assert [(o, p // BATCH_BYTES) for o, p in log.segments[0].offset_index.view()] == rows
    exact = open_log(MemoryFiles(), replace(SMALL, index_interval_bytes=2 * BATCH_BYTES))
    for _ in range(9):
        append(exact, batch(1))
    found = [(o, p // BATCH_BYTES) for o, p in exact.segments[0].offset_index.view()]
    assert found == [(3, 3), (6, 6)]
    several = open_log(MemoryFiles(), replace(SMALL, index_interval_bytes=0))
    for _ in range(3):
        append(several, batch(4))
    assert [row.offset for row in several.segments[0].offset_index.view()] == [7, 11]


def test_the_time_index_holds_the_largest_timestamp_so_far_and_its_batchs_last_offset() -> None:
    config = replace(SMALL, index_interval_bytes=0, segment_bytes=100_000)
    manager = open_manager(files := MemoryFiles(), config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for timestamp_ms in (500, 300, 300, 700, 100, 900):
        builder = BatchBuilder(0)
        builder.append(b"k", b"v", timestamp_ms)
        builder.append(b"k", b"v", timestamp_ms - 50)
        append(log, builder.build())
    rows = list(log.segments[0].time_index.view())
    assert rows == [(500, 1), (700, 7), (900, 11)]
    append(log, batch(timestamp_ms=950))
    append(log, batch(timestamp_ms=10))
    manager.close()
    data = files.read_bytes(log.path / "00000000000000000000.timeindex")
    # 950 got its row with its own batch; there is no second final one.
    assert len(data) == 4 * 12


def test_a_closed_segment_ends_with_its_largest_timestamp() -> None:
    manager = open_manager(files := MemoryFiles())
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append(log, batch(3, timestamp_ms=400))
    manager.close()
    segment = Segment.open(files.killed(), log.path, 0)
    assert list(segment.time_index.view()) == [(402, 2)]
    assert segment.max_timestamp == (402, 2)


def test_active_indexes_are_preallocated_and_trimmed_when_done() -> None:
    manager = open_manager(files := MemoryFiles())
    log = manager.create(PARTITION, TOPIC_ID, replace(SMALL, segment_bytes=2_000))

    def sizes(base: int) -> tuple[int, int]:
        name = f"{base:020d}"
        return (
            files.open(log.path / f"{name}.index").size(),
            files.open(log.path / f"{name}.timeindex").size(),
        )

    for _ in range(20):
        append(log)
    first, last = log.segments[0], log.segments[-1]
    assert sizes(last.base_offset) == (4_096, 4_092)
    assert sizes(0) == (8 * first.offset_index.entries, 12 * first.time_index.entries)
    assert first.offset_index.entries == 3
    rows = last.offset_index.entries
    manager.close()
    assert sizes(last.base_offset)[0] == 8 * rows


def test_preallocated_log_files_are_trimmed_too() -> None:
    config = replace(SMALL, preallocate=True, segment_bytes=1_000)
    manager = open_manager(files := MemoryFiles(), config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for _ in range(8):
        append(log)
    first, last = log.segments[0], log.segments[-1]
    assert first.log_file.size() == first.size_bytes < 1_000
    assert last.log_file.size() == 1_000
    assert len(read_all(log)) == 8
    manager.close()
    assert files.open(last.path(Suffix.LOG)).size() == last.size_bytes
    log = open_log(files.killed(), config)
    append(log)
    assert [record.offset for record in read_all(log)] == list(range(9))


def test_index_space_is_allocated_before_rows_are_written() -> None:
    # A store into a hole of a mapped file on a full disk would be the end of the process.
    files = MemoryFiles()
    log = open_log(files, replace(SMALL, index_interval_bytes=0, segment_bytes=100_000))
    append(log)
    allocated: list[tuple[int, int]] = []
    segment = log.segments[0]
    original = segment.offset_index.file.allocate

    def allocate(position: int, size: int) -> None:
        allocated.append((position, size))
        original(position, size)

    segment.offset_index.file.allocate = allocate  # type: ignore[method-assign]
    for _ in range(100):
        append(log, batch(timestamp_ms=-1))
    rows = segment.offset_index.entries
    assert rows == 100
    assert all(size <= 4_096 for _, size in allocated)


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.segment_ms) == (2**30, 604_800_000)
    assert (config.segment_index_bytes, config.index_interval_bytes) == (10_485_760, 4_096)
    assert (config.max_message_bytes, config.retention_ms) == (1_048_588, 604_800_000)


def test_a_segment_under_another_name_is_removed_at_a_start() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log)
    log.flush()
    cleaned = Segment.create(files, log.path, 0, SMALL, 0, suffix=CLEANED_SUFFIX)
    cleaned.write(batch())
    cleaned.deactivate()
    names = [name for name in files.list_dir(log.path) if name.endswith(CLEANED_SUFFIX)]
    stem = "00000000000000000000"
    assert names == [f"{stem}{kind}.cleaned" for kind in (".index", ".log", ".timeindex")]
    files.sync_dir(log.path)
    again = open_log(files.killed())
    assert len(read_all(again)) == 1
    assert again.segments[0].log_file.path.name == f"{stem}.log"
