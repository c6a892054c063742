"""Starting: clean and unclean, recovery points, rebuilt indexes, stray files."""

from dataclasses import replace
from pathlib import Path

import pytest

from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import ScanResult
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.records.layout import Buffer
from pyspark_klog.storage.names import CLEANER_CHECKPOINT
from pyspark_klog.storage.text_files import encode_offset_checkpoint
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
)
from tests.support.runtime.memory_files import MemoryFiles

CONFIG = replace(SMALL, segment_bytes=3_000, index_interval_bytes=200)
MARKER = DATA / ".kafka_cleanshutdown"


def fill(log: PartitionLog, count: int = 60) -> None:
    for number in range(count):
        append(log, batch(1 + number % 3, timestamp_ms=1_000 * (number * 7 % 31)))


def index_files(files: MemoryFiles, path: Path) -> dict[str, bytes]:
    return {
        name: files.read_bytes(path / name)
        for name in files.list_dir(path)
        if name.endswith("index")
    }


class CountingChecks(PlainChecks):
    """Knows how many bytes were CRC-checked."""

    def __init__(self) -> None:
        self.checked_bytes = 0

    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> ScanResult:
        if check_crc:
            self.checked_bytes += end - start
        return super().scan(buffer, start, end, check_crc=check_crc)


# --- clean ---------------------------------------------------------------------------------------
def test_a_closed_log_is_opened_without_looking_at_its_records() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    records = read_all(log)
    manager.close()
    checks = CountingChecks()
    files = files.killed()
    log = open_log(files, CONFIG, checks=checks)
    assert checks.checked_bytes == 0
    assert read_all(log) == records
    assert log.high_watermark == log.flushed_offset == log.recovery_point == log.log_end_offset
    assert not files.exists(MARKER)
    append(log)
    assert len(read_all(log)) == len(records) + 1


def test_a_crash_while_loading_counts_as_one() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    fill(manager.create(PARTITION, TOPIC_ID, CONFIG))
    manager.close()
    files = files.killed()
    assert open_manager(files, config=CONFIG).is_clean_start
    assert not open_manager(files.killed(), config=CONFIG).is_clean_start


@pytest.mark.parametrize("marker", [b"", b'{"version":0,"brokerEpoch":12}'])
def test_markers_of_older_and_newer_kafkas_count(marker: bytes) -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    fill(manager.create(PARTITION, TOPIC_ID, CONFIG))
    manager.close()
    files = files.killed()
    files.write_atomically(MARKER, marker)
    assert open_manager(files, config=CONFIG).is_clean_start


def test_a_log_that_belies_the_marker_is_recovered() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    end_offset = log.log_end_offset
    manager.close()
    files = files.killed()
    last = files.open(log.segments[-1].log_file.path)
    last.pwrite(b"nonsense that is no batch at all", last.size())
    log = open_log(files, CONFIG)
    assert log.log_end_offset == end_offset
    assert log.was_unclean


# --- unclean -------------------------------------------------------------------------------------
@pytest.mark.parametrize("checks", ["plain", "kernels"])
def test_an_unclean_log_is_checked_and_its_indexes_come_out_the_same(checks: str) -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    records = read_all(log)
    killed = files.killed()
    twin = files.killed()
    chosen = kernel_checks() if checks == "kernels" else PlainChecks()
    log = open_log(killed, CONFIG, checks=chosen)
    assert read_all(log) == records
    log.close()
    # The twin log, which was never recovered, has the expected indexes.
    twin_manager = open_manager(twin, config=CONFIG)
    twin_log = twin_manager.get(PARTITION)
    assert twin_log is not None
    twin_manager.close()
    recovered = index_files(killed, log.path)
    assert recovered == index_files(twin, log.path)
    assert len(recovered) == 2 * len(log.segments)


def test_recovered_indexes_are_those_that_appending_made() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    killed = files.killed()
    # Closed properly on one disk, recovered and closed on the other.
    closed = MemoryFiles()
    closed_manager = open_manager(closed, config=CONFIG)
    closed_log = closed_manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(closed_log)
    closed_manager.close()
    recovered_manager = open_manager(killed, config=CONFIG)
    recovered_manager.close()
    assert index_files(killed, log.path) == index_files(closed, log.path)


def test_only_what_lies_past_the_recovery_point_is_checked() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=replace(CONFIG, segment_bytes=1 << 20))
    log = manager.create(PARTITION, TOPIC_ID, replace(CONFIG, segment_bytes=1 << 20))
    fill(log, 100)
    log.flush()
    flushed_bytes = log.size_bytes
    point = log.recovery_point
    assert point == log.log_end_offset
    fill(log, 5)
    size_bytes = log.size_bytes
    records = read_all(log)
    killed = files.killed()
    killed.write_atomically(
        DATA / "recovery-point-offset-checkpoint", b"0\n1\ntopic 0 %d\n" % point
    )
    checks = CountingChecks()
    log = open_log(killed, replace(CONFIG, segment_bytes=1 << 20), checks=checks)
    assert read_all(log) == records
    assert 0 < checks.checked_bytes <= size_bytes - flushed_bytes
    # Its indexes are whole all the same.
    whole = MemoryFiles()
    whole_log = open_log(whole, replace(CONFIG, segment_bytes=1 << 20))
    fill(whole_log, 100)
    fill(whole_log, 5)
    rows = list(log.segments[0].offset_index.view())
    assert rows == list(whole_log.segments[0].offset_index.view())
    time_rows = list(log.segments[0].time_index.view())
    assert time_rows == list(whole_log.segments[0].time_index.view())


@pytest.mark.parametrize("point", [0, 1, 7, 50, 118, 119, 500])
def test_any_recovery_point_leads_to_the_same_log(point: int) -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    log.flush()
    records = read_all(log)
    killed = files.killed()
    killed.write_atomically(
        DATA / "recovery-point-offset-checkpoint", b"0\n1\ntopic 0 %d\n" % point
    )
    log = open_log(killed, CONFIG)
    assert read_all(log) == records
    assert append(log).first_offset == len(records)


@pytest.mark.parametrize("points_to", ["the middle", "an earlier batch", "a later batch"])
def test_a_wrong_index_entry_before_the_recovery_point_hides_no_damage_behind_it(
    points_to: str,
) -> None:
    config = replace(CONFIG, segment_bytes=1 << 20)
    files = MemoryFiles()
    log = open_manager(files, config=config).create(PARTITION, TOPIC_ID, config)
    fill(log, 20)
    log.flush()
    point = log.recovery_point
    good = read_all(log)
    fill(log, 2)
    damage_at = log.size_bytes - 1
    fill(log, 20)
    killed = files.killed()
    killed.write_atomically(
        DATA / "recovery-point-offset-checkpoint", b"0\n1\ntopic 0 %d\n" % point
    )
    segment = log.segments[0]
    places = list(segment.batch_positions())
    rows = list(segment.offset_index.view())
    number = max(n for n, row in enumerate(rows) if row.offset <= point)
    earlier, later = rows[number - 1].position, places[-2].position
    wrong = {"the middle": rows[number].position + 1, "an earlier batch": earlier}
    position = wrong.get(points_to, later)
    index = killed.open(log.path / f"{0:020d}.index")
    index.pwrite(position.to_bytes(4, "big"), number * 8 + 4)
    byte = killed.open(segment.log_file.path).pread(1, damage_at)[0]
    killed.open(segment.log_file.path).pwrite(bytes([byte ^ 1]), damage_at)

    found = open_log(killed, config)
    kept = read_all(found)
    assert kept[: len(good)] == good
    assert [record.offset for record in kept] == list(range(len(kept)))
    assert found.log_end_offset == len(kept)
    assert found.size_bytes == next(p.position for p in places if p.last_offset >= len(kept))
    assert found.size_bytes <= damage_at
    again = list(found.segments[0].offset_index.view())
    positions = {place.last_offset: place.position for place in places}
    assert all(positions[row.offset] == row.position for row in again)


@pytest.mark.parametrize("damage", ["gone", "empty", "odd size", "beyond the log", "zeros"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_a_damaged_index_is_rebuilt(damage: str, suffix: str, ending: str) -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    records = read_all(log)
    whole = MemoryFiles()
    whole_manager = open_manager(whole, config=CONFIG)
    fill(whole_manager.create(PARTITION, TOPIC_ID, CONFIG))
    whole_manager.close()
    manager.close()
    files = files.killed()
    if ending == "killed":
        files.remove(MARKER)
        files.remove(DATA / "recovery-point-offset-checkpoint")
    path = log.path / f"{log.segments[1].base_offset:020d}{suffix}"
    if damage == "gone":
        files.remove(path)
    elif damage == "empty":
        # An empty offset index says nothing wrong of a clean log; look-ups just walk further.
        files.open(path).truncate(0)
    elif damage == "odd size":
        files.open(path).truncate(files.open(path).size() - 1)
    elif damage == "beyond the log":
        row = b"\x00\x00\x00\x7f\x7f\xff\xff\xff" if suffix == ".index" else b"\x80" + bytes(11)
        files.open(path).pwrite(row, files.open(path).size())
    else:
        files.open(path).pwrite(bytes(1_200), files.open(path).size())
    log = open_log(files, CONFIG)
    assert read_all(log) == records
    if damage != "empty" or ending == "killed":
        assert files.read_bytes(path) == whole.read_bytes(path)


def test_index_files_without_a_log_are_removed_and_temporary_ones_too() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log)
    files = files.killed()
    strays = [
        f"{77:020d}.index",
        f"{77:020d}.timeindex",
        "leader-epoch-checkpoint.tmp",
        f"{0:020d}.log.cleaned",
    ]
    for name in strays:
        files.open(log.path / name, create=True)
    log = open_log(files)
    assert not set(strays) & set(files.list_dir(log.path))
    assert len(read_all(log)) == 1


def test_records_missing_between_segments_end_the_log() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    bases = [segment.base_offset for segment in log.segments]
    files = files.killed()
    # The second segment ends a batch too early, at a batch's end: no byte of it is wrong.
    second = log.segments[1]
    last = list(second.batch_positions())[-1]
    files.open(second.log_file.path).truncate(last.position)
    reopened = open_log(files, CONFIG)
    assert reopened.log_end_offset == last.base_offset
    assert [segment.base_offset for segment in reopened.segments] == bases[:2]
    # Where the log was compacted offsets may be missing.
    files = MemoryFiles()
    compact = replace(CONFIG, compact=True)
    manager = open_manager(files, config=compact)
    log = manager.create(PARTITION, TOPIC_ID, compact)
    fill(log)
    killed = files.killed()
    killed.open(log.segments[1].log_file.path).truncate(last.position)
    for cleaned_offset, end_offset in (
        (log.log_end_offset, log.log_end_offset),
        (bases[2], log.log_end_offset),
        (bases[2] - 1, last.base_offset),
    ):
        files = killed.killed()
        data = encode_offset_checkpoint({PARTITION: cleaned_offset})
        files.write_atomically(DATA / CLEANER_CHECKPOINT, data)
        assert open_log(files, compact).log_end_offset == end_offset


def test_an_offset_that_goes_back_ends_the_log_though_its_crc_fits() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(3):
        append(log)
    files = files.killed()
    file = files.open(log.segments[0].log_file.path)
    size = len(batch())
    file.pwrite((0).to_bytes(8, "big"), 2 * size)
    reopened = open_log(files)
    assert reopened.log_end_offset == 2
    files = files.killed()
    files.open(log.segments[0].log_file.path).pwrite((2**40).to_bytes(8, "big"), size)
    assert open_log(files).log_end_offset == 1


def test_on_a_real_disk(tmp_path: Path) -> None:
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    records = read_all(log)
    manager.close()
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path)
    reopened = manager.get(PARTITION)
    assert reopened is not None
    assert read_all(reopened) == records
    append(reopened)
    manager.release_locks()
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path)
    recovered = manager.get(PARTITION)
    assert recovered is not None
    assert len(read_all(recovered)) == len(records) + 1
    assert not manager.is_clean_start
    manager.close()


def test_a_start_after_a_kill_syncs_no_file_where_nothing_lies_past_the_recovery_point() -> None:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    fill(log)
    log.flush()
    manager.sync_recovery_points()
    idle = files.killed()
    again = open_manager(idle, config=CONFIG)
    assert (idle.syncs, idle.directory_syncs > 0) == (0, True)
    found = again.get(PARTITION)
    assert found is not None
    assert found.flushed_offset == found.recovery_point == log.log_end_offset
    # One more record, which no flush has seen, is synced with its indexes.
    append(found)
    written = idle.killed()
    open_manager(written, config=CONFIG)
    assert written.syncs == 3
