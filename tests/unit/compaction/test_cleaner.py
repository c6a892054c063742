"""The log cleaner on logs in memory: logs that it cleans, and reasons not to clean."""

import logging
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from klog_broker.compaction.settings import CleanerSettings
from klog_broker.log.errors import OutOfOrderSequence
from klog_broker.log.log_config import LogConfig
from klog_broker.log.maintenance.cleaning import LogCleaning
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.record import Record
from pyspark_klog.storage.names import CLEANER_CHECKPOINT, Suffix, segment_file_name
from pyspark_klog.storage.text_files import encode_offset_checkpoint
from tests.support.cluster.logs import HostedLog
from tests.support.compaction.cleaner_harness import (
    CleanerBench,
    clean,
    last_records,
    problems_of_cleaned,
)
from tests.support.log.harness import (
    DATA,
    PARTITION,
    TOPIC_ID,
    append,
    batch,
    open_manager,
    read_all,
    read_batches,
)
from tests.support.log.transactional_log import append_end_marker, write

CONFIG = LogConfig(
    segment_bytes=4_096,
    segment_index_bytes=4_096,
    index_interval_bytes=256,
    compact=True,
    delete=False,
    delete_retention_ms=1_000,
)
# With a limit of the lag, a check reads the first batch of each dirty segment.
LAGGING = replace(CONFIG, max_compaction_lag_ms=1_000)
FOLDER = DATA / f"{PARTITION.topic}-{PARTITION.partition}"


class World(HostedLog):
    """A manager with one log and its cleaner."""

    def __init__(self, config: LogConfig = CONFIG, settings: CleanerSettings | None = None) -> None:
        super().__init__(config)
        self.bench = CleanerBench(self.manager, self.helpers, self.clock, settings)
        self.written: list[Record] = []

    def write(self, count: int, *, keys: int = 5, **fields: object) -> None:
        for number in range(count):
            append(self.log, batch(key=b"k%d" % (number % keys), **fields), self.clock.now_ms())  # type: ignore[arg-type]
        known = self.written[-1].offset if self.written else -1
        self.written += [each for each in read_all(self.log) if each.offset > known]
        self.helpers.run_all()

    def names(self, end: str) -> list[str]:
        return [name for name in self.files.list_dir(FOLDER) if name.endswith(end)]


@pytest.fixture
def world() -> World:
    return World()


def _closed(log: PartitionLog) -> list[Record]:
    return [each for each in read_all(log) if each.offset < log.segments[-1].base_offset]


def test_only_the_last_record_of_each_key_stays(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    assert problems_of_cleaned(world.log, world.written) == []
    assert len(_closed(world.log)) == 5
    assert world.log.cleaned_offset == world.log.segments[-1].base_offset
    assert world.names(".swap") == world.names(".cleaned") == []


def test_a_restart_goes_on_where_the_last_round_ended(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    cleaned_offset = world.log.cleaned_offset
    found = read_all(world.log)
    world.manager.close()
    manager = open_manager(world.files, config=CONFIG, helpers=world.helpers)
    log = manager.get(PARTITION)
    assert log is not None
    assert log.cleaned_offset == cleaned_offset
    assert read_all(log) == found


def test_readers_in_the_middle_keep_what_they_read(world: World) -> None:
    world.write(100)
    regions = [world.log.read(n, 1_000, min_one_batch=True).region for n in range(0, 90, 7)]
    before = [r.file.pread(r.size, r.position) for r in regions if r is not None]
    world.bench.start_checks()
    while world.bench.step():
        again = [r.file.pread(r.size, r.position) for r in regions if r is not None]
        assert again == before
        assert last_records(read_all(world.log)) == last_records(world.written)


def test_a_tombstone_is_removed_after_delete_retention_ms(world: World) -> None:
    world.write(60)
    world.write(1, keys=1, value=None)
    world.write(60, keys=5)  # of which the first is k0: a new value
    world.write(5, value=None)
    world.write(40, keys=1)
    world.bench.start_checks()
    world.bench.run()
    deleted = {b"k%d" % n for n in range(1, 5)}
    tombstones = {each.key for each in _closed(world.log) if each.value is None}
    assert tombstones == deleted
    horizons = {view.delete_horizon_ms for view in read_batches(world.log)} - {None}
    assert horizons == {world.clock.now_ms() + 1_000}
    world.clock.advance(999)
    world.write(60, keys=1)
    world.bench.look_again()
    assert {each.key for each in _closed(world.log) if each.value is None} == deleted
    world.clock.advance(1)
    world.write(60, keys=1)
    world.bench.look_again()
    assert [each for each in _closed(world.log) if each.value is None] == []


def test_a_log_with_damage_is_set_aside_and_its_neighbours_are_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(100)
    segment = world.log.segments[1]
    data = bytearray(segment.log_file.pread(segment.size_bytes, 0))
    data[500] ^= 1
    segment.log_file.pwrite(data, 0)
    world.bench.start_checks()
    with caplog.at_level(logging.ERROR, "klog.cleaner"):
        world.bench.run()
    (reason,) = world.bench.cleaner.set_aside.values()
    assert "crc" in reason.lower()
    assert "set_aside" in caplog.text
    assert world.names(".cleaned") == []
    assert read_all(world.log, world.log.segments[1].base_offset)[-1].offset > 0
    world.bench.look_again()
    assert not world.helpers.waiting


def test_a_topic_that_is_created_again_after_damage_is_cleaned(world: World) -> None:
    world.write(100)
    world.log.segments[0].log_file.pwrite(b"\xff" * 100, 100)
    world.bench.start_checks()
    world.bench.run()
    assert list(world.bench.cleaner.set_aside) == [world.log]
    world.manager.delete(PARTITION)
    log = world.manager.create(PARTITION, UUID(int=99), CONFIG)
    for number in range(100):
        append(log, batch(key=b"k%d" % (number % 5)), world.clock.now_ms())
    world.bench.look_again()
    world.bench.look_again()
    assert world.bench.cleaner.set_aside == {}
    assert len(_closed(log)) == 5


def test_another_log_is_cleaned_though_one_is_damaged(world: World) -> None:
    world.write(100)
    world.log.segments[0].log_file.pwrite(b"\xff" * 100, 100)
    other = world.manager.create(TopicPartition("other", 0), TOPIC_ID, CONFIG)
    for number in range(100):
        append(other, batch(key=b"k%d" % (number % 5)), world.clock.now_ms())
    world.bench.start_checks()
    world.bench.run()
    world.bench.look_again()
    assert list(world.bench.cleaner.set_aside) == [world.log]
    assert len(_closed(other)) == 5


def test_a_full_disk_is_tried_again(world: World) -> None:
    world.write(100)
    world.files.free_bytes = 10
    world.bench.start_checks()
    world.bench.run()
    assert world.bench.cleaner.set_aside == {}
    assert read_all(world.log) == world.written
    assert not world.log.is_offline
    world.files.free_bytes = None
    world.bench.look_again()
    assert len(_closed(world.log)) == 5


def test_a_failed_sync_of_the_new_segment_loses_nothing(world: World) -> None:
    world.write(100)
    world.files.fail_sync_at = world.files.syncs + 1
    world.bench.start_checks()
    world.bench.run()
    assert read_all(world.log) == world.written
    assert not world.log.is_offline
    assert list(world.bench.cleaner.set_aside) == [world.log]


def _with_a_slow_flush() -> tuple[World, dict[bytes | None, Record]]:
    """60 flushed records of as many keys, and three segments of the first key whose flush has not
    come to its end; with what was flushed."""
    world = World()
    world.write(60, keys=60)
    world.log.flush()
    flushed = last_records(read_all(world.log))
    count = len(world.log.segments)
    while len(world.log.segments) < count + 3:
        append(world.log, batch(key=b"k0"))
    assert world.log.flushed_offset < world.log.segments[-2].base_offset
    world.helpers.waiting.clear()
    world.bench.start_checks()
    return world, flushed


def test_a_flushed_record_does_not_go_for_one_that_a_power_cut_takes() -> None:
    """A round's new segments take their places one after the other."""
    whole, _ = _with_a_slow_flush()
    steps = 0
    while whole.bench.step():
        steps += 1
    for step in range(steps):
        world, flushed = _with_a_slow_flush()
        for _ in range(step):
            world.bench.step()
        log = open_manager(world.files.crash(Random(0)), config=CONFIG).get(PARTITION)
        assert log is not None
        found = last_records(read_all(log))
        assert found.keys() == flushed.keys(), f"step {step}"
        assert all(found[key].offset >= record.offset for key, record in flushed.items())


def test_a_log_that_is_cut_in_the_middle_is_not_swapped(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    for _ in range(3):
        world.bench.step()
    waiting, world.helpers.waiting = list(world.helpers.waiting), type(world.helpers.waiting)()
    world.log.truncate_async(20, lambda error: None)
    world.helpers.run_all()
    world.helpers.waiting.extend(waiting)
    world.bench.run()
    assert [each.offset for each in read_all(world.log)] == list(range(20))
    assert world.names(".swap") == world.names(".cleaned") == []
    assert world.bench.cleaner.set_aside == {}


def test_no_record_goes_for_one_that_was_cut_meanwhile(world: World) -> None:
    world.write(60, keys=60)
    world.write(60, keys=1)
    world.bench.start_checks()
    while not world.names(".cleaned"):
        assert world.bench.step()
    waiting, world.helpers.waiting = list(world.helpers.waiting), type(world.helpers.waiting)()
    world.log.truncate_async(60, lambda error: None)
    world.helpers.run_all()
    world.helpers.waiting.extend(waiting)
    world.bench.run()
    assert read_all(world.log) == world.written[:60]
    assert world.bench.cleaner.set_aside == {}


def test_a_log_is_cut_only_when_a_swap_is_over(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    while not world.names(".log.swap"):
        assert world.bench.step()
    outcomes: list[BaseException | None] = []
    world.log.truncate_async(20, outcomes.append)
    world.bench.run()
    assert outcomes == [None]
    assert world.names(".swap") == []
    assert world.log.log_end_offset == 20
    assert (world.log.cleaned_offset or 0) <= 20
    world.manager.close()
    again = open_manager(world.files, config=CONFIG).get(PARTITION)
    assert again is not None
    # The remaining log may end before the cut: cleaned offsets have no batch.
    assert again.log_end_offset <= 20
    assert {each.offset for each in read_all(again)} <= set(range(20))


def test_a_cut_log_is_dirty_again(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    truncate_offset = world.log.segments[-1].base_offset - 3
    outcomes: list[BaseException | None] = []
    world.log.truncate_async(truncate_offset, outcomes.append)
    world.helpers.run_all()
    assert outcomes == [None]
    assert world.log.cleaned_offset == truncate_offset


def test_a_log_knows_up_to_which_offset_it_was_compacted(world: World) -> None:
    world.write(100)
    assert world.log.compacted_before == world.log.high_watermark == 100
    world.bench.start_checks()
    world.bench.run()
    world.manager.close()
    # A topic that is not compacted any more.
    manager = open_manager(world.files, config=replace(CONFIG, compact=False, delete=True))
    log = manager.get(PARTITION)
    assert log is not None
    assert log.compacted_before == 100
    log.start_over_async(0, 0, lambda error: None)
    assert log.compacted_before == 0


def test_a_deleted_log_is_given_up(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    for _ in range(4):
        world.bench.step()
    world.manager.delete(PARTITION)
    world.bench.run()
    assert world.bench.cleaner.set_aside == {}


def test_retention_waits_for_a_round() -> None:
    world = World(replace(CONFIG, delete=True, retention_ms=1))
    world.write(100)
    world.bench.start_checks()
    world.bench.step()
    world.clock.advance(10_000)
    assert world.log.apply_retention(world.clock.now_ms()) == 0
    world.bench.run()
    # Retention runs as soon as the round ends, because another round could follow at once.
    assert len(world.log.segments) == 1
    assert world.log.apply_retention(world.clock.now_ms()) == 0


def test_a_swap_that_has_begun_wants_for_no_descriptor(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    while not world.names(".log.swap"):
        assert world.bench.step()
    world.files.has_descriptors = False
    for _ in range(3):
        world.bench.step()
    world.files.has_descriptors = True
    world.bench.run()
    assert not world.log.is_offline
    assert world.names(".swap") == []
    assert problems_of_cleaned(world.log, world.written) == []


def test_without_a_descriptor_a_swap_does_not_begin(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    while not world.names(".log.cleaned"):
        assert world.bench.step()
    world.files.has_descriptors = False
    world.bench.run()
    assert not world.log.is_offline
    assert world.bench.cleaner.set_aside == {}
    world.files.has_descriptors = True
    assert read_all(world.log) == world.written
    world.bench.look_again()
    assert len(_closed(world.log)) == 5


def _bench_after_restart(world: World) -> CleanerBench:
    """Return a bench over the logs as the next start of the broker loads them: no timestamps of
    segments are in memory."""
    world.manager.close()
    manager = open_manager(world.files, config=LAGGING, helpers=world.helpers, clock=world.clock)
    return CleanerBench(manager, world.helpers, world.clock)


def test_a_log_that_was_checked_without_a_descriptor_is_cleaned_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(LAGGING)
    world.write(100)
    bench = _bench_after_restart(world)
    world.files.has_descriptors = False
    bench.start_checks()
    bench.run()
    assert bench.cleaner.set_aside == {}
    assert "tries again later" in caplog.text
    world.files.has_descriptors = True
    bench.look_again()
    assert bench.cleaner.counts.rounds == 1


def test_a_log_whose_first_batch_is_damaged_is_set_aside_and_other_logs_are_cleaned() -> None:
    world = World(LAGGING)
    world.write(100)
    other = world.manager.create(TopicPartition("zz-behind", 0), UUID(int=99), LAGGING)
    for number in range(100):
        append(other, batch(key=b"k%d" % (number % 5)), world.clock.now_ms())
    world.helpers.run_all()
    world.log.segments[0].log_file.pwrite(b"\xff" * 61, 0)
    bench = _bench_after_restart(world)
    bench.start_checks()
    bench.run()
    assert [log.topic_partition for log in bench.cleaner.set_aside] == [PARTITION]
    assert bench.cleaner.counts.rounds == 1


def test_a_broker_that_stops_leaves_nothing_of_a_round(world: World) -> None:
    world.write(100)
    world.bench.start_checks()
    while not world.names(".log.cleaned"):
        assert world.bench.step()
    world.helpers.waiting.clear()
    world.bench.cleaner.close()
    assert world.names(".cleaned") == []
    world.manager.close()


def test_a_log_that_is_closed_in_a_swap_leaves_nothing_open(world: World) -> None:
    world.write(100)
    found = read_all(world.log)
    readers_have = world.log.segments
    world.bench.start_checks()
    while not world.names(".log.swap"):
        for each in readers_have:
            assert len(each.offset_index.view())
        assert world.bench.step()
    world.helpers.waiting.clear()
    world.bench.cleaner.close()
    world.manager.close()
    assert world.files.open_mappings == 0
    log = open_manager(world.files, config=CONFIG).get(PARTITION)
    assert log is not None
    assert last_records(read_all(log)) == last_records(found)


def test_a_clean_part_ends_with_the_log(world: World) -> None:
    """If a power cut removes the end of a log, records appended there later are not clean."""
    world.write(100)
    world.manager.close()
    checkpoint = DATA / CLEANER_CHECKPOINT
    data = encode_offset_checkpoint({PARTITION: 1_000})
    world.files.write_atomically(checkpoint, data)
    log = open_manager(world.files, config=CONFIG).get(PARTITION)
    assert log is not None
    assert log.cleaned_offset == log.log_end_offset


def test_missing_records_are_no_gap_of_compaction(world: World) -> None:
    """A segment whose tail was lost at a batch's end, in a log that was never cleaned."""
    world.write(100)
    sizes = [each.size_bytes for each in read_batches(world.log, 10)]
    files = world.files.killed()
    files.open(FOLDER / segment_file_name(0, Suffix.LOG)).truncate(sum(sizes))
    log = open_manager(files, config=CONFIG).get(PARTITION)
    assert log is not None
    offsets = [each.offset for each in read_all(log)]
    assert offsets == list(range(len(sizes)))


def test_an_aborted_transaction_goes_and_then_its_marker(world: World) -> None:
    log, clock = world.log, world.clock
    _two_transactions(world)
    _clean_again(world)
    assert {each.value for each in read_all(log)} & {b"void", b"old"} == set()
    # The last batch of an active producer stays, without records, and so does its marker.
    assert [view.record_count for view in read_batches(log) if view.producer_id == 7] == [0, 1]
    _clean_again(world)
    assert [view.delete_horizon_ms for view in _markers(log)] == [None, None]
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 1

    clock.advance(10_000)
    log.expire_producers(clock.now_ms(), 1)
    _clean_again(world)
    assert [view.delete_horizon_ms for view in _markers(log)] == [None, None]
    _clean_again(world)
    horizon_ms = clock.now_ms() + 1_000
    assert [view.delete_horizon_ms for view in _markers(log)] == [horizon_ms] * 2
    assert log.aborted_transactions(0, log.log_end_offset) == []
    clock.advance(999)
    _clean_again(world)
    assert len(_markers(log)) == 2
    clock.advance(1)
    _clean_again(world)
    assert _markers(log) == []


def test_a_producer_goes_on_after_a_cleaning_and_a_restart(world: World) -> None:
    _two_transactions(world)
    _clean_again(world)
    world.manager.close()
    for name in world.names(".snapshot"):
        world.files.remove(FOLDER / name)
    log = open_manager(world.files, config=CONFIG).get(PARTITION)
    assert log is not None
    assert [each.producer_epoch for each in log.producers] == [0, 0]
    with pytest.raises(OutOfOrderSequence):
        write(log, 7, 5)
    write(log, 7, 1)


def _two_transactions(world: World) -> None:
    log = world.log
    write(log, 7, 0, value=b"void")
    append_end_marker(log, 7, commit=False)
    write(log, 8, 0, value=b"old")
    append_end_marker(log, 8, commit=True)
    append(log, batch(key=b"k"), world.clock.now_ms())


def _clean_again(world: World) -> None:
    """Write so much that the next round is due, and run it."""
    world.write(100)
    if world.log.cleaned_offset is None:
        world.bench.start_checks()
        world.bench.run()
    else:
        world.bench.look_again()


def _markers(log: PartitionLog) -> list[BatchView]:
    return [view for view in read_batches(log) if view.is_control]


def test_work_is_throttled() -> None:
    world = World(settings=CleanerSettings(max_bytes_per_second=10_000.0))
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    pauses_ms = []
    while any(delay_ms != 15_000 for delay_ms, _ in world.bench.timers.later):
        pauses_ms += [delay_ms for delay_ms, _ in world.bench.timers.later]
        world.clock.advance(pauses_ms[-1])
        world.bench.look_again()
    assert len(_closed(world.log)) == 5
    # All of the closed segments are read twice.
    assert sum(pauses_ms) >= 2 * 100 * 180 * 0.8 / 10


def test_a_round_that_pauses_goes_on_when_it_may_work_faster() -> None:
    world = World(settings=CleanerSettings(max_bytes_per_second=1.0))
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    assert len(_closed(world.log)) > 5
    old_timers = list(world.bench.timers.later)
    world.bench.cleaner.apply_settings(CleanerSettings())
    world.bench.run()
    assert len(_closed(world.log)) == 5
    # The pause that is over by now brings no second step of the round.
    for _, callback in old_timers:
        callback()
    world.bench.run()
    assert problems_of_cleaned(world.log, world.written) == []


def test_another_backoff_counts_at_once() -> None:
    world = World(settings=CleanerSettings(backoff_ms=1_000_000))
    world.bench.start_checks()
    world.bench.run()
    world.write(100)
    world.bench.cleaner.apply_settings(CleanerSettings(backoff_ms=7))
    world.bench.run()
    assert len(_closed(world.log)) == 5
    assert [delay_ms for delay_ms, _ in world.bench.timers.later] == [1_000_000, 7]
    world.bench.look_again()
    assert [delay_ms for delay_ms, _ in world.bench.timers.later] == [7]


def test_with_fewer_threads_no_round_begins_before_enough_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(settings=CleanerSettings(threads=3))
    others = [TopicPartition("more", number) for number in range(5)]
    logs = [world.log, *(world.manager.create(each, TOPIC_ID, CONFIG) for each in others)]
    rounds: list[int] = [0]

    def count(cleaning: LogCleaning, name: str, by: int) -> None:
        known = getattr(cleaning, name)

        def counted(*given: int) -> None:
            rounds.append(rounds[-1] + by)
            known(*given)

        monkeypatch.setattr(cleaning, name, counted)

    for log in logs:
        count(log.cleaning, "begin_round", 1)
        count(log.cleaning, "end_round", -1)
        for number in range(100):
            append(log, batch(key=b"k%d" % (number % 5)), world.clock.now_ms())
    world.helpers.run_all()
    world.bench.start_checks()
    while world.bench.timers.soon:
        world.bench.step()
    assert rounds == [0, 1, 2, 3]
    world.bench.cleaner.apply_settings(CleanerSettings(threads=1))
    world.bench.run()
    assert rounds == [0, 1, 2, 3, 2, 1, *[0, 1] * 3, 0]
    assert [len(_closed(log)) for log in logs] == [5] * 6


def test_a_broker_without_a_cleaner_does_not_look(world: World) -> None:
    world.bench = CleanerBench(
        world.manager, world.helpers, world.clock, CleanerSettings(enabled=False)
    )
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    assert read_all(world.log) == world.written


def test_no_round_begins_without_its_kernels(world: World) -> None:
    """The broker may stop while the kernels are still being compiled."""
    are_there = [False, True]
    world.bench = CleanerBench(
        world.manager, world.helpers, world.clock, prepare=lambda: are_there.pop(0)
    )
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    assert are_there == [True]
    assert read_all(world.log) == world.written
    world.bench.look_again()
    assert world.bench.cleaner.set_aside == {}
    assert len(_closed(world.log)) == 5


def test_a_log_that_is_not_compacted_stays() -> None:
    world = World(replace(CONFIG, compact=False))
    world.write(100)
    clean(world.manager, world.helpers, world.clock)
    assert read_all(world.log) == world.written


def test_small_segments_of_state_are_rolled_early_and_become_one() -> None:
    config = replace(CONFIG, segment_bytes=1 << 20, active_segment_bytes=2_048)
    world = World(config)
    world.write(300)
    assert len(world.log.segments) > 10
    assert all(each.size_bytes <= 2_048 for each in world.log.segments)
    world.bench.start_checks()
    world.bench.run()
    assert len(world.log.segments) == 2
    assert problems_of_cleaned(world.log, world.written) == []


def test_a_log_that_is_being_truncated_is_not_cleaned(world: World) -> None:
    world.write(100)
    world.log.truncate_async(world.log.log_end_offset - 3, lambda error: None)
    assert world.log.is_being_cut
    waiting = list(world.helpers.waiting)
    world.bench.start_checks()
    while world.bench.timers.soon:
        world.bench.step()
    assert list(world.helpers.waiting) == waiting


def test_nothing_is_cleaned_while_the_disk_is_too_full(world: World) -> None:
    """Old and new segments need room side by side."""
    world.write(100)
    space = world.log.log_directory.space
    space.update(0, 1_000)
    world.bench.start_checks()
    world.bench.run()
    assert world.log.cleaned_offset is None
    space.update(1 << 30, 1_000)
    world.bench.look_again()
    assert world.log.cleaned_offset


def test_a_log_that_fails_before_its_round_begins_is_not_read() -> None:
    world = World()
    world.write(100)
    for number in range(1, 50):  # As many logs as a turn looks at: the round begins in the next.
        world.manager.create(PARTITION._replace(partition=number), TOPIC_ID, CONFIG)
    world.bench.start_checks()
    world.log.read_failed(OSError(5, "the disk is gone"))
    while world.bench.timers.soon:
        world.bench.step()
    assert not world.log._state.is_being_cleaned
    assert not world.helpers.waiting


def test_a_round_over_a_log_that_is_deleted_ends_without_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write(100)
    log = world.log
    world.bench.start_checks()
    world.bench.step()
    world.manager.delete(PARTITION)
    world.bench.run()
    assert not log._state.is_being_cleaned
    assert world.bench.cleaner.set_aside == {}
    assert "not cleaned" not in caplog.text


def test_a_paused_round_over_a_log_that_fails_reads_no_more() -> None:
    world = World(settings=CleanerSettings(max_bytes_per_second=1.0))
    world.write(100)
    world.bench.start_checks()
    world.bench.run()
    assert world.log._state.is_being_cleaned
    world.log.read_failed(OSError(5, "the disk is gone"))
    ((_, resume),) = world.bench.timers.later
    resume()
    world.helpers.run_one()
    assert not world.log._state.is_being_cleaned
