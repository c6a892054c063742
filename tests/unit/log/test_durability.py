"""When a log is synced, which callbacks wait for the sync, and the effect of a failed sync."""

import errno
from dataclasses import replace

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.housekeeping import LogManagerSettings
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.read.read_results import AppendInfo
from klog_broker.log.segment.segment import Segment
from pyspark_klog.ids import BrokerId, LeaderEpoch
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.logs import HostedLog
from tests.support.log.harness import (
    DATA,
    EPOCH,
    PARTITION,
    SMALL,
    TOPIC_ID,
    StandaloneListener,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

SYNCED = replace(SMALL, flush_messages=1)


class World(HostedLog):
    """A log whose helpers run when the test says so, and the results that its producers got."""

    def __init__(self, config: LogConfig = SYNCED, settings: LogManagerSettings | None = None):
        super().__init__(config, settings=settings)
        self.log.begin_epoch(EPOCH)
        self.offline: list[str] = []
        self.manager.on_directory_offline = lambda path, _: self.offline.append(str(path))
        self.told: list[tuple[int, BaseException | None]] = []
        self.syncs_before = self.files.syncs

    @property
    def syncs(self) -> int:
        return self.files.syncs - self.syncs_before

    def send(self, records: bytes | None = None) -> AppendInfo:
        info: AppendInfo = append(self.log, records)
        if info.required_flush_offset is not None:
            self.log.when_flushed(
                info.required_flush_offset,
                lambda error, offset=info.first_offset: self.told.append((offset, error)),
            )
        return info


# --- flush.messages=1 ----------------------------------------------------------------------------
def test_a_reply_waits_for_the_sync_and_so_do_readers() -> None:
    world = World()
    grown: list[int] = []
    listener = world.log.listener = StandaloneListener()
    listener.on_change = lambda log: grown.append(log.high_watermark)
    info = world.send()
    assert info.required_flush_offset == 1
    assert (world.log.log_end_offset, world.log.high_watermark) == (1, 0)
    assert world.told == []
    assert read_all(world.log) == []
    world.helpers.run_all()
    assert world.told == [(0, None)]
    assert (world.log.flushed_offset, world.log.high_watermark, grown) == (1, 1, [1])
    assert len(read_all(world.log)) == 1


def test_group_commit_syncs_once_for_all_that_came_meanwhile() -> None:
    world = World(replace(SYNCED, segment_bytes=1 << 20))
    for _ in range(50):
        world.send()
    # The first sync was begun for the first reply alone; the other 49 share the second.
    world.helpers.run_all()
    assert [offset for offset, _ in world.told] == list(range(50))
    assert world.syncs == 2
    for _ in range(10):
        for _ in range(100):
            world.send()
        world.helpers.run_one()
    world.helpers.run_all()
    assert len(world.told) == 1_050
    replies_per_sync = len(world.told) / world.syncs
    assert replies_per_sync > 50


def test_an_append_without_a_waiter_is_synced_too() -> None:
    world = World()
    append(world.log)  # acks=0
    world.helpers.run_all()
    assert world.log.high_watermark == 1


def test_a_sync_covers_what_was_there_when_it_began_and_no_more() -> None:
    world = World()
    world.send()
    world.send()
    world.helpers.run_one()
    assert world.told == [(0, None)]
    assert world.log.flushed_offset == 1
    world.helpers.run_one()
    assert world.told == [(0, None), (1, None)]


def test_a_duplicate_waits_for_the_sync_of_the_first() -> None:
    world = World()
    records = batch(2, producer_id=1, base_sequence=0)
    world.send(records)
    again = world.send(records)
    assert again.is_duplicate
    assert again.required_flush_offset == 2
    world.helpers.run_all()
    assert world.told == [(0, None), (0, None)]
    assert world.send(records).required_flush_offset is None


def test_a_new_segments_name_is_durable_before_its_first_acknowledgement() -> None:
    world = World(replace(SYNCED, segment_bytes=2 * len(batch())))
    for _ in range(5):
        world.send()
        directory_syncs = world.files.directory_syncs
        rolled = len(world.log.segments)
        world.helpers.run_all()
        if rolled > 1 and world.log.segments[-1].size_bytes == len(batch()):
            assert world.files.directory_syncs > directory_syncs
    assert len(world.told) == 5


def test_waiting_for_what_is_synced_is_no_waiting() -> None:
    world = World()
    world.send()
    world.helpers.run_all()
    told: list[BaseException | None] = []
    world.log.when_flushed(1, told.append)
    world.log.when_flushed(0, told.append)
    assert told == [None, None]


# --- other settings ------------------------------------------------------------------------------
def test_by_default_nothing_waits_and_nothing_is_synced() -> None:
    world = World(SMALL)
    for _ in range(20):
        assert world.send().required_flush_offset is None
    assert world.log.high_watermark == 20
    assert not world.helpers.waiting
    assert world.syncs == 0


def test_flush_messages_syncs_after_so_many_without_waiting() -> None:
    world = World(replace(SMALL, flush_messages=10))
    for _ in range(4):
        assert world.send(batch(3)).required_flush_offset is None
    assert world.log.high_watermark == 12
    assert len(world.helpers.waiting) == 1
    world.helpers.run_all()
    assert (world.syncs, world.log.flushed_offset) == (1, 12)


def test_flush_messages_counts_what_a_failed_append_of_a_follower_has_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second batch needs a new segment, which cannot be created."""
    world = World(replace(SMALL, flush_messages=2))
    records = bytearray()
    for offset in (0, 2):
        data = bytearray(batch(2, value=b"v" * 5_000, partition_leader_epoch=EPOCH))
        data[:8] = offset.to_bytes(8, "big")
        records += data

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Segment, "create", fail)
    with pytest.raises(LogStorageError):
        world.log.append_as_follower(memoryview(records), leader_epoch=EPOCH, now_ms=5_000)
    assert world.log.log_end_offset == 2
    world.helpers.run_all()
    assert world.log.flushed_offset == 2


def test_flush_ms_syncs_after_so_long() -> None:
    world = World(replace(SMALL, flush_ms=5_000))
    world.send()
    for _ in range(4):
        world.clock.advance(1_000)
        world.manager.run_due()
        world.helpers.run_all()
    assert world.log.flushed_offset == 0
    world.clock.advance(1_000)
    world.manager.run_due()
    world.helpers.run_all()
    assert world.log.flushed_offset == 1
    syncs = world.syncs
    for _ in range(20):
        world.clock.advance(1_000)
        world.log.start_flush()
    assert world.syncs == syncs


def test_a_roll_syncs_the_old_segment_and_moves_the_recovery_point() -> None:
    world = World(replace(SMALL, segment_bytes=2 * len(batch())))
    for _ in range(3):
        world.send()
    assert world.log.recovery_point == 0
    world.helpers.run_all()
    assert world.log.recovery_point == 2


def test_the_setting_can_change_while_it_runs() -> None:
    world = World(SMALL)
    world.send()
    world.log.update_config(SYNCED)
    assert world.log.high_watermark == 1
    assert world.send().required_flush_offset == 2
    assert world.log.high_watermark == 1
    world.log.update_config(SMALL)
    assert world.log.high_watermark == 1, "the host reckons it anew"
    world.send()
    assert world.log.high_watermark == 3


def test_a_setting_that_asks_for_flushes_counts_for_what_is_there() -> None:
    world = World(SMALL)
    world.send()
    world.log.update_config(SYNCED)
    world.helpers.run_all()
    assert (world.syncs, world.log.flushed_offset) == (1, 1)


def test_the_watermark_goes_to_the_end_at_most_and_never_back() -> None:
    world = World()
    grown: list[int] = []
    listener = world.log.listener = StandaloneListener()
    listener.on_change = lambda log: grown.append(log.high_watermark)
    for _ in range(4):
        world.send()
    for offset in (2, 1, 2, 99, 0):
        world.log.set_high_watermark(offset)
    assert (world.log.high_watermark, grown) == (4, [2, 4])


@pytest.mark.parametrize(("noted", "expected"), [(None, 2), (1, 2), (3, 3), (9, 5)])
def test_a_log_starts_with_the_watermark_that_was_noted_within_its_bounds(
    noted: int | None, expected: int
) -> None:
    world = World(SMALL)
    for _ in range(5):
        world.send()
    world.log.delete_records_before(2)
    world.manager.close()
    files = world.files.killed()
    files.remove(DATA / "replication-offset-checkpoint")
    if noted is not None:
        text = b"0\n1\ntopic 0 %d\n" % noted
        files.write_atomically(DATA / "replication-offset-checkpoint", text)
    manager = LogManager(
        [DATA],
        files=files,
        clock=ManualClock(),
        helpers=Helpers.held(),
        broker_id=BrokerId(0),
    )
    manager.load()
    log = manager.get(PARTITION)
    assert log is not None
    assert (log.high_watermark, log.log_start_offset, log.log_end_offset) == (expected, 2, 5)


def test_each_commit_and_each_flush_calls_the_listener_once() -> None:
    world = World(SMALL)
    told: list[str] = []

    class Listener(StandaloneListener):
        def log_end_grew(self, log: PartitionLog) -> None:
            told.append(f"end {log.log_end_offset}")

        def log_flushed(self, log: PartitionLog) -> None:
            told.append(f"flushed {log.flushed_offset}")

    world.log.listener = Listener()
    world.send(batch(3))
    world.send(batch(2))
    world.log.flush()
    world.log.flush()
    assert told == ["end 3", "end 5", "flushed 5"]


# --- checkpoints ---------------------------------------------------------------------------------
def test_the_recovery_point_follows_the_synced_records_once_their_indexes_are_synced() -> None:
    settings = LogManagerSettings(flush_offset_checkpoint_interval_ms=1_000)
    world = World(settings=settings)
    for _ in range(10):
        world.send()
    world.helpers.run_all()
    assert (world.log.flushed_offset, world.log.recovery_point) == (10, 0)
    world.clock.advance(1_000)
    world.manager.run_due()
    world.helpers.run_all()
    assert world.log.recovery_point == 10
    world.clock.advance(1_000)
    world.manager.run_due()
    world.helpers.run_all()
    text = world.files.read_bytes(DATA / "recovery-point-offset-checkpoint")
    assert text == b"0\n1\ntopic 0 10\n"


def test_high_watermarks_are_written_when_they_changed_only() -> None:
    settings = LogManagerSettings(high_watermark_checkpoint_interval_ms=100)
    world = World(SMALL, settings)
    world.send()

    def rounds(count: int) -> int:
        before = world.files.directory_syncs
        for _ in range(count):
            world.clock.advance(100)
            world.manager.run_due()
            world.helpers.run_all()
        return world.files.directory_syncs - before

    assert rounds(1) == 1
    assert rounds(5) == 0
    world.send()
    assert rounds(5) == 1
    text = world.files.read_bytes(DATA / "replication-offset-checkpoint")
    assert text == b"0\n1\ntopic 0 2\n"


# --- failures ------------------------------------------------------------------------------------
def test_after_a_failed_sync_everything_since_the_last_good_one_fails_and_no_retry() -> None:
    world = World()
    world.send()
    world.helpers.run_all()
    world.send()
    world.send()
    world.files.fail_sync_at = world.files.syncs + 1
    world.helpers.run_one()
    syncs = world.files.syncs
    assert [offset for offset, _ in world.told] == [0, 1, 2]
    assert world.told[0][1] is None
    for _, error in world.told[1:]:
        assert isinstance(error, LogStorageError)
        assert "is offline after" in str(error)
    assert world.offline == [str(DATA)]
    assert world.log.is_offline
    assert world.log.high_watermark == 1
    for act in (
        lambda: append(world.log),
        lambda: world.log.read(0, 100),
        lambda: world.log.offset_for_timestamp(-1),
        lambda: world.log.delete_records_before(1),
        lambda: world.log.apply_retention(0),
        lambda: world.log.flush(),
    ):
        with pytest.raises(LogStorageError, match="restart the broker once the disk is in order"):
            act()
    late: list[BaseException | None] = []
    world.log.when_flushed(3, late.append)
    assert isinstance(late[0], LogStorageError)
    world.helpers.run_all()
    world.manager.run_due()
    world.helpers.run_all()
    assert world.files.syncs == syncs, "a failed sync was tried again"
    # No marker is written, so that the next start looks at everything; the acknowledged is there.
    world.manager.close()
    files = world.files.killed()
    assert not files.exists(DATA / ".kafka_cleanshutdown")
    assert open_log(files, SYNCED).log_end_offset >= 1


def test_a_directory_takes_all_its_logs_along_and_no_other_directorys() -> None:
    files, helpers = MemoryFiles(), Helpers.held()
    first, second = DATA / "one", DATA / "two"
    manager = LogManager(
        [first, second],
        files=files,
        clock=ManualClock(),
        helpers=helpers,
        broker_id=BrokerId(0),
        default_config=SYNCED,
    )
    manager.load()
    logs = [
        manager.create(PARTITION._replace(partition=number), TOPIC_ID, SYNCED)
        for number in range(4)
    ]
    assert [log.path.parent for log in logs] == [first, second, first, second]
    offline = []
    manager.on_directory_offline = lambda path, _: offline.append(path)
    told: list[tuple[int, bool]] = []
    for number, log in enumerate(logs):
        info = append(log)
        log.when_flushed(
            info.last_offset + 1, lambda error, n=number: told.append((n, error is None))
        )
    files.fail_sync_at = files.syncs + 1
    helpers.run_all()
    assert offline == [first]
    assert sorted(told) == [(0, False), (1, True), (2, False), (3, True)]
    assert [log.is_offline for log in logs] == [True, False, True, False]
    # New logs go to the remaining directory.
    assert manager.create(PARTITION._replace(partition=9), TOPIC_ID, SYNCED).path.parent == second
    manager.close()
    assert not files.exists(first / ".kafka_cleanshutdown")
    assert files.exists(second / ".kafka_cleanshutdown")


def test_a_close_waits_for_the_sync_that_is_under_way_and_hears_of_its_failure() -> None:
    world = World(replace(SMALL, segment_bytes=2 * len(batch())))
    for _ in range(3):
        world.send()
    assert len(world.helpers.waiting) == 1
    world.files.fail_sync_at = world.files.syncs + 1
    with pytest.raises(LogStorageError):
        world.log.flush()
    assert world.log.is_offline


def test_a_sync_that_finds_its_log_deleted_takes_nothing_offline() -> None:
    """The directory whose names it is to make durable has been renamed."""
    config = replace(SMALL, segment_bytes=3_000)
    helpers = Helpers.held()
    manager = open_manager(MemoryFiles(), config=config, helpers=helpers)
    log = manager.create(PARTITION, TOPIC_ID, config)
    while len(log.segments) < 2:
        append(log)
    outcomes: list[BaseException | None] = []
    log.when_flushed(log.log_end_offset, outcomes.append)
    manager.delete(PARTITION)
    helpers.run_all()
    assert [str(outcome) for outcome in outcomes] == ["topic-0 was deleted"]
    assert not log.log_directory.is_offline


def test_epochs_that_find_their_log_deleted_take_nothing_offline() -> None:
    helpers = Helpers.held()
    manager = open_manager(MemoryFiles(), helpers=helpers)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    log.begin_epoch(LeaderEpoch(3))
    append(log)
    log.start_flush(with_indexes=True)
    manager.delete(PARTITION)
    helpers.run_all()
    assert not log.log_directory.is_offline


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline() -> None:
    settings = LogManagerSettings(high_watermark_checkpoint_interval_ms=100)
    world = World(SMALL, settings)
    world.send()
    world.files.fail_sync_at = world.files.syncs + 1
    world.clock.advance(100)
    world.manager.run_due()
    world.helpers.run_all()
    assert world.offline == [str(DATA)]
