"""Deleting: which segments may go, readers unharmed, delayed removal, DeleteRecords."""

from dataclasses import replace
from pathlib import Path

import pytest

from klog_broker.log.errors import OffsetOutOfRange
from klog_broker.log.log_config import LogConfig
from klog_broker.log.maintenance.retention import (
    RetentionLogFacts,
    RetentionSegmentFacts,
    by_log_start,
    by_size,
    by_time,
    deletable_segments,
    why_deletable,
)
from klog_broker.log.manager.housekeeping import LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import Files, RealFiles
from pyspark_klog.ids import TopicPartition
from tests.support.log.harness import (
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
    truncate,
)
from tests.support.records.record_sets import iterate
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

NOW_MS = 10_000
BYTES = len(batch())


def facts(**given: object) -> RetentionLogFacts:
    """Five segments of 100 bytes and 10 offsets; timestamps 1000 to 5000; the last one active."""
    segments = [
        RetentionSegmentFacts(10 * n, 10 * n + 10, 100, largest_timestamp_ms=1_000 * (n + 1))
        for n in range(5)
    ]
    values: dict[str, object] = {
        "segments": segments,
        "log_start_offset": 0,
        "high_watermark": 50,
        "now_ms": NOW_MS,
        "config": LogConfig(retention_ms=-1),
    }
    return RetentionLogFacts(**{**values, **given})  # type: ignore[arg-type]


# --- the policies --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("retention_ms", "count"), [(-1, 0), (9_000, 0), (8_999, 1), (7_000, 2), (5_000, 4), (4_999, 5)]
)
def test_by_time(retention_ms: int, count: int) -> None:
    assert by_time(facts(config=LogConfig(retention_ms=retention_ms))) == count


def test_by_time_stops_at_the_first_that_is_too_young() -> None:
    segments = [RetentionSegmentFacts(0, 10, 100, 9_999), RetentionSegmentFacts(10, 20, 100, 1)]
    assert by_time(facts(segments=segments, config=LogConfig(retention_ms=100))) == 0


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (500, 0), (401, 0), (400, 1), (250, 2), (0, 5)]
)
def test_by_size(retention_bytes: int, count: int) -> None:
    assert by_size(facts(config=LogConfig(retention_bytes=retention_bytes))) == count


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (39, 3), (50, 4)])
def test_by_log_start_never_takes_the_last_segment(start: int, count: int) -> None:
    assert by_log_start(facts(log_start_offset=start)) == count


def test_what_is_not_committed_stays() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0)
    assert deletable_segments(facts(config=config, high_watermark=29)) == 2
    assert deletable_segments(facts(config=config)) == 5


def test_an_empty_last_segment_stays() -> None:
    segments = [RetentionSegmentFacts(0, 10, 100, 1), RetentionSegmentFacts(10, 10, 0, 1)]
    log = facts(segments=segments, config=LogConfig(retention_ms=0, retention_bytes=0))
    assert deletable_segments(log) == 1


def test_time_and_size_never_touch_a_compacted_log() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, delete=False, compact=True)
    assert deletable_segments(facts(config=config)) == 0
    assert deletable_segments(facts(config=config, log_start_offset=25)) == 2
    assert deletable_segments(facts(config=replace(config, delete=True))) == 5


def test_the_log_line_of_a_compacted_log_names_neither_time_nor_size() -> None:
    config = LogConfig(retention_ms=1, delete=False, compact=True)
    old = facts(config=config, log_start_offset=30)
    assert why_deletable(old, 3) == "log_start_offset"
    deleting = facts(config=replace(config, delete=True), log_start_offset=30)
    assert why_deletable(deleting, 3) == "retention.ms,log_start_offset"


# --- the log -------------------------------------------------------------------------------------
CONFIG = replace(
    SMALL, segment_bytes=2 * BYTES, retention_ms=-1, file_delete_delay_ms=500, flush_messages=10**9
)


def filled(files: Files, config: LogConfig = CONFIG, path: Path = DATA) -> PartitionLog:
    log = open_log(files, config, directory=path)
    for number in range(9):
        append(log, batch(timestamp_ms=1_000 * number))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    return log


def test_retention_by_time_goes_by_the_largest_timestamp_of_a_segment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = filled(MemoryFiles(), replace(CONFIG, retention_ms=1_000, retention_bytes=9 * BYTES))
    caplog.clear()
    assert log.apply_retention(now_ms=4_500) == 2
    assert caplog.messages == [
        f"log=/data/topic-0 deleted_segments=2 deleted_bytes={4 * BYTES} by=retention.ms"
        " log_start_offset=4"
    ]
    assert log.log_start_offset == 4
    assert log.apply_retention(now_ms=4_500) == 0
    assert [record.offset for record in read_all(log)] == [4, 5, 6, 7, 8]
    assert log.offset_for_timestamp(-2) == (-1, 4, 0)


def test_a_segment_without_timestamps_goes_by_its_last_write() -> None:
    files = MemoryFiles()
    log = open_log(files, replace(CONFIG, retention_ms=1_000))
    for now_ms in (100, 200, 300):
        files.now_ms = now_ms
        append(log, batch(timestamp_ms=-1))
    assert log.apply_retention(now_ms=1_200) == 0
    assert log.apply_retention(now_ms=1_201) == 1


@pytest.mark.parametrize("ending", ["killed", "cut"])
def test_a_segment_without_timestamps_still_has_none_afterwards(ending: str) -> None:
    """The room behind the rows of an active segment's time index is no row of the year 1970."""
    files = MemoryFiles()
    config = replace(SMALL, retention_ms=1_000)
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for _ in range(10):
        append(log, batch(timestamp_ms=-1))
    log.flush()
    manager.sync_recovery_points()
    files.now_ms = 5_000
    append(log, batch(timestamp_ms=-1))
    if ending == "killed":
        found = files.killed()
        found.now_ms = 5_000
        log = open_log(found, config)
    else:
        truncate(log, 10)
    assert log.segments[0].offset_index.entries
    assert log.offset_for_timestamp(-3) is None
    assert log.apply_retention(now_ms=5_500) == 0


def test_a_first_record_of_the_time_0_keeps_its_row() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append(log, batch(timestamp_ms=0))
    for _ in range(10):
        append(log, batch(timestamp_ms=-1))
    log.flush()
    manager.sync_recovery_points()
    append(log, batch(timestamp_ms=-1))
    assert open_log(files.killed()).offset_for_timestamp(-3) == (0, 0, 0)


def test_when_all_is_too_old_the_log_goes_on_in_a_new_segment() -> None:
    log = filled(MemoryFiles(), replace(CONFIG, retention_ms=0))
    assert log.apply_retention(now_ms=10**9) == 5
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 9, 9)
    assert append(log).first_offset == 9
    assert [record.offset for record in read_all(log)] == [9]


@pytest.mark.parametrize("disk", ["memory", "real"])
def test_a_reader_goes_on_in_a_segment_that_is_deleted(disk: str, tmp_path: Path) -> None:
    files: Files = RealFiles() if disk == "real" else MemoryFiles()
    clock = ManualClock()
    directory = tmp_path if disk == "real" else DATA
    manager = open_manager(files, clock=clock, directory=directory)
    log = manager.create(PARTITION, TOPIC_ID, replace(CONFIG, retention_bytes=0))
    for number in range(9):
        append(log, batch(timestamp_ms=1_000 * number))
    region = log.read(2, 1 << 20).region
    assert region is not None
    assert log.apply_retention(clock.now_ms()) == 5
    deleted = [name for name in files.list_dir(log.path) if name.endswith(".deleted")]
    assert {name.split(".")[1] for name in deleted} == {"log", "index", "timeindex", "snapshot"}
    # Not before file.delete.delay.ms:
    clock.advance(499)
    manager.run_due()
    assert len([name for name in files.list_dir(log.path) if name in deleted]) == len(deleted)
    clock.advance(1)
    assert manager.next_deadline_ms() <= clock.monotonic_ms()
    manager.run_due()
    assert not [name for name in files.list_dir(log.path) if name.endswith(".deleted")]
    data = region.file.pread(region.size, region.position)
    assert [record.offset for record in iterate(data)] == [2, 3]


def test_what_a_stopped_broker_had_marked_is_removed_at_the_start() -> None:
    files = MemoryFiles()
    log = filled(files, replace(CONFIG, retention_bytes=0))
    log.apply_retention(0)
    files = files.killed()
    log = open_log(files, CONFIG)
    assert not [name for name in files.list_dir(log.path) if name.endswith(".deleted")]
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)


def test_the_manager_applies_retention_when_it_is_due() -> None:
    clock = ManualClock(0)
    settings = LogManagerSettings(retention_check_interval_ms=1_000)
    manager = open_manager(MemoryFiles(), clock=clock, settings=settings)
    log = manager.create(PARTITION, TOPIC_ID, replace(CONFIG, retention_ms=10_000))
    for number in range(9):
        append(log, batch(timestamp_ms=1_000 * number))
    clock.advance(999)
    manager.run_due()
    clock.advance(11_000)
    manager.run_due()
    assert log.log_start_offset == 2


def test_retention_takes_one_log_a_turn() -> None:
    files, clock = MemoryFiles(), ManualClock(0)
    manager = open_manager(files, clock=clock)
    config = replace(CONFIG, retention_ms=10_000)
    logs = [manager.create(TopicPartition("t", n), TOPIC_ID, config) for n in range(3)]
    for log in logs:
        for number in range(9):
            append(log, batch(timestamp_ms=1_000 * number))
    clock.advance(40_000)
    done = []
    for _ in logs:
        manager.run_due()
        done.append(sum(log.log_start_offset > 0 for log in logs))
        assert manager.next_deadline_ms() <= clock.monotonic_ms() or done[-1] == len(logs)
    assert done == [1, 2, 3]


# --- DeleteRecords -------------------------------------------------------------------------------
def test_delete_records_moves_the_start_within_a_segment_and_drops_whole_ones_later() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(9):
        append(log, batch(timestamp_ms=1_000 * number))
    assert log.delete_records_before(5) == 5
    assert log.delete_records_before(3) == 5
    assert len(log.segments) == 5
    assert [record.offset for record in read_all(log)] == [5, 6, 7, 8]
    assert log.apply_retention(0) == 2
    assert log.log_start_offset == 5
    manager.close()
    text = files.read_bytes(DATA / "log-start-offset-checkpoint")
    assert text == b"0\n1\ntopic 0 5\n"
    assert open_log(files.killed(), CONFIG).log_start_offset == 5


def test_delete_records_up_to_the_high_watermark() -> None:
    log = filled(MemoryFiles())
    assert log.delete_records_before(-1) == 9
    assert read_all(log) == []
    for offset in (-2, 10):
        with pytest.raises(OffsetOutOfRange, match="expected 0 to the high watermark 9"):
            log.delete_records_before(offset)


def test_a_start_past_what_was_recovered_starts_the_log_over() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for _ in range(9):
        append(log)
    log.delete_records_before(7)
    manager.close()
    files = files.killed()
    for name in files.list_dir(log.path):
        if name.endswith(".log") and int(name[:20]) > 4:
            files.remove(log.path / name)
    files.remove(DATA / ".kafka_cleanshutdown")
    log = open_log(files, CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert append(log).first_offset == 7


# --- truncation ----------------------------------------------------------------------------------
@pytest.mark.parametrize("offset", [8, 7, 5, 4, 1, 0])
def test_a_truncated_log_is_as_if_it_had_ended_there(offset: int) -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(9):
        append(log, batch(timestamp_ms=1_000 * number, producer_id=1, base_sequence=number))
    truncate(log, offset)
    assert log.log_end_offset == log.high_watermark == log.flushed_offset == offset
    assert [record.offset for record in read_all(log)] == list(range(offset))
    # The producer goes on where the log now ends, and its earlier batches are still known.
    again = batch(timestamp_ms=1, producer_id=1, base_sequence=offset)
    assert append(log, again).first_offset == offset
    if offset:
        before = batch(timestamp_ms=1, producer_id=1, base_sequence=offset - 1)
        assert append(log, before).is_duplicate
    manager.close()
    log = open_log(files.killed(), CONFIG)
    assert [record.offset for record in read_all(log)] == list(range(offset + 1))


def test_truncating_before_the_start_is_refused_and_past_the_end_nothing() -> None:
    log = filled(MemoryFiles())
    log.delete_records_before(5)
    with pytest.raises(OffsetOutOfRange):
        truncate(log, 4)
    truncate(log, 9)
    assert log.log_end_offset == 9
