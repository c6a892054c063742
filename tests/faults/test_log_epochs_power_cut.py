"""Power cuts at any step: offset and leader epoch together identify one record, for ever.

Readers may have seen any appended record, synced or not. The epoch of the leader's election is
durable before the log gets it; it is raised after an unclean stop, or if the log has a newer epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.batch import BatchView, split_batches
from tests.support.cluster.logs import HostedLog
from tests.support.log.harness import append_in, batch
from tests.support.log.restarts import LogRestarts

SEEDS = 150
SEEDS_PER_TEST = 50
LIVES = 10


@dataclass
class Run:
    """The runs of a log, the epoch of its leader's election, and all appended records."""

    random: Random
    chosen: int = 0
    numbers: int = 0
    written: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = LogConfig(
            segment_bytes=self.random.choice((700, 3_000, 16_000)),
            segment_index_bytes=64,
            index_interval_bytes=200,
            flush_messages=self.random.choice((1, 4, 10**9)),
        )
        settings = LogManagerSettings(
            flush_offset_checkpoint_interval_ms=self.random.choice((10, 60)),
            high_watermark_checkpoint_interval_ms=50,
        )
        self.lives = LogRestarts(self.random, config, settings)

    def run_or_crash(self, steps: int | None) -> None:
        self.lives.run(steps, self.act)
        self.lives.end_process(killed=0.3)

    def act(self, life: HostedLog) -> None:
        random, log = self.random, life.log
        self.check(log)
        if random.random() < 0.2:
            return  # the run ends before a leader is elected
        if log.was_unclean or log.leader_epoch > self.chosen:
            self.chosen = max(self.chosen, log.leader_epoch) + 1
        for _ in range(random.randint(1, 40)):
            action = random.random()
            if action < 0.1:
                self.chosen += 1
                log.begin_epoch(LeaderEpoch(self.chosen))
            elif action < 0.6:
                self.append(log)
            elif action < 0.8 and life.helpers.waiting:
                life.helpers.run_one()
            elif action < 0.9:
                self.lives.clock.advance(random.randint(1, 60))
                life.manager.run_due()
        life.helpers.run_all()
        self.check(log)
        if random.random() < 0.4:
            life.manager.close()

    def append(self, log: PartitionLog) -> None:
        # Note the names first: the process can die with the bytes in the file.
        end, count = log.log_end_offset, self.random.randint(1, 3)
        for number in range(count):
            name = (end + number, self.chosen)
            assert name not in self.written, f"offset and epoch {name} were used before"
            self.written[name] = self.numbers
        append_in(
            log, self.chosen, batch(count, timestamp_ms=self.numbers), self.lives.clock.now_ms()
        )
        self.numbers += count

    def check(self, log: PartitionLog) -> None:
        """Check the records and epochs of the log.

        Each record is the one that its offset and epoch identify; the log's epochs are those of its
        batches; the log's leader epoch is no higher than any elected one.
        """
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
                run.run_or_crash(run.random.choice((10, 25, 60, 200)) + run.random.randint(0, 30))
            run.run_or_crash(None)
            run.run_or_crash(None)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
