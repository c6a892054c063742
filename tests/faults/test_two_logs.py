"""Two logs of a partition lead and follow in turns, as a seed chooses, and must stay equal.

The steps are transactions, DeleteRecords, retention, cleaning, kills, power cuts (in the middle of
a truncation, too), and fresh disks. The follower's state machine is the broker's own; the network
between brokers is left out. Whenever the follower has caught up, both logs must have equal content.
"""

from dataclasses import replace
from random import Random

import pytest

from klog_broker.log.errors import OffsetOutOfRange
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.producer_state import ProducerEntry
from klog_broker.replication.follower_state import (
    AppendRecords,
    AskingEnds,
    FetchedPart,
    Fetching,
    FollowBounds,
    FollowerState,
    StartOver,
    Step,
    Truncate,
)
from klog_broker.replication.truncation import is_diverging_epoch
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, Offset
from tests.support.cluster.helpers import Helpers
from tests.support.compaction.cleaner_harness import CleanerBench
from tests.support.log.harness import (
    CLUSTER,
    DATA,
    PARTITION,
    TOPIC_ID,
    append_in,
    batch,
    read_all,
    read_batches,
)
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import Crashed, MemoryFiles

CONFIG = LogConfig(
    segment_index_bytes=65_536,
    retention_ms=-1,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=10**12,
    file_delete_delay_ms=0,
)
MOST_FETCHES = 3_000
TRANSACTIONAL = (1, 2)
PRODUCERS = (*TRANSACTIONAL, 3)


class Replica:
    """A log on a disk of its own, whose helpers run late."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.open(MemoryFiles())

    def open(self, files: MemoryFiles) -> None:
        self.files = files
        self.helpers = Helpers.held()
        self.manager = LogManager(
            [DATA],
            files=files,
            clock=ManualClock(),
            helpers=self.helpers,
            broker_id=BrokerId(0),
            cluster_id=CLUSTER,
            default_config=self.config,
            chance=Chance(0),
        )
        self.manager.load()
        self.log: PartitionLog = self.manager.create(PARTITION, TOPIC_ID, self.config)

    def clean(self) -> None:
        bench = CleanerBench(self.manager, self.helpers)
        bench.start_checks()
        bench.run()
        assert bench.cleaner.set_aside == {}


class TwoLogs:
    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        self.config = replace(
            CONFIG,
            segment_bytes=random.choice((700, 2_000, 5_000)),
            segment_index_bytes=random.choice((64, 4_096)),
            index_interval_bytes=random.choice((100, 300)),
            retention_bytes=random.choice((-1, 4_000)),
            compact=random.random() < 0.5,
        )
        self.leader, self.follower = Replica(self.config), Replica(self.config)
        self.epoch = LeaderEpoch(-1)
        self.lead()

    def lead(self) -> None:
        """Begin the leader's next epoch."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.leader.log.begin_epoch(self.epoch)
        self.follow()

    def follow(self) -> None:
        self.state = FollowerState(self.follower.log, self.epoch, backoff_ms=0)

    # --- steps ------------------------------------------------------------------------------------
    def step(self) -> None:
        random = self.random
        for each in (self.leader, self.follower):
            if random.random() < 0.7:
                each.helpers.run_all()
            if random.random() < 0.05:
                each.manager.sync_recovery_points()
        either = random.choice((self.leader, self.follower))
        steps = (
            (40, self.append),
            (10, self.end_transaction),
            (22, self.fetch),
            (5, self.change_roles),
            (3, self.delete_records),
            (5, lambda: either.log.apply_retention(6_000)),
            (5, either.clean),
            (3, self.restart_leader),
            (3, self.restart_follower),
            (2, lambda: either.log.roll(5_000)),
            (2, self.lose_disk),
            (3, self.catch_up),
        )
        (what,) = random.choices([each[1] for each in steps], [each[0] for each in steps])
        what()

    def append(self) -> None:
        random, log = self.random, self.leader.log
        producer_id = random.choice((-1, *PRODUCERS))
        entry, count = log.producer(producer_id), random.randrange(1, 5)
        if producer_id < 0:
            time_ms = random.choice((-1, 5, 2_000 + log.log_end_offset)) if count == 1 else 3_000
            key = b"k%d" % random.randrange(6)
            append_in(log, self.epoch, batch(count, key=key, timestamp_ms=time_ms))
            return
        sequence = entry.last_sequence + 1 if entry is not None else 0
        epoch = entry.producer_epoch if entry is not None else 0
        is_transactional = producer_id in TRANSACTIONAL
        write(log, producer_id, sequence, count, epoch=epoch, is_transactional=is_transactional)

    def end_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        entry = self.leader.log.producer(producer_id)
        epoch = entry.producer_epoch if entry is not None else 0
        bump, commit = self.random.random() < 0.3, self.random.random() < 0.5
        append_end_marker(self.leader.log, producer_id, commit=commit, epoch=epoch + bump)

    def delete_records(self) -> None:
        log = self.leader.log
        log.delete_records_before(self.random.randint(log.log_start_offset, log.high_watermark))

    def lose_disk(self) -> None:
        self.follower = Replica(self.config)
        self.follow()

    def restart_leader(self) -> None:
        """Kill the leader, or cut its power with all data flushed, because it is in sync."""
        leader = self.leader
        leader.helpers.run_all()
        if self.random.random() < 0.5:
            leader.open(leader.files.killed())
        else:
            leader.log.flush()
            leader.open(leader.files.crash(self.random))
        self.lead()

    def restart_follower(self) -> None:
        """Kill or close the follower, or cut its power with any part of the unflushed data lost."""
        follower = self.follower
        how = self.random.choice(("killed", "closed", "cut"))
        if how == "cut":
            follower.open(follower.files.crash(self.random))
        else:
            follower.helpers.run_all()
            if how == "closed":
                follower.manager.close()
            follower.open(follower.files.killed())
        self.follow()

    def change_roles(self) -> None:
        """Swap the roles when the follower has all records below the high watermark.

        The old leader must truncate the records that it has beyond that.
        """
        for _ in range(MOST_FETCHES):
            self.fetch()
            start, end_offset = self.follower.log.log_start_offset, self.follower.log.log_end_offset
            if start <= self.leader.log.high_watermark <= end_offset and self.random.random() < 0.3:
                break
        self.leader, self.follower = self.follower, self.leader
        self.lead()

    # --- following -------------------------------------------------------------------------------
    def fetch(self) -> None:
        leader, state = self.leader.log, self.state
        asked = state.position(0, flushes_first=False)
        assert asked is not None
        error, diverging, records = ErrorCode.NONE, None, memoryview(b"")
        if asked.last_epoch >= 0:
            told = leader.end_offset_for_epoch(asked.last_epoch)
            if is_diverging_epoch(told, asked.offset, asked.last_epoch):
                diverging = told
        if asked.offset < leader.log_start_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif diverging is None:
            try:
                records = self.read(asked.offset)
                leader.set_high_watermark(asked.offset)
            except OffsetOutOfRange:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
        part = FetchedPart(
            error, records, leader.high_watermark, leader.log_start_offset, diverging
        )
        try:
            self.perform(state.handle_response(asked, part, 0), part)
            if isinstance(state.phase, AskingEnds):
                start, end_offset = leader.log_start_offset, leader.log_end_offset
                self.perform(state.handle_ends(self.epoch, start, end_offset, 0), part)
        except Crashed:
            files = self.follower.files
            is_killed = self.random.random() < 0.4
            self.follower.open(files.killed() if is_killed else files.crash(self.random))
            self.follow()

    def read(self, offset: Offset) -> memoryview:
        log, size = self.leader.log, self.random.choice((1, 300, 3_000))
        info = log.read(offset, size, end_offset=log.log_end_offset, min_one_batch=True)
        region = info.region
        return memoryview(region.file.pread(region.size, region.position) if region else b"")

    def perform(self, step: Step, part: FetchedPart) -> None:
        """Perform a step as FollowedPartition does; a crash cuts off some of the truncations."""
        log, state, files = self.follower.log, self.state, self.follower.files
        if isinstance(step, AppendRecords):
            log.append_as_follower(step.records, leader_epoch=self.epoch, now_ms=5_000)
            step = state.appended(part)
        if isinstance(step, FollowBounds):
            log.set_high_watermark(step.high_watermark)
            if step.log_start_offset > log.log_start_offset:
                log.delete_records_before(step.log_start_offset)
        elif isinstance(step, Truncate | StartOver):
            if self.random.random() < 0.4:
                files.crash_at_step = files.steps + self.random.randrange(1, 60)
            outcomes: list[BaseException | None] = []
            if isinstance(step, Truncate):
                log.truncate_async(step.offset, outcomes.append)
            else:
                log.start_over_async(step.offset, 5_000, outcomes.append)
            self.follower.helpers.run_all()
            files.crash_at_step = None
            assert outcomes == [None]
            self.perform(state.changed(0), part)

    def catch_up(self) -> None:
        for _ in range(MOST_FETCHES):
            self.fetch()
            ends = {self.leader.log.log_end_offset, self.follower.log.log_end_offset}
            ends |= {self.leader.log.high_watermark, self.follower.log.high_watermark}
            if len(ends) == 1 and isinstance(self.state.phase, Fetching):
                break
        self.check(self.leader.log, self.follower.log)

    # --- comparison -------------------------------------------------------------------------------
    def check(self, one: PartitionLog, other: PartitionLog) -> None:
        assert one.high_watermark == one.log_end_offset == other.log_end_offset
        start = max(one.log_start_offset, other.log_start_offset)
        # A later replica may not know of a transaction whose records were deleted.
        stable = min(one.last_stable_offset, other.last_stable_offset)
        if not self.config.compact:
            assert seen(one, start) == seen(other, start)
            assert committed(one, start, stable) == committed(other, start, stable)
            assert lasts(one, start) == lasts(other, start)
            if one.log_start_offset == other.log_start_offset:
                for time_ms in (-3, 0, 1_000, 2_050, 3_002):
                    assert place(one, time_ms) == place(other, time_ms)
                if one.latest_epoch == other.latest_epoch:
                    for epoch in range(self.epoch + 1):
                        assert one.end_offset_for_epoch(epoch) == other.end_offset_for_epoch(epoch)
        elif one.last_stable_offset == other.last_stable_offset:
            assert by_key(one, start, stable) == by_key(other, start, stable)


def seen(log: PartitionLog, start: int) -> dict[int, object]:
    return {each.offset: each for each in read_all(log) if each.offset >= start}


def committed(log: PartitionLog, start: int, stable: int) -> dict[int, bytes | None]:
    """The keys that read_committed reads, by offset."""
    aborted = log.aborted_transactions(start, stable) if start < stable else []
    return {
        record.offset: record.key
        for view in read_batches(log, stable)
        if not view.is_control
        and not any(
            view.is_transactional
            and each.producer_id == view.producer_id
            and each.first_offset <= view.base_offset < each.last_offset
            for each in aborted
        )
        for record in view.records()
        if start <= record.offset < stable
    }


def by_key(log: PartitionLog, start: int, stable: int) -> dict[bytes | None, int]:
    return {key: offset for offset, key in sorted(committed(log, start, stable).items())}


def place(log: PartitionLog, time_ms: int) -> tuple[int, int] | None:
    found = log.offset_for_timestamp(time_ms)
    return None if found is None else (found.timestamp_ms, found.offset)


def lasts(log: PartitionLog, start: int) -> dict[int, tuple[int, int, bool]]:
    """The known state of producers: epoch, last batch, whether a transaction is open."""

    def last(entry: ProducerEntry) -> tuple[int, int, bool]:
        newest, first = entry.batches[-1], entry.current_transaction_first_offset
        return entry.producer_epoch, newest.first_offset, first >= 0

    return {
        each.producer_id: last(each)
        for each in log.producers
        if each.batches and each.batches[-1].last_offset >= start
    }


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
def test_leader_and_follower_say_the_same(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        play = TwoLogs(seed)
        try:
            for _ in range(play.random.choice((40, 120, 250))):
                play.step()
            play.catch_up()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
