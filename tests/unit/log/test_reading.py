"""Reads by offset and by timestamp, at their limits, cold and warm."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from klog_broker.log.errors import ColdRead, DamagedLog, OffsetOutOfRange
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.storage.indexes import OFFSET_INDEX_ENTRY
from pyspark_klog.storage.names import Suffix
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    append_in,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.records.record_sets import iterate
from tests.support.runtime.memory_files import MemoryFiles

COUNT = 10
BYTES = len(batch(COUNT))


@pytest.fixture
def log() -> PartitionLog:
    """Twenty batches of ten records, five batches a segment, timestamps 1000 * batch."""
    log = open_log(MemoryFiles(), replace(SMALL, segment_bytes=5 * BYTES))
    for number in range(20):
        append(log, batch(COUNT, timestamp_ms=1_000 * number))
    assert len(log.segments) == 4
    return log


def read_offsets(log: PartitionLog, offset: int, max_bytes: int, **options: object) -> list[int]:
    """The offsets of the records in the answer, also those of a batch cut off left out."""
    region = log.read(offset, max_bytes, **options).region  # type: ignore[arg-type]
    if region is None:
        return []
    data = region.file.pread(region.size, region.position)
    assert len(data) == region.size
    return [record.offset for record in iterate(data, allow_partial=True)]


# --- by offset -----------------------------------------------------------------------------------
@pytest.mark.parametrize("offset", range(200))
def test_every_offset_is_found_in_its_batch(log: PartitionLog, offset: int) -> None:
    start = offset // COUNT * COUNT
    assert read_offsets(log, offset, BYTES) == list(range(start, start + COUNT))


def test_an_answer_stays_in_one_segment_and_within_max_bytes(log: PartitionLog) -> None:
    assert read_offsets(log, 0, 1 << 30) == list(range(50))
    assert read_offsets(log, 45, 1 << 30) == list(range(40, 50))
    assert read_offsets(log, 50, 3 * BYTES) == list(range(50, 80))
    region = log.read(50, 3 * BYTES - 1).region
    assert region is not None
    assert region.size == 3 * BYTES - 1
    assert read_offsets(log, 50, 3 * BYTES - 1) == list(range(50, 70))


def test_a_batch_larger_than_max_bytes_comes_whole_if_asked(log: PartitionLog) -> None:
    region = log.read(7, 100).region
    assert region is not None
    assert region.size == 100
    assert read_offsets(log, 7, 100, min_one_batch=True) == list(range(10))
    assert log.read(7, 0).region is None
    assert read_offsets(log, 7, 0, min_one_batch=True) == list(range(10))


def test_what_lies_past_the_end_offset_is_not_seen(log: PartitionLog) -> None:
    assert read_offsets(log, 60, 1 << 20, end_offset=80) == list(range(60, 80))
    # A batch is given whole or not at all.
    assert read_offsets(log, 60, 1 << 20, end_offset=75) == list(range(60, 70))
    assert read_offsets(log, 60, 1 << 20, end_offset=65) == []
    assert read_offsets(log, 60, 1 << 20, end_offset=60) == []
    assert read_offsets(log, 60, 1 << 20, end_offset=1_000) == list(range(50 + 10, 100))


def test_outside_of_the_log(log: PartitionLog) -> None:
    assert log.read(200, 100).region is None
    for offset in (-1, 201):
        with pytest.raises(OffsetOutOfRange, match="start offset is 0, the log end offset is 200"):
            log.read(offset, 100)
    log.delete_records_before(55)
    with pytest.raises(OffsetOutOfRange, match="start offset is 55, the log end offset is 200"):
        log.read(54, 100)
    info = log.read(55, BYTES)
    assert (info.high_watermark, info.log_start_offset) == (200, 55)


def test_an_empty_log() -> None:
    log = open_log(MemoryFiles())
    assert log.read(0, 100, min_one_batch=True) == (None, 0, 0, None)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_for_timestamp(-1) == (-1, 0, -1)
    assert log.offset_for_timestamp(-2) == (-1, 0, -1)
    assert log.offset_for_timestamp(-3) is None


def test_older_formats_in_old_files_are_read_too() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    manager.close()
    files = files.killed()
    data = b""
    for magic, codec in ((0, Codec.NONE), (1, Codec.NONE), (0, Codec.GZIP), (1, Codec.GZIP)):
        builder = LegacyBuilder(magic, len(data) and 2 * data.count(b"value"), codec)
        builder.append(b"k", b"value", 10)
        builder.append(b"k", b"value", 20)
        data += builder.build()
    offsets = [record.offset for record in iterate(data)]
    files.open(log.path / "00000000000000000000.log").pwrite(data, 0)
    log = open_log(files)
    assert log.log_end_offset == offsets[-1] + 1
    for offset in offsets:
        assert offset in read_offsets(log, offset, 1 << 20)


# --- by timestamp --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("timestamp_ms", "answer"),
    [
        (0, (0, 0, 0)),
        (1, (1, 1, 0)),
        (9, (9, 9, 0)),
        (10, (1_000, 10, 0)),
        (4_003, (4_003, 43, 0)),
        (4_010, (5_000, 50, 0)),
        (19_009, (19_009, 199, 0)),
        (19_010, None),
    ],
)
def test_the_first_record_at_or_after_a_timestamp(
    log: PartitionLog, timestamp_ms: int, answer: tuple[int, int, int] | None
) -> None:
    assert log.offset_for_timestamp(timestamp_ms) == answer


@pytest.mark.parametrize("codec", list(Codec))
def test_timestamps_that_go_back_and_forth(codec: Codec) -> None:
    log = open_log(MemoryFiles())
    for timestamps in ((5, 3), (50, 40), (20, 60), (10, 60)):
        builder = BatchBuilder(0, codec)
        for timestamp_ms in timestamps:
            builder.append(b"k", b"v" * 300, timestamp_ms)
        append(log, builder.build())
    assert log.offset_for_timestamp(4) == (5, 0, 0)
    assert log.offset_for_timestamp(6) == (50, 2, 0)
    assert log.offset_for_timestamp(41) == (50, 2, 0)
    assert log.offset_for_timestamp(51) == (60, 5, 0)
    assert log.offset_for_timestamp(-3) == (60, 5, 0)


def test_the_special_timestamps(log: PartitionLog) -> None:
    append_in(log, 2, batch(timestamp_ms=3), now_ms=0)
    log.delete_records_before(13)
    assert log.offset_for_timestamp(-1) == (-1, 201, 2)
    assert log.offset_for_timestamp(-2) == (-1, 13, 0)
    assert log.offset_for_timestamp(-3) == (19_009, 199, 0)
    assert log.offset_for_timestamp(-4) == (-1, 13, 0)
    assert log.offset_for_timestamp(-5) == (-1, -1, -1)
    assert log.offset_for_timestamp(-6) == (-1, -1, -1)
    # Records before the log start are not found.
    assert log.offset_for_timestamp(0) == (1_003, 13, 0)


def test_records_that_readers_do_not_see_yet_are_not_found() -> None:
    config = replace(SMALL, flush_messages=1)
    helpers = Helpers.held()
    manager = open_manager(MemoryFiles(), config=config, helpers=helpers)
    log = manager.create(PARTITION, TOPIC_ID, config)
    append(log, batch(timestamp_ms=100))
    assert log.offset_for_timestamp(50) is None
    assert log.offset_for_timestamp(-3) is None
    assert log.offset_for_timestamp(-1) == (-1, 0, 0)
    assert log.read(0, 1 << 20).region is None
    helpers.run_all()
    assert log.offset_for_timestamp(50) == (100, 0, 0)


# --- cold pages ----------------------------------------------------------------------------------
@pytest.mark.parametrize("offset", [0, 33, 75, 199])
def test_a_cold_read_says_so_instead_of_waiting(offset: int) -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, replace(SMALL, segment_bytes=5 * BYTES))
    for number in range(20):
        append(log, batch(COUNT, timestamp_ms=1_000 * number))
    files.freeze()
    with pytest.raises(ColdRead) as cold:
        log.read(offset, BYTES, may_block=False)
    with pytest.raises(ColdRead) as cold_search:
        log.offset_for_timestamp(1_000 * (offset // COUNT), may_block=False)
    assert files.cold_waits == []
    # In a helper thread, which may wait:
    files.thaw.set()
    cold.value.warm()
    cold_search.value.warm()
    assert files.cold_waits
    del files.cold_waits[:]
    info = log.read(offset, BYTES, may_block=False)
    assert info.region is not None
    answer = log.offset_for_timestamp(1_000 * (offset // COUNT), may_block=False)
    assert answer == (1_000 * (offset // COUNT), offset // COUNT * COUNT, 0)
    assert files.cold_waits == []


def test_warming_a_deleted_segment_is_no_fault() -> None:
    files = MemoryFiles()
    config = replace(SMALL, segment_bytes=5 * BYTES, retention_bytes=0, retention_ms=-1)
    log = open_log(files, config)
    for number in range(20):
        append(log, batch(COUNT, timestamp_ms=1_000 * number))
    files.freeze()
    with pytest.raises(ColdRead) as cold:
        log.read(0, BYTES, may_block=False)
    files.thaw.set()
    log.apply_retention(0)
    cold.value.warm()
    with pytest.raises(OffsetOutOfRange):
        log.read(0, BYTES, may_block=False)


def test_on_a_real_disk_what_was_just_written_is_warm(tmp_path: Path) -> None:
    log = open_log(RealFiles(), directory=tmp_path)
    for number in range(200):
        append(log, batch(COUNT, timestamp_ms=number))
    cold = 0
    for offset in range(0, 2_000, 7):
        try:
            region = log.read(offset, BYTES, may_block=False).region
        except ColdRead:  # a system in want of memory has taken the page back
            cold += 1
            continue
        assert region is not None
        view = BatchView(region.file.pread(region.size, region.position))
        assert view.base_offset <= offset <= view.last_offset
        view.check_crc()
    assert cold < 10
    assert log.offset_for_timestamp(100, may_block=True) == (100, 919, 0)


def test_a_row_of_the_index_that_leads_past_its_batch_is_damage_not_a_gap() -> None:
    # Found by `./dev fuzz recovery`: batches were passed over in silence.
    files, config = MemoryFiles(), replace(SMALL, index_interval_bytes=0)
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for _ in range(6):
        append(log, batch(COUNT))
    path = log.segments[-1].path(Suffix.OFFSET_INDEX)
    manager.close()
    disk = files.killed()
    # The second row gets the fourth batch's place, and a low number.
    disk.open(path).pwrite(OFFSET_INDEX_ENTRY.pack(0, 3 * BYTES), OFFSET_INDEX_ENTRY.size)
    manager = open_manager(disk, config=config)
    found = manager.get(PARTITION)
    assert found is not None
    assert found.read(35, 1 << 20, end_offset=60).region is not None
    with pytest.raises(DamagedLog, match=r"index: a row says .* remove this file: the next"):
        found.read(5, 1 << 20, end_offset=60)
    manager.close()
    disk = disk.killed()
    disk.remove(path)
    again = open_manager(disk, config=config).get(PARTITION)
    assert again is not None
    assert [record.offset for record in read_all(again)] == list(range(60))


def test_a_changed_batch_where_producers_are_replayed_from_does_not_stop_the_start() -> None:
    # Found by `./dev fuzz recovery`: its DamagedLog ended the start of the whole broker.
    files, config = MemoryFiles(), replace(SMALL, index_interval_bytes=0)
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for number in range(6):
        append(log, batch(COUNT, producer_id=1, base_sequence=COUNT * number))
    path = log.segments[-1].path(Suffix.LOG)
    manager.close()
    disk = files.killed()
    # The last batch is further ahead than the snapshot that was written with it.
    disk.open(path).pwrite((500).to_bytes(8, "big"), 5 * BYTES)
    found = open_manager(disk, config=config).get(PARTITION)
    assert found is not None
    assert found.log_end_offset == 500 + COUNT
    assert [record.offset for record in read_all(found, 50)] == list(range(50))


def test_a_damaged_index_does_not_stop_a_start_after_a_kill() -> None:
    # Found by `./dev fuzz recovery`: what recovery trusts it followed to where no batch is.
    files, config = MemoryFiles(), replace(SMALL, index_interval_bytes=0)
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for _ in range(6):
        append(log, batch(COUNT))
    log.flush()
    manager.sync_recovery_points()
    path = log.segments[-1].path(Suffix.OFFSET_INDEX)
    disk = files.killed()
    index = disk.read_bytes(path)
    for place, size in product(range(40), (4, 12)):
        damaged = disk.killed()
        damaged.remove(path)
        damaged.open(path, create=True).pwrite(index[:place] + index[place + size :], 0)
        found = open_manager(damaged, config=config).get(PARTITION)
        assert found is not None
        assert found.log_end_offset == 60
        assert append(found).first_offset == 60


def test_an_index_is_rebuilt_from_a_log_with_an_impossible_offset() -> None:
    # Found by `./dev fuzz recovery`: there is no room for it in a row, which ended the start.
    files = MemoryFiles()
    config = replace(SMALL, index_interval_bytes=0, segment_bytes=5 * BYTES)
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for _ in range(8):
        append(log, batch(COUNT))
    first = log.segments[0]
    log.flush()
    manager.sync_recovery_points()
    disk = files.killed()
    disk.remove(first.path(Suffix.TIME_INDEX))
    disk.open(first.path(Suffix.LOG)).pwrite(b"\x39" * 4, 3 * BYTES)
    found = open_manager(disk, config=config).get(PARTITION)
    assert found is not None
    assert found.log_end_offset == 80
    assert [record.offset for record in read_all(found, 30)] == list(range(30))
