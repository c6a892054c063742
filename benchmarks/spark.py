"""Spark's batch source, stream source and sink, local[2], beside Spark's own Kafka connector.

Rows for ``--rows``: batch, stream, keyed, unkeyed, copy, micro, idle, lz4, zstd, gzip, 1kb, 10kb,
1mb, partitions1, partitions8, partitions64, headers, memory, batches, spark43.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks import _brokers
from benchmarks._brokers import Pair, Side
from benchmarks._defaults import differing, kafka_client_defaults
from benchmarks._load.generator import SparkDriver
from benchmarks._load.spark_fill import Records, fill, whole
from benchmarks._load.spark_jobs import MICRO_RECORDS, Kind, SparkJob, SparkMeasured
from benchmarks._processes import cpu_seconds
from benchmarks._report import found
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from tests.support.peers import spark_connector_jars

_CHECKOUT = Path(__file__).resolve().parents[1]
_NEWEST_PYTHON = _CHECKOUT / ".venv" / "bin" / "python"
_PARTITIONS = 4
_SINK_ROWS = 3_000_000
_MICRO_BATCHES = 50
# The JVM compiles what it runs often: the first runs of a driver are far from its last ones.
_WARM_UPS = 2
_MOST_PYTHON_MB = 300.0
_MANY_MICRO_BATCHES = 20_000
_MOST_GROWTH_MB = 8.0
_SHOWN_PHASES = 6

_BIG = Records(6_000_000)
_COPIED = Records(3_000_000)
_SMALL = Records(100_000_000, 1, value_bytes=10, key_bytes=0, codec="zstd", batch_bytes=1_000_000)
_SHAPES: dict[str, tuple[str, Records]] = {
    "lz4": ("lz4", Records(2_000_000, codec="lz4")),
    "zstd": ("zstd", Records(2_000_000, codec="zstd")),
    "gzip": ("gzip", Records(2_000_000, codec="gzip")),
    "1kb": ("values of 1 KB", Records(1_000_000, value_bytes=1_000)),
    "10kb": ("values of 10 KB", Records(100_000, value_bytes=10_000)),
    "1mb": ("values of 1 MB", Records(1_000, value_bytes=1_000_000)),
    "partitions1": ("1 partition", Records(2_000_000, 1)),
    "partitions8": ("8 partitions", Records(2_000_000, 8)),
    "partitions64": ("64 partitions", Records(2_000_000, 64)),
    "headers": ("2 headers", Records(1_000_000, headers=2)),
}
ROWS = (
    *("batch", "stream", "keyed", "unkeyed", "copy", "micro", "idle"),
    *_SHAPES,
    *("memory", "batches", "spark43"),
)


@dataclass(frozen=True)
class _Engine:
    """A driver with its data source, and the broker that it works on."""

    driver: SparkDriver
    side: Side

    def run(self, job: SparkJob) -> SparkMeasured:
        """Does a job; the broker's CPU time is added to the driver's."""
        before_s = cpu_seconds(self.side.pid)
        measured = self.driver.run(job)
        broker_s = cpu_seconds(self.side.pid) - before_s
        return replace(measured, cpu_s=measured.cpu_s + broker_s, broker_cpu_s=broker_s)

    def job(self, kind: Kind, topic: str, records: int, **more: object) -> SparkJob:
        return SparkJob(kind, self.side.bootstrap_servers, topic, records, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Ceiling:
    """A driver of its own for jobs with nothing at their ends; see SparkJob.is_ceiling.

    In klog's JVM these jobs would warm up what klog's run through, and klog's what theirs do.
    """

    driver: SparkDriver

    def job(self, kind: Kind, records: int, **more: object) -> Callable[[], SparkMeasured]:
        job = SparkJob(kind, "", "", records, is_ceiling=True, **more)  # type: ignore[arg-type]
        return partial(self.driver.run, job)


@dataclass(frozen=True)
class _Engines:
    """klog on its broker and the peer on its own, all on the Spark release of the peer."""

    klog: _Engine
    kafka: _Engine
    ceiling: _Ceiling

    @property
    def both(self) -> tuple[_Engine, _Engine]:
        return self.klog, self.kafka


def run(args: argparse.Namespace) -> list[Row]:
    wanted = _wanted(args.rows)
    with _brokers.both() as pair:
        rows: list[Row] = []
        if wanted - {"memory", "batches", "spark43"}:
            with ExitStack() as stack:
                klog = stack.enter_context(SparkDriver("klog", []))
                kafka = stack.enter_context(SparkDriver("kafka", spark_connector_jars()))
                ceiling = stack.enter_context(SparkDriver("klog", []))
                engines = _Engines(
                    _Engine(klog, pair.klog), _Engine(kafka, pair.kafka), _Ceiling(ceiling)
                )
                defaults = "; ".join(differing(kafka_client_defaults()))
                progress(f"defaults that differ, klog / Spark's own connector: {defaults}")
                rows += _compared(wanted, engines)
        if "memory" in wanted:
            rows.append(_memory(pair))
        if "batches" in wanted:
            rows.append(_many_micro_batches(pair))
        if "spark43" in wanted:
            rows += _newest(pair)
        return rows


def _wanted(names: str) -> set[str]:
    chosen = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(chosen.difference(ROWS))
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    return chosen or set(ROWS)


def _compared(wanted: set[str], engines: _Engines) -> list[Row]:
    rows: list[Row] = []
    if wanted & {"batch", "stream"}:
        rows += _sources(wanted, engines)
    kinds: tuple[Kind, ...] = ("keyed", "unkeyed")
    rows += [_sink(kind, engines) for kind in kinds if kind in wanted]
    if "copy" in wanted:
        rows.append(_copy(engines))
    if "micro" in wanted:
        rows += _micro_batches(engines)
    if "idle" in wanted:
        rows += _idle(engines)
    rows += [_shape(*shape, engines) for name, shape in _SHAPES.items() if name in wanted]
    return rows


# --- throughput ----------------------------------------------------------------------------------
def _sources(wanted: set[str], engines: _Engines) -> list[Row]:
    rows = []
    with _filled(engines.both, _BIG) as (topics, count):
        for engine, topic in zip(engines.both, topics, strict=True):
            engine.run(engine.job("check", topic, count))
        if "batch" in wanted:
            rows.append(_read_row("batch source to noop", 4.0, "batch", engines, topics, count))
        if "stream" in wanted:
            work = "stream source, availableNow, to noop"
            rows.append(_read_row(work, 3.0, "stream", engines, topics, count))
    return rows


def _read_row(
    work: str,
    bar: float | None,
    kind: Kind,
    engines: _Engines,
    topics: Sequence[str],
    count: int,
    records: Records = _BIG,
    options: dict[str, str] | None = None,
) -> Row:
    progress(work)
    jobs = [
        engine.job(kind, topic, count, options=options or {})
        for engine, topic in zip(engines.both, topics, strict=True)
    ]
    shape = {"partitions": records.partitions, "value_bytes": records.value_bytes}
    ceiling = engines.ceiling.job(kind, count, **shape)
    readers = (partial(e.run, j) for e, j in zip(engines.both, jobs, strict=True))
    return _row(work, bar, in_turns(*readers, ceiling, warm_ups=_WARM_UPS))


def _sink(kind: Kind, engines: _Engines) -> Row:
    work = f"sink, rows of a range, {kind}"
    progress(work)
    count = sized(_SINK_ROWS)

    def write(engine: _Engine) -> SparkMeasured:
        with engine.side.topic("sink", _PARTITIONS) as topic:
            measured = engine.run(engine.job(kind, topic, count))
            engine.side.expect_records(topic, count, _PARTITIONS)
            return measured

    writers = (partial(write, engine) for engine in engines.both)
    ceiling = engines.ceiling.job(kind, count)
    return _row(work, 2.0, in_turns(*writers, ceiling, warm_ups=_WARM_UPS))


def _copy(engines: _Engines) -> Row:
    work = "copy topic to topic"
    progress(work)

    def copy(engine: _Engine, topic: str, count: int) -> SparkMeasured:
        with engine.side.topic("copy", _PARTITIONS) as to:
            measured = engine.run(engine.job("copy", topic, count, to=to))
            engine.side.expect_records(to, count, _PARTITIONS)
            return measured

    with _filled(engines.both, _COPIED) as (topics, count):
        copies = [
            partial(copy, engine, topic, count)
            for engine, topic in zip(engines.both, topics, strict=True)
        ]
        ceiling = engines.ceiling.job("copy", count)
        return _row(work, 2.0, in_turns(*copies, ceiling, warm_ups=_WARM_UPS))


def _shape(what: str, records: Records, engines: _Engines) -> Row:
    options = {"includeHeaders": "true"} if records.headers else {}
    with _filled(engines.both, records) as (topics, count):
        work = f"batch source to noop, {what}"
        return _read_row(work, 1.0, "batch", engines, topics, count, records, options)


def _row(work: str, bar: float | None, given: Sequence[Sequence[SparkMeasured]]) -> Row:
    """klog's runs, the peer's, and those of the ceiling."""
    rates = [median([run.records / run.seconds for run in runs]) for runs in given]
    cpu = " / ".join(_cpu_us(runs) for runs in given)
    notes = [
        f"local[2]; {rates[0] / rates[2]:.0%} of the ceiling, {rates[2]:,.0f}",
        f"CPU us a record (JVM + Python + broker), klog / peer / ceiling {cpu}",
    ]
    triggers = [[run.records / run.triggers_s for run in runs if run.triggers_s] for runs in given]
    if all(triggers):
        alone = " / ".join(f"{median(each):,.0f}" for each in triggers)
        notes.append(f"the micro-batches alone, klog / peer / ceiling {alone}")
    work = f"{work} (Spark {version('pyspark')})"
    return found(Row(work, "records/s", rates[0], rates[1], bar, note="; ".join(notes)))


def _cpu_us(runs: Sequence[SparkMeasured]) -> str:
    """CPU time of a record, and how much of it is whose."""
    parts_s = [
        (run.cpu_s, run.jvm_cpu_s, run.cpu_s - run.jvm_cpu_s - run.broker_cpu_s, run.broker_cpu_s)
        for run in runs
    ]
    records = runs[0].records
    whole, *parts = (
        f"{max(median(each), 0.0) / records * 1e6:.2f}" for each in zip(*parts_s, strict=True)
    )
    return f"{whole} ({' + '.join(parts)})"


# --- small things --------------------------------------------------------------------------------
def _micro_batches(engines: _Engines) -> list[Row]:
    rows = []
    batches = max(_MICRO_BATCHES, sized(_MICRO_BATCHES))
    records = Records(batches * MICRO_RECORDS)
    kinds: tuple[tuple[Kind, float], ...] = (("micro_noop", 1.25), ("micro_topic", 1.6))
    for kind, bar in kinds:
        target = "to noop" if kind == "micro_noop" else "into a topic"
        work = f"micro-batch of {MICRO_RECORDS} records, 4 partitions, {target}"
        progress(work)

        def measure(engine: _Engine, topic: str, count: int, kind: Kind = kind) -> SparkMeasured:
            with engine.side.topic("micro", _PARTITIONS) as to:
                return engine.run(engine.job(kind, topic, count, to=to))

        with _filled(engines.both, records, in_full=True) as (topics, count):
            sides = zip(engines.both, topics, strict=True)
            readers = (partial(measure, engine, topic, count) for engine, topic in sides)
            runs = in_turns(*readers, engines.ceiling.job(kind, count))
        klog, kafka, ceiling = (median([run.batch_ms or 0.0 for run in each]) for each in runs)
        note = (
            f"median of {batches} micro-batches a run, the first ones left out; "
            f"{klog / ceiling:.0%} of the ceiling's {ceiling:.0f} ms; {_phases(runs)}"
        )
        rows.append(found(Row(work, "ms", klog, kafka, bar, lower_is_better=True, note=note)))
    return rows


def _phases(runs: Sequence[Sequence[SparkMeasured]]) -> str:
    """The phases that take most of a micro-batch: klog's, the peer's and the ceiling's."""
    names = sorted({name for side in runs for run in side for name in run.phases_ms})
    found = {
        name: [median([run.phases_ms.get(name, 0.0) for run in side]) for side in runs]
        for name in names
    }
    slowest = sorted(found.items(), key=lambda each: -max(each[1]))[:_SHOWN_PHASES]
    shown = (f"{name} {' / '.join(f'{each:.0f}' for each in ms)}" for name, ms in slowest)
    return f"ms klog / peer / ceiling: {', '.join(shown)}"


def _idle(engines: _Engines) -> list[Row]:
    progress("idle query")
    measured = []
    for engine in engines.both:
        with engine.side.topic("idle", _PARTITIONS) as topic:
            measured.append(engine.run(engine.job("idle", topic, 1)))
    jvm = " / ".join(f"{(each.jvm_cpu or 0) * 100:.1f}" for each in measured)
    shares = [(each.driver_cpu or 0) * 100 for each in measured]
    waits_ms = [each.pick_up_ms or 0.0 for each in measured]

    def row(work: str, unit: str, figures: Sequence[float], bar: float, note: str) -> Row:
        klog, peer = figures
        return found(Row(f"idle query, {work}", unit, klog, peer, bar, True, note, True))

    note = f"JVM and Python; the JVM alone, klog / peer {jvm}"
    return [
        row("CPU of the driver", "% of a core", shares, 5.0, note),
        row("a new record is picked up", "ms", waits_ms, 100.0, "the longest of ten"),
    ]


# --- klog alone ----------------------------------------------------------------------------------
def _memory(pair: Pair) -> Row:
    progress("100 million small records in one task")
    with (
        SparkDriver("klog", []) as driver,
        _filled((_Engine(driver, pair.klog),), _SMALL) as (topics, count),
    ):
        engine = _Engine(driver, pair.klog)
        measured = engine.run(engine.job("batch", topics[0], count))
    rate = measured.records / measured.seconds
    return found(
        Row(
            *(f"{count:,} records of 10 bytes, zstd, in one task", "MB of Python"),
            measured.python_peak_bytes / 1e6,
            bar=_MOST_PYTHON_MB,
            lower_is_better=True,
            note=f"the largest worker's peak; {rate:,.0f} records/s",
        )
    )


def _many_micro_batches(pair: Pair) -> Row:
    count = sized(_MANY_MICRO_BATCHES)
    progress(f"{count} micro-batches, without Spark")
    shape = Records(count * MICRO_RECORDS)
    with (
        pair.klog.topic("batches", _PARTITIONS) as topic,
        pair.klog.topic("batches", _PARTITIONS) as to,
    ):
        fill(pair.klog.bootstrap_servers, topic, shape)
        command = [sys.executable, "-m", "benchmarks._load.spark_batches"]
        command += [pair.klog.bootstrap_servers, topic, to, str(count)]
        ran = subprocess.run(command, cwd=_CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
        pair.klog.expect_records(to, whole(shape), _PARTITIONS)
    memory = json.loads(ran.stdout)
    growth_mb = (memory["late_bytes"] - memory["early_bytes"]) / 1e6
    work = f"{count:,} micro-batches of {MICRO_RECORDS} records, read and written"
    note = f"growth from the first fifth to the end, of {memory['late_bytes'] / 1e6:,.0f} MB"
    row = Row(work, "MB of Python", growth_mb, bar=_MOST_GROWTH_MB, lower_is_better=True, note=note)
    return found(row)


def _newest(pair: Pair) -> list[Row]:
    """klog with the Spark release of its own environment, for which the peer has no jar here."""
    if not _NEWEST_PYTHON.exists():
        progress(f"spark43: {_NEWEST_PYTHON} is missing: ./dev test makes it")
        return []
    rows = []
    with (
        SparkDriver("klog", [], python=_NEWEST_PYTHON) as driver,
        SparkDriver("klog", [], python=_NEWEST_PYTHON) as bare,
        _filled((_Engine(driver, pair.klog),), _BIG) as (topics, count),
    ):
        engine, ceiling = _Engine(driver, pair.klog), _Ceiling(bare)
        read: tuple[Kind, ...] = ("batch", "stream")
        for kind in read:
            ours = partial(engine.run, engine.job(kind, topics[0], count))
            runs = in_turns(ours, ceiling.job(kind, count), warm_ups=_WARM_UPS)
            rows.append(_alone(f"{kind} source to noop", runs))

        def write() -> SparkMeasured:
            with pair.klog.topic("sink", _PARTITIONS) as topic:
                return engine.run(engine.job("keyed", topic, sized(_SINK_ROWS) // 2))

        bound = ceiling.job("keyed", sized(_SINK_ROWS) // 2)
        runs = in_turns(write, bound, warm_ups=_WARM_UPS)
        rows.append(_alone("sink, rows of a range, keyed", runs))
    return rows


def _alone(work: str, runs: Sequence[Sequence[SparkMeasured]]) -> Row:
    klog, ceiling = (median([run.records / run.seconds for run in each]) for each in runs)
    note = f"local[2]; {klog / ceiling:.0%} of the ceiling, {ceiling:,.0f}"
    return found(Row(f"{work} (klog's own Spark)", "records/s", klog, note=note))


@contextmanager
def _filled(
    engines: Sequence[_Engine], records: Records, *, in_full: bool = False
) -> Iterator[tuple[list[str], int]]:
    """A topic on each engine's broker with the same records: their names, and how many."""
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
