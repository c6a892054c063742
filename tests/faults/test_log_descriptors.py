"""At each open in turn no descriptor is left: only the operation that needs one is refused."""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from klog_broker.log.errors import LogStorageError, OutOfDescriptors
from klog_broker.log.maintenance.record_removal import TRIES_WITHOUT_DESCRIPTORS
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import LeaderEpoch
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.logs import HostedLog
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

CONFIG = replace(
    SMALL, segment_bytes=2_000, index_interval_bytes=0, retention_ms=-1, file_delete_delay_ms=0
)
OTHER = PARTITION._replace(partition=1)
HOUR_MS = 3_600_000


class World(HostedLog):
    """A log of a few segments, and its acknowledged records."""

    def __init__(self) -> None:
        self.offline: list[str] = []
        super().__init__(CONFIG, helpers=Helpers())
        self.manager.on_directory_offline = lambda path, _: self.offline.append(str(path))
        self.acknowledged: list[bytes] = []
        for _ in range(12):
            self.append()

    def append(self) -> None:
        value = b"%d" % len(self.acknowledged) + b"v" * 300
        append(self.log, batch(value=value, producer_id=1, base_sequence=len(self.acknowledged)))
        self.acknowledged.append(value)

    def flush(self) -> None:
        errors: list[BaseException | None] = []
        self.log.when_flushed(self.log.log_end_offset, errors.append)
        self.clock.advance(1_000)
        self.manager.run_due()
        if not errors:
            raise OutOfDescriptors("it waits for the next round")
        assert errors == [None]

    def append_and_flush_by_and_by(self) -> None:
        self.append()
        self.flush()

    def housekeep(self) -> None:
        self.clock.advance(HOUR_MS)
        self.manager.run_due()

    def create_other(self) -> None:
        self.manager.create(OTHER, TOPIC_ID, CONFIG)

    def retain(self) -> None:
        self.log.update_config(replace(CONFIG, retention_ms=1))
        self.log.apply_retention(self.clock.now_ms() + 10**9)

    def delete(self) -> None:
        self.manager.delete(PARTITION)

    def lead_and_flush(self) -> None:
        self.log.begin_epoch(LeaderEpoch(7))
        self.log.flush()

    def sizes(self) -> dict[str, int]:
        path = self.log.path
        names = [str(name) for name in self.files.list_dir(path)]
        return {name: len(self.files.read_bytes(path / name)) for name in names}

    def check(self, log: PartitionLog) -> None:
        assert [record.value for record in read_all(log)] == self.acknowledged


def acts() -> dict[str, Callable[[World], None]]:
    return {
        "append": World.append,
        "append and flush": World.append_and_flush_by_and_by,
        "housekeep": World.housekeep,
        "create": World.create_other,
        "lead and flush": World.lead_and_flush,
        "retain": World.retain,
        "read": lambda world: world.check(world.log),
        "look up": lambda world: world.log.offset_for_timestamp(1_000) and None,
        "close": lambda world: world.manager.close(),
    }


@pytest.mark.parametrize("name", list(acts()))
def test_an_operation_without_a_descriptor_is_refused_and_works_later(name: str) -> None:
    act = acts()[name]
    number = refused = 0
    while True:
        number += 1
        world = World()
        while name.startswith("append") and world.log.segments[-1].size_bytes < 1_600:
            world.append()
        segments = len(world.log.segments)
        sizes = world.sizes()
        world.files.fail_open_at = world.files.opens + number
        try:
            act(world)
        except OutOfDescriptors as error:
            refused += 1
            has_rolled = len(world.log.segments) > segments
            assert name != "append" or has_rolled or world.sizes() == sizes
            if "it waits" not in str(error):
                assert "`ulimit -n`" in str(error)
        except OSError as error:  # a reader's error; the broker answers KAFKA_STORAGE_ERROR
            refused += 1
            assert (error.errno, name in ("read", "look up")) == (errno.EMFILE, True)
        over = world.files.opens < world.files.fail_open_at
        world.files.fail_open_at = None
        assert world.offline == []
        assert not world.log.is_offline
        if name == "retain":
            assert len(world.log.segments) in (1, segments)
            del world.acknowledged[: world.log.log_start_offset]
        if name != "close":
            if name != "retain":
                act(world)
                world.append()
            world.check(world.log)
            if name == "append and flush":
                assert world.log.flushed_offset >= world.log.log_end_offset - 1
        # A power cut may bring deleted segments back.
        if name != "retain":
            lost_power = open_log(world.files.crash(Random(1)), CONFIG)
            kept = [record.value for record in read_all(lost_power)]
            assert kept == world.acknowledged[: len(kept)]
            assert len(kept) >= world.log.flushed_offset
        world.check(open_log(world.files.killed(), CONFIG))
        if over:
            break
    assert number > 1
    assert refused or name in ("housekeep", "close")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_that_runs_out_refuses_and_the_next_one_finds_everything(is_clean: bool) -> None:
    number = 0
    while True:
        number += 1
        world = World()
        if is_clean:
            world.manager.close()
        files = world.files.killed()
        files.fail_open_at = number
        try:
            manager = open_manager(files, config=CONFIG)
        except OSError as error:
            assert error.errno == errno.EMFILE
            assert files.locks == set()
        else:
            assert files.opens < number
            files.fail_open_at = None
            log = manager.get(PARTITION)
            assert log is not None
            world.check(log)
            break
        files.fail_open_at = None
        world.check(open_log(files, CONFIG))
    assert number > 10


def test_without_any_descriptor_an_append_goes_on_when_they_are_back() -> None:
    world = World()
    world.files.has_descriptors = False
    for _ in range(3):
        with pytest.raises(OutOfDescriptors, match="`ulimit -n`"):
            world.append()
        with pytest.raises(OutOfDescriptors, match="`ulimit -n`"):
            world.create_other()
    world.housekeep()
    world.files.has_descriptors = True
    world.append()
    world.create_other()
    world.check(world.log)
    assert world.offline == []
    # The leftovers of refused creations count as no log; a start removes them.
    files = world.files.killed()
    open_manager(files, config=CONFIG).run_due()
    names = [name for name in files.list_dir(DATA) if name.startswith("topic-")]
    assert names == ["topic-0", "topic-1"]


def test_a_cut_back_that_wants_for_a_descriptor_is_made_up_for() -> None:
    world = World()
    log = world.log
    size_bytes = log.segments[-1].size_bytes
    file = log.segments[-1].log_file
    world.files.short_write_bytes = 250
    truncate = file.truncate

    def exhausted(size: int) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    file.truncate = exhausted  # type: ignore[method-assign]
    with pytest.raises(LogStorageError, match="only 250 of"):
        world.append()
    assert file.size() == size_bytes + 250
    file.truncate = truncate  # type: ignore[method-assign]
    append(log, batch(value=b"", key=None, producer_id=2, base_sequence=0))
    world.acknowledged.append(b"")
    assert file.size() == log.segments[-1].size_bytes < size_bytes + 250
    assert world.offline == []
    world.check(open_log(world.files.killed(), CONFIG))


def test_a_flush_without_a_descriptor_is_repeated() -> None:
    world = World()
    world.append()
    answers: list[BaseException | None] = []
    world.files.has_descriptors = False
    world.log.when_flushed(world.log.log_end_offset, answers.append)
    assert answers == []
    world.files.has_descriptors = True
    world.clock.advance(2_000)
    world.manager.run_due()
    assert answers == [None]
    disk = world.files.crash(Random(0))
    assert len(read_all(open_log(disk, CONFIG))) == len(world.acknowledged)


def test_a_deletion_wants_for_no_descriptor() -> None:
    world = World()
    world.files.has_descriptors = False
    world.delete()
    assert world.manager.get(PARTITION) is None
    world.files.has_descriptors = True
    assert not world.files.exists(DATA / "topic-0")
    assert world.offline == []


# --- cuts ----------------------------------------------------------------------------------------
def cut(world: World, outcomes: list[BaseException | None]) -> None:
    """Truncate to an offset some segments back, in the middle of one."""
    world.log.truncate_async(6, outcomes.append)


def cut_the_last(world: World, outcomes: list[BaseException | None]) -> None:
    world.log.truncate_async(len(world.acknowledged) - 1, outcomes.append)


def start_over(world: World, outcomes: list[BaseException | None]) -> None:
    base_offset = world.log.segments[2].base_offset  # a new file gets the name of an old one
    world.log.start_over_async(base_offset, 5_000, outcomes.append)


CUTS = {"cut": cut, "cut the last": cut_the_last, "begin anew": start_over}


@pytest.mark.parametrize("name", list(CUTS))
@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_truncation_without_a_descriptor_is_repeated(name: str, is_flushed: bool) -> None:
    number = tried_again = 0
    while True:
        number += 1
        world = World()
        if is_flushed:
            world.flush()
        old = list(world.acknowledged)
        outcomes: list[BaseException | None] = []
        world.files.fail_open_at = world.files.opens + number
        CUTS[name](world, outcomes)
        over = world.files.opens < world.files.fail_open_at
        for _ in range(3):
            if outcomes:
                break
            tried_again += 1
            assert world.log.is_being_cut
            with pytest.raises(LogStorageError, match="is being cut"):
                world.append()
            check_prefix(open_log(world.files.killed(), CONFIG), old)
            check_prefix(open_log(world.files.crash(Random(number)), CONFIG), old)
            world.files.is_crashed = False
            # The next try fails at another open.
            world.files.fail_open_at = world.files.opens + number // 2
            world.clock.advance(1_000)
            world.manager.run_due()
        world.files.fail_open_at = None
        while not outcomes:
            world.clock.advance(1_000)
            world.manager.run_due()
        assert (outcomes, world.offline, world.log.is_offline) == ([None], [], False)
        first, end = world.log.log_start_offset, world.log.log_end_offset
        assert (first, end) == {
            "cut": (0, 6),
            "cut the last": (0, len(old) - 1),
            "begin anew": (world.log.segments[0].base_offset, first),
        }[name]
        values = [] if name == "begin anew" else old[:end]
        for value in (b"new" * 100, b"newer" * 100):
            append(world.log, batch(value=value))
            values.append(value)
        for log in (world.log, open_log(world.files.killed(), CONFIG)):
            assert [record.value for record in read_all(log)] == values
            assert (log.log_start_offset, log.log_end_offset) == (first, end + 2)
        world.files.is_crashed = False
        world.manager.close()
        assert [each.value for each in read_all(open_log(world.files.killed(), CONFIG))] == values
        if over:
            break
    assert tried_again > 10


def check_prefix(log: PartitionLog, values: list[bytes]) -> None:
    """Check that a start finds the first of these values, wherever the truncation has stopped."""
    found = [record.value for record in read_all(log, log.log_end_offset)]
    assert found == values[: len(found)]


@pytest.mark.parametrize("name", list(CUTS))
def test_a_cut_is_not_tried_for_ever(name: str) -> None:
    world = World()
    outcomes: list[BaseException | None] = []
    world.files.has_descriptors = False
    CUTS[name](world, outcomes)
    rounds = 0
    while not outcomes:
        rounds += 1
        assert rounds < 100
        world.clock.advance(1_000)
        world.manager.run_due()
    assert isinstance(outcomes[0], LogStorageError)
    assert (world.log.is_offline, world.log.is_being_cut, world.offline) == (True, False, [])
    assert rounds == TRIES_WITHOUT_DESCRIPTORS - 1


@pytest.mark.parametrize("name", list(CUTS))
def test_a_cut_that_waits_is_given_up_when_its_directory_goes_offline(name: str) -> None:
    world = World()
    told: list[object] = []
    outcomes: list[BaseException | None] = []
    world.files.has_descriptors = False
    CUTS[name](world, outcomes)
    world.log.after_cut(lambda: told.append(len(outcomes)))
    world.log.log_directory.go_offline(OSError(errno.EIO, "the disk is gone"))
    world.files.has_descriptors = True
    opens = world.files.opens
    world.clock.advance(1_000)
    world.manager.run_due()
    assert (told, [type(each) for each in outcomes]) == ([1], [LogStorageError])
    assert (world.log.is_being_cut, world.files.opens) == (False, opens)


def test_a_broker_that_ends_while_a_cut_waits_has_not_ended_cleanly() -> None:
    world = World()
    world.flush()
    world.files.has_descriptors = False
    world.log.truncate_async(6, lambda _: None)
    world.files.has_descriptors = True
    world.manager.close()
    assert not world.files.exists(DATA / ".kafka_cleanshutdown")
    check_prefix(open_log(world.files.killed(), CONFIG), world.acknowledged)
