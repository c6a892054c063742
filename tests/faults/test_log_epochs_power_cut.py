"""Power cuts at any step: offset and leader epoch together name one record, for ever.

Readers may have seen whatever was appended, synced or not. Who chooses leaders is a number that is
durable before the log hears of it: raised where the log was unclean, or knows of a newer epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.log_manager import LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.clock import ManualClock
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.batch import BatchView, split_batches
from tests.support.log_harness import (
    PARTITION,
    TOPIC_ID,
    ManualHelpers,
    append_in,
    batch,
    open_manager,
)
from tests.support.memory_files import Crashed, MemoryFiles

SEEDS = 400
SEEDS_PER_TEST = 50
LIVES = 10


@dataclass
class Run:
    """A disk, the epoch that the leader was chosen with, and all that was ever appended."""

    random: Random
    files: MemoryFiles = field(default_factory=MemoryFiles)
    clock: ManualClock = field(default_factory=ManualClock)
    chosen: int = 0
    numbers: int = 0
    written: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = LogConfig(
            segment_bytes=self.random.choice((700, 3_000, 16_000)),
            segment_index_bytes=64,
            index_interval_bytes=200,
            flush_messages=self.random.choice((1, 4, 10**9)),
        )
        self.settings = LogManagerSettings(
            flush_offset_checkpoint_interval_ms=self.random.choice((10, 60)),
            high_watermark_checkpoint_interval_ms=50,
        )

    def live(self, steps: int | None) -> None:
        files, random = self.files, self.random
        files.crash_at_step = None if steps is None else files.steps + steps
        helpers = ManualHelpers()
        try:
            manager = open_manager(
                files,
                config=self.config,
                helpers=helpers,
                clock=self.clock,
                settings=self.settings,
            )
            log = manager.create(PARTITION, TOPIC_ID, self.config)
            self.check(log)
            if random.random() < 0.2:
                return self.die()  # before anybody is chosen
            if log.was_unclean or log.leader_epoch > self.chosen:
                self.chosen = max(self.chosen, log.leader_epoch) + 1
            for _ in range(random.randint(1, 40)):
                action = random.random()
                if action < 0.1:
                    self.chosen += 1
                    log.begin_epoch(LeaderEpoch(self.chosen))
                elif action < 0.6:
                    self.append(log)
                elif action < 0.8 and helpers.waiting:
                    helpers.run_one()
                elif action < 0.9:
                    self.clock.advance(random.randint(1, 60))
                    manager.run_due()
            helpers.run_all()
            self.check(log)
            if random.random() < 0.4:
                manager.close()
        except Crashed:
            pass
        return self.die()

    def die(self) -> None:
        killed = self.random.random() < 0.3
        self.files = self.files.killed() if killed else self.files.crash(self.random)

    def append(self, log: PartitionLog) -> None:
        # Known before it is tried: the process can die with the bytes in the file.
        end, count = log.log_end_offset, self.random.randint(1, 3)
        for number in range(count):
            name = (end + number, self.chosen)
            assert name not in self.written, f"offset and epoch {name} were used before"
            self.written[name] = self.numbers
        append_in(log, self.chosen, batch(count, timestamp_ms=self.numbers), self.clock.now_ms())
        self.numbers += count

    def check(self, log: PartitionLog) -> None:
        """Each record is the one that its offset and epoch name; the log's epochs are those of its
        batches; and none that was ever chosen is taken for a new one."""
        starts: dict[int, int] = {}
        for view in batches(log):
            epoch = view.partition_leader_epoch
            starts.setdefault(epoch, view.base_offset)
            for record in view.records():
                first = self.written[(view.base_offset, epoch)]
                assert record.timestamp_ms == first + record.offset - view.base_offset
        epochs = list(starts)
        assert epochs == sorted(epochs)
        for epoch, following in pairwise(epochs):
            assert log.end_offset_for_epoch(epoch) == (epoch, starts[following])
        if epochs:
            assert log.latest_epoch >= epochs[-1]
            end = log.log_end_offset
            assert log.end_offset_for_epoch(epochs[-1]) == (epochs[-1], end)
        assert log.leader_epoch <= self.chosen


def batches(log: PartitionLog) -> Iterator[BatchView]:
    offset: int = log.log_start_offset
    end = log.log_end_offset
    while offset < end:
        region = log.read(offset, 1 << 20, end_offset=end, min_one_batch=True).region
        assert region is not None
        for view in split_batches(region.file.pread(region.size, region.position)):
            yield view
            offset = view.next_offset


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS_PER_TEST))
def test_offset_and_epoch_name_one_record_for_ever(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        run = Run(Random(seed))
        try:
            for _ in range(LIVES):
                run.live(run.random.choice((10, 25, 60, 200)) + run.random.randint(0, 30))
            run.live(None)
            run.live(None)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
