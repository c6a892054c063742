"""A log gives its descriptors, mappings and disk space back without a garbage collection."""

import errno
import gc
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from klog_broker.log.errors import ColdRead, LogStorageError
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.read.log_reader import find_timestamp
from klog_broker.log.read.page_cache import read_into_cache
from klog_broker.runtime.disk import open_files
from klog_broker.runtime.disk.files import ReadRegion, RealDirectory, RealFiles
from klog_broker.runtime.disk.open_files import OpenFiles
from pyspark_klog.storage.names import Suffix
from tests.support.cluster.helpers import Helpers
from tests.support.compaction.cleaner_harness import CleanerBench
from tests.support.log.harness import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_manager,
    read_all,
    start_over,
    truncate,
)
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.runtime.manual_clock import ManualClock

CONFIG = replace(
    SMALL, segment_bytes=2_000, index_interval_bytes=0, retention_ms=-1, file_delete_delay_ms=1_000
)
COMPACT = replace(CONFIG, compact=True, delete=False)


class Disk(RealFiles):
    """The machine's disk, and what this process holds of a directory on it."""

    def __init__(self, path: Path) -> None:
        super().__init__(OpenFiles(lambda: 1_000))
        self.path = path

    def held(self) -> dict[str, int]:
        """How many descriptors and mappings this process has in the directory: of files with a
        name, and of removed files; and the disk space that the removed files still take."""
        found = {"open": 0, "removed": 0, "removed bytes": 0}
        for link in list(Path("/proc/self/fd").iterdir()):
            try:
                name, space = str(link.readlink()), 512 * link.stat().st_blocks
            except FileNotFoundError:
                continue
            if name.startswith(str(self.path)):
                is_removed = name.endswith(" (deleted)")
                found["removed" if is_removed else "open"] += 1
                found["removed bytes"] += space * is_removed
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, *_, name = line.split(maxsplit=5)
            if name.startswith(str(self.path)):
                start, end = (int(each, 16) for each in span.split("-"))
                is_removed = name.endswith(" (deleted)")
                found["removed" if is_removed else "open"] += 1
                found["removed bytes"] += (end - start) * is_removed
        return found


NOTHING_REMOVED = {"removed": 0, "removed bytes": 0}
NOTHING = {"open": 0, **NOTHING_REMOVED}


class World:
    """A manager over a real directory, and one log of several segments."""

    def __init__(self, path: Path, config: LogConfig = CONFIG) -> None:
        self.disk = Disk(path)
        self.clock = ManualClock()
        self.helpers = Helpers.held()
        self.open(config)
        for number in range(40):
            append(self.log, batch(key=b"k%d" % (number % 3), value=b"v" * 200))
        assert len(self.log.segments) > 4

    def open(self, config: LogConfig, helpers: Helpers | None = None) -> None:
        """Open the log. Without ``helpers`` their work is done at once."""
        data = self.disk.path / "data"
        self.manager = open_manager(
            self.disk, config=config, clock=self.clock, directory=data, helpers=helpers
        )
        self.log = self.manager.create(PARTITION, TOPIC_ID, config)

    def rest(self) -> None:
        """Files that were not used for a while give their descriptors back."""
        self.disk.close_unused()
        self.disk.close_unused()

    def removed(self) -> dict[str, int]:
        """Wait for the delayed removal of files; return what is still held of removed files."""
        self.clock.advance(1_000)
        self.manager.run_due()
        held = self.disk.held()
        return {name: held[name] for name in NOTHING_REMOVED}


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def region_of(log: PartitionLog, offset: int) -> ReadRegion:
    region = log.read(offset, 1_000, min_one_batch=True).region
    assert region is not None
    return region


@pytest.mark.parametrize("rests", [False, True])
def test_a_deleted_log_gives_its_descriptors_mappings_and_space_back(
    world: World, rests: bool
) -> None:
    read_all(world.log)
    if rests:  # The files that are not synced are mapped then, and have no descriptor.
        world.rest()
    world.manager.delete(PARTITION)
    assert world.removed() == NOTHING_REMOVED
    # The open files that remain belong to the data directory.
    before = world.disk.held()["open"]
    world.manager.create(PARTITION, TOPIC_ID, CONFIG)
    assert world.disk.held()["open"] > before


def test_a_deleted_log_gives_its_transaction_index_back(world: World) -> None:
    write(world.log, 1, 0)
    append_end_marker(world.log, 1, commit=False)
    assert world.log.segments[-1].transaction_index.rows == 1
    world.manager.delete(PARTITION)
    assert world.removed() == NOTHING_REMOVED


def test_a_flush_without_a_descriptor_keeps_no_file_of_a_log_deleted_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EMFILE, "no descriptor is left")

    world.manager.close()
    world.open(CONFIG, world.helpers)
    append(world.log)
    world.log.start_flush()
    world.manager.delete(PARTITION)
    monkeypatch.setattr(open_files, "_sync", fail)
    world.helpers.run_all()
    world.removed()
    world.helpers.run_all()
    assert world.removed() == NOTHING_REMOVED


def test_a_log_of_a_directory_that_fails_to_load_is_not_kept_open(world: World) -> None:
    broken = world.manager.create(PARTITION._replace(partition=1), TOPIC_ID, CONFIG)
    world.manager.close()
    opens = world.disk.open

    def fail(path: Path, *, create: bool = False, writable: bool = True) -> object:
        if path.parent == broken.path:
            raise OSError(5, "the disk is gone")
        return opens(path, create=create, writable=writable)

    world.disk.open = fail  # type: ignore[method-assign, assignment]
    manager = open_manager(world.disk, config=CONFIG, directory=world.disk.path / "data")
    log = manager.get(PARTITION)
    assert log is not None
    assert log.is_offline
    assert world.disk.held() == NOTHING


def test_segments_that_retention_deletes_give_their_space_back(world: World) -> None:
    read_all(world.log)
    world.rest()
    world.log.update_config(replace(CONFIG, retention_bytes=4_000))
    assert world.log.apply_retention(world.clock.now_ms()) > 1
    assert world.removed() == NOTHING_REMOVED


def test_segments_that_were_compacted_give_their_space_back(tmp_path: Path) -> None:
    world = World(tmp_path, COMPACT)
    world.manager.close()
    world.open(COMPACT, world.helpers)
    bench = CleanerBench(world.manager, world.helpers, world.clock)
    bench.start_checks()
    bench.run()
    assert world.log.cleaned_offset
    world.removed()
    bench.run()
    assert world.removed() == NOTHING_REMOVED


def test_a_truncation_and_a_new_beginning_give_space_back(world: World) -> None:
    old = world.log.segments
    read_all(world.log)
    world.rest()
    truncate(world.log, 4)
    assert world.removed() == NOTHING_REMOVED
    start_over(world.log, 100)
    assert world.removed() == NOTHING_REMOVED
    assert all(each is not world.log.segments[0] for each in old)


def test_a_log_that_fails_while_it_is_cut_closes_its_files_after_the_cut(world: World) -> None:
    world.manager.close()
    world.open(CONFIG, world.helpers)
    log = world.log
    log.start_over_async(50, 5_000, lambda _: None)
    log.read_failed(OSError(5, "the disk is gone"))
    log.segments[0].log_file.size()  # A helper thread may still work on the file.
    world.helpers.run_all()
    assert world.disk.held() == NOTHING


def test_nothing_of_a_failed_directory_stays_open(world: World) -> None:
    read_all(world.log)
    append(world.log)
    world.rest()
    data = world.manager.directories[0]
    assert world.disk.held()["open"] > 3
    reads_failed = world.log.read_failed(OSError(5, "the disk is gone"))
    assert isinstance(reads_failed, LogStorageError)
    assert data.is_offline
    assert world.disk.held() == NOTHING
    # Another broker may take the directory, once the disk is in order.
    open_manager(world.disk, directory=world.disk.path / "data").release_locks()


def test_an_error_that_a_failed_directory_keeps_holds_no_file(world: World) -> None:
    file = world.log.segments[-1].log_file

    def fail(self: object, size: int) -> None:
        raise OSError(5, "the disk is gone")

    try:
        fail(file, 0)
    except OSError as error:
        world.log.read_failed(error)
    del file
    assert world.disk.held() == NOTHING


def test_nothing_of_a_directory_stays_open_whose_sync_has_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr(open_files, "_sync", fail)
    world.log.start_flush()
    assert world.manager.directories[0].is_offline
    assert world.disk.held() == NOTHING


def test_a_flush_for_which_no_descriptor_was_left_keeps_no_removed_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(open_files, "_sync", fail)
        world.log.start_flush()
    world.manager.delete(PARTITION)
    assert world.removed() == NOTHING_REMOVED


def test_nothing_stays_open_where_a_cut_waits_for_a_sync_that_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "the disk is gone")

    world.manager.close()
    world.open(CONFIG, world.helpers)
    append(world.log)
    world.log.start_flush()
    world.log.start_over_async(50, 5_000, lambda _: None)
    assert len(world.helpers.waiting) == 2
    monkeypatch.setattr(open_files, "_sync", fail)
    world.helpers.run_all()
    assert world.manager.directories[0].is_offline
    assert world.disk.held() == NOTHING


def test_nothing_stays_open_where_the_syncs_of_several_logs_fail(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "the disk is gone")

    world.manager.close()
    world.open(CONFIG, world.helpers)
    other = world.manager.create(PARTITION._replace(partition=1), TOPIC_ID, CONFIG)
    for log in (world.log, other):
        append(log)
        log.start_flush()
    monkeypatch.setattr(open_files, "_sync", fail)
    world.helpers.run_all()
    assert world.manager.directories[0].is_offline
    assert world.disk.held() == NOTHING


def test_nothing_stays_open_after_a_clean_close(world: World) -> None:
    read_all(world.log)
    world.manager.close()
    assert world.disk.held() == NOTHING


def test_a_response_that_is_being_sent_keeps_its_file(world: World) -> None:
    region = region_of(world.log, 3)
    sent = region.file.pread(region.size, region.position)
    world.manager.delete(PARTITION)
    assert world.removed()["removed"] == 1
    assert region.file.pread(region.size, region.position) == sent
    del region
    assert world.removed() == NOTHING_REMOVED


def test_a_helper_thread_that_reads_a_deleted_log_opens_nothing(world: World) -> None:
    segment, segments = world.log.segments[1], world.log._state.segments
    names = {each.name for each in world.log.path.iterdir()}
    world.log.update_config(replace(CONFIG, retention_bytes=0))
    world.log.apply_retention(world.clock.now_ms())
    read_into_cache(segment, segment.base_offset, 1_000)
    with pytest.raises(OSError, match="closed"):
        find_timestamp(segments, 1_000, 0, may_block=True)
    assert world.removed() == NOTHING_REMOVED
    left = {each.name for each in world.log.path.iterdir()} - names
    assert not {each for each in left if each.startswith(f"{segment.base_offset:020}")}
    assert not segment.path(Suffix.OFFSET_INDEX).exists()


def test_an_index_that_is_opened_while_its_segment_is_closed_closes_again(world: World) -> None:
    segment = world.log.segments[1]
    segment.close_indexes()
    opens = world.disk.open

    def close_meanwhile(path: Path, *, create: bool = False, writable: bool = True) -> object:
        file = opens(path, create=create, writable=writable)
        segment.close()
        return file

    world.disk.open = close_meanwhile  # type: ignore[method-assign, assignment]
    before = world.disk.held()["open"]
    with pytest.raises(OSError, match="closed"):
        _ = segment.offset_index
    assert world.disk.held()["open"] <= before


def test_a_sync_of_a_directory_outlasts_its_close(tmp_path: Path) -> None:
    """No other file can get the number of the descriptor that the sync uses."""
    directory = RealDirectory(tmp_path)
    descriptor = directory._descriptor
    assert descriptor is not None
    directory.close()
    os.fstat(descriptor.number)
    number = descriptor.number
    del descriptor
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    with pytest.raises(OSError, match="was closed"):
        directory.sync()


def test_a_cold_read_of_a_deleted_log_is_no_failure_of_the_disk(world: World) -> None:
    region = region_of(world.log, 3)
    cold = ColdRead(lambda: region.file.read_ahead(region.position, region.size))
    world.manager.delete(PARTITION)
    thread = threading.Thread(target=cold.warm)
    thread.start()
    thread.join()
    assert not world.manager.directories[0].is_offline
