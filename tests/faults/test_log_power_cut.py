"""Power cuts at any step, 200 seeds: with flush.messages=1 nothing acknowledged is lost or doubled.

The disk keeps all synced data, and a random part of the rest. The producer is idempotent and
repeats batches without a response, so that every record must be there exactly once.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from tests.support.cluster.logs import HostedLog
from tests.support.log.harness import append, batch, read_all
from tests.support.log.restarts import LogRestarts

SEEDS = 200
SEEDS_PER_TEST = 25
CUTS = 8
IN_FLIGHT = 5
PRODUCER_ID = 7


@dataclass
class Sent:
    """A batch of the producer: its numbers, and its end offset once it is acknowledged."""

    base_sequence: int
    count: int
    end_offset: int = -1


@dataclass
class Run:
    """A producer, its acknowledged records, and the runs of the log."""

    random: Random
    next_sequence: int = 0
    in_flight: list[Sent] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)  # number: offset

    def __post_init__(self) -> None:
        config = LogConfig(
            segment_bytes=self.random.choice((1_500, 4_000, 16_000)),
            segment_index_bytes=self.random.choice((64, 512)),
            index_interval_bytes=self.random.choice((100, 400)),
            flush_messages=1,
            preallocate=self.random.random() < 0.2,
        )
        settings = LogManagerSettings(
            flush_offset_checkpoint_interval_ms=self.random.choice((50, 500)),
            high_watermark_checkpoint_interval_ms=self.random.choice((70, 700)),
        )
        self.lives = LogRestarts(self.random, config, settings)

    def run_or_crash(self, steps: int | None) -> None:
        """Open the log, produce, close; or cut the power after ``steps`` steps on the disk."""
        if self.lives.run(steps, self.act):
            self.lives.end_process(killed=1)
        else:
            self.lives.end_process(killed=0.4)

    def act(self, life: HostedLog) -> None:
        random, log, helpers = self.random, life.log, life.helpers
        self.check(log)
        for sent in list(self.in_flight):
            self.send(log, sent)
        for _ in range(random.randint(5, 40)):
            action = random.random()
            if action < 0.55 and len(self.in_flight) < IN_FLIGHT:
                self.send_next(log)
            elif action < 0.9 and helpers.waiting:
                helpers.run_one()
            elif action < 0.95:
                self.lives.clock.advance(random.randint(1, 100))
                life.manager.run_due()
            elif self.in_flight:
                # The response was lost: the producer sends the batch again.
                self.send(log, random.choice(self.in_flight))
        helpers.run_all()
        life.manager.close()

    def send_next(self, log: PartitionLog) -> None:
        sent = Sent(self.next_sequence, self.random.randint(1, 4))
        self.next_sequence += sent.count
        self.in_flight.append(sent)
        self.send(log, sent)

    def send(self, log: PartitionLog, sent: Sent) -> None:
        records = batch(
            sent.count,
            producer_id=PRODUCER_ID,
            base_sequence=sent.base_sequence,
            timestamp_ms=sent.base_sequence,
            value=b"%d" % sent.base_sequence,
        )
        info = append(log, records, self.lives.clock.now_ms())

        def on_flushed(error: BaseException | None) -> None:
            assert error is None
            assert log.high_watermark >= info.last_offset + 1
            if sent in self.in_flight:
                self.in_flight.remove(sent)
                for number in range(sent.count):
                    self.acknowledged[sent.base_sequence + number] = info.first_offset + number

        if info.required_flush_offset is None:
            on_flushed(None)
        else:
            log.when_flushed(info.required_flush_offset, on_flushed)

    def check(self, log: PartitionLog) -> None:
        """Check that the producer's records are there, once and in order, and no others."""
        records = read_all(log, log.log_end_offset)
        assert [record.offset for record in records] == list(range(log.log_end_offset))
        numbers = [record.timestamp_ms for record in records]
        assert numbers == list(range(len(numbers))), "doubled, out of order or with a gap"
        for number, offset in self.acknowledged.items():
            assert records[offset].timestamp_ms == number, f"acknowledged {number} is lost"
        # A start has synced all that it found, so readers may see it.
        assert log.high_watermark == log.flushed_offset == log.log_end_offset
        for segment in log.segments:
            segment.offset_index.view().check(segment.size_bytes)
            segment.time_index.view().check()
            for offset, position in segment.offset_index.view():
                place = next(segment.batch_positions(position))
                assert place.last_offset == offset


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS_PER_TEST))
def test_acknowledged_records_survive_power_cuts(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        run = Run(Random(seed))
        try:
            for _ in range(CUTS):
                run.run_or_crash(run.random.choice((10, 25, 60, 200)) + run.random.randint(0, 30))
            run.run_or_crash(None)
            run.run_or_crash(None)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        assert not run.in_flight
        assert sorted(run.acknowledged) == list(range(run.next_sequence))
