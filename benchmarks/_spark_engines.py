"""Runners of the Spark rows: drivers with their brokers, and topics filled for them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks._brokers import Side
from benchmarks._load.generator import SparkDriver
from benchmarks._load.spark_fill import Records, fill, whole
from benchmarks._load.spark_jobs import Kind, SparkJob, SparkMeasured
from benchmarks._processes import cpu_seconds
from benchmarks._turns import median, progress, sized

PARTITIONS = 4
SINK_ROWS = 3_000_000
# The JVM compiles code that runs often: the first runs of a driver are much slower.
WARM_UPS = 2
BIG = Records(6_000_000)
_SHOWN_PHASES = 6


@dataclass(frozen=True)
class Engine:
    """A driver with its data source, and its broker."""

    driver: SparkDriver
    side: Side

    def run(self, job: SparkJob) -> SparkMeasured:
        """Run a job; the broker's CPU time is added to the driver's."""
        before_s = cpu_seconds(self.side.pid)
        measured = self.driver.run(job)
        broker_s = cpu_seconds(self.side.pid) - before_s
        return replace(measured, cpu_s=measured.cpu_s + broker_s, broker_cpu_s=broker_s)

    def job(self, kind: Kind, topic: str, records: int, **more: object) -> SparkJob:
        return SparkJob(kind, self.side.bootstrap_servers, topic, records, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Ceiling:
    """A driver of its own for ceiling jobs (SparkJob.is_ceiling).

    In klog's JVM these jobs would warm up the code that klog's jobs run, and the reverse.
    """

    driver: SparkDriver

    def job(self, kind: Kind, records: int, **more: object) -> Callable[[], SparkMeasured]:
        job = SparkJob(kind, "", "", records, is_ceiling=True, **more)  # type: ignore[arg-type]
        return partial(self.driver.run, job)


@dataclass(frozen=True)
class Engines:
    """klog on its broker and the peer on its own, all on the Spark release of the peer."""

    klog: Engine
    kafka: Engine
    ceiling: Ceiling

    @property
    def both(self) -> tuple[Engine, Engine]:
        return self.klog, self.kafka


@contextmanager
def filled(
    engines: Sequence[Engine], records: Records, *, in_full: bool = False
) -> Iterator[tuple[list[str], int]]:
    """A topic with equal records on each engine's broker: the names, and the record count."""
    shape = records if in_full else replace(records, count=sized(records.count))
    count = whole(shape)
    progress(f"filling a topic with {count} records on each side")
    with ExitStack() as stack:
        topics = []
        for engine in engines:
            topic = stack.enter_context(engine.side.topic("spark", shape.partitions))
            fill(engine.side.bootstrap_servers, topic, shape)
            engine.side.expect_records(topic, count, shape.partitions)
            topics.append(topic)
        yield topics, count


def cpu_us(runs: Sequence[SparkMeasured]) -> str:
    """CPU time of a record, and its parts."""
    parts_s = [
        (run.cpu_s, run.jvm_cpu_s, run.cpu_s - run.jvm_cpu_s - run.broker_cpu_s, run.broker_cpu_s)
        for run in runs
    ]
    records = runs[0].records
    whole, *parts = (
        f"{max(median(each), 0.0) / records * 1e6:.2f}" for each in zip(*parts_s, strict=True)
    )
    return f"{whole} ({' + '.join(parts)})"


def phases(runs: Sequence[Sequence[SparkMeasured]]) -> str:
    """The slowest phases of a micro-batch, in ms, for each side."""
    names = sorted({name for side in runs for run in side for name in run.phases_ms})
    found = {
        name: [median([run.phases_ms.get(name, 0.0) for run in side]) for side in runs]
        for name in names
    }
    slowest = sorted(found.items(), key=lambda each: -max(each[1]))[:_SHOWN_PHASES]
    shown = (f"{name} {' / '.join(f'{each:.0f}' for each in ms)}" for name, ms in slowest)
    return ", ".join(shown)
