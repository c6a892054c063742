"""The power fails, or the process is killed, at every step of a cleaning: nothing is lost."""

from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from tests.support.cluster.logs import HostedLog
from tests.support.compaction.cleaner_harness import clean, last_records, problems_of_cleaned
from tests.support.log.harness import DATA, PARTITION, append, batch, read_all
from tests.support.log.restarts import LogRestarts

CONFIG = LogConfig(
    segment_bytes=4_096,
    segment_index_bytes=4_096,
    index_interval_bytes=256,
    compact=True,
    delete=False,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
KEYS = 30
CODECS = (Codec.NONE, Codec.LZ4, Codec.GZIP)


def _fill(log: PartitionLog, random: Random, batches: int) -> None:
    for _ in range(batches):
        append(
            log,
            batch(
                random.randrange(1, 4),
                key=b"k%d" % random.randrange(KEYS),
                value=random.randbytes(random.randrange(1, 200)),
                codec=random.choice(CODECS),
            ),
        )


class _Cuts:
    """A log that is written, and then cleaned while the power fails after some steps."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lives = LogRestarts(self.random, CONFIG, LogManagerSettings())
        self.written: list[Record] = []

    def write(self, batches: int) -> None:
        def act(life: HostedLog) -> None:
            _fill(life.log, self.random, batches)
            life.log.flush()
            self.written = self.written[: life.log.log_start_offset]
            known = {record.offset for record in self.written}
            self.written += [each for each in read_all(life.log) if each.offset not in known]
            life.manager.close()

        assert self.lives.run(None, act)

    def clean(self, steps: int | None) -> bool:
        def act(life: HostedLog) -> None:
            self.check(life.log)
            cleaner = clean(life.manager, life.helpers, self.lives.clock)
            assert cleaner.set_aside == {}
            self.check(life.log)

        return self.lives.run(steps, act)

    def check(self, log: PartitionLog) -> None:
        assert problems_of_cleaned(log, self.written) == []
        assert log.log_end_offset == self.written[-1].offset + 1

    def leftovers(self) -> list[str]:
        folder = DATA / f"{PARTITION.topic}-0"
        return [n for n in self.lives.files.list_dir(folder) if n.endswith((".swap", ".cleaned"))]


@pytest.mark.parametrize(
    ("killed", "keeps_order"),
    [(0.0, False), (0.5, True)],
    ids=["power_cut_names_in_any_order", "power_cut_or_killed"],
)
def test_every_step(killed: float, keeps_order: bool) -> None:
    crashes, again = 0, 6
    for steps in range(1, 55):
        cuts = _Cuts(seed=steps)
        cuts.lives.keeps_order = keeps_order
        # A round leaves small segments, which the next round merges.
        cuts.write(60)
        assert cuts.clean(None)
        cuts.lives.end_process(killed)
        cuts.write(20)
        crashes += not cuts.clean(steps)
        cuts.lives.end_process(killed)
        if len(cuts.leftovers()) > 1 and again:
            again -= 1
            _crash_again(cuts, killed)
        assert cuts.clean(None)
        assert cuts.leftovers() == []
    assert crashes > 25


def _crash_again(cuts: _Cuts, killed: float) -> None:
    """Crash at every step of the start that clears the first crash's leftovers."""
    found = cuts.lives.files
    for steps in range(1, 18):
        cuts.lives.files = found.killed()
        cuts.clean(steps)
        cuts.lives.end_process(killed)
        assert cuts.clean(None)
    cuts.lives.files = found.killed()


def test_cleaned_again_and_again() -> None:
    cuts = _Cuts(seed=0)
    for _ in range(12):
        cuts.write(20)
        cuts.clean(cuts.random.randrange(1, 150))
        cuts.lives.end_process(0.5)

    def act(life: HostedLog) -> None:
        cuts.check(life.log)
        clean(life.manager, life.helpers, cuts.lives.clock)
        closed = [r for r in read_all(life.log) if r.offset < life.log.segments[-1].base_offset]
        assert len(closed) <= len(last_records(cuts.written)) * 2

    assert cuts.lives.run(None, act)
