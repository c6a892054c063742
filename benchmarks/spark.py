"""Spark's batch source, stream source and sink, local[2], and Spark's own Kafka connector.

Rows for ``--rows``: batch, stream, keyed, unkeyed, copy, micro, idle, lz4, zstd, gzip, 1kb, 10kb,
1mb, partitions1, partitions8, partitions64, headers, memory, batches, spark43.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version

from benchmarks import _brokers
from benchmarks._defaults import differing, kafka_client_defaults
from benchmarks._load.generator import SparkDriver
from benchmarks._load.spark_fill import Records
from benchmarks._load.spark_jobs import MICRO_RECORDS, Kind, SparkMeasured
from benchmarks._report import print_row
from benchmarks._spark_alone import many_micro_batches, memory, newest_spark
from benchmarks._spark_engines import (
    BIG,
    PARTITIONS,
    SINK_ROWS,
    WARM_UPS,
    Ceiling,
    Engine,
    Engines,
    cpu_us,
    filled,
    phases,
)
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from tests.support.peers import spark_connector_jars

_MICRO_BATCHES = 50

_COPIED = Records(3_000_000)
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


def run(args: argparse.Namespace) -> list[Row]:
    wanted = _wanted(args.rows)
    with _brokers.both() as pair:
        rows: list[Row] = []
        if wanted - {"memory", "batches", "spark43"}:
            with ExitStack() as stack:
                klog = stack.enter_context(SparkDriver("klog", []))
                kafka = stack.enter_context(SparkDriver("kafka", spark_connector_jars()))
                ceiling = stack.enter_context(SparkDriver("klog", []))
                engines = Engines(
                    Engine(klog, pair.klog), Engine(kafka, pair.kafka), Ceiling(ceiling)
                )
                defaults = "; ".join(differing(kafka_client_defaults()))
                progress(f"defaults that differ, klog / Spark's own connector: {defaults}")
                rows += _compared(wanted, engines)
        if "memory" in wanted:
            rows.append(memory(pair))
        if "batches" in wanted:
            rows.append(many_micro_batches(pair))
        if "spark43" in wanted:
            rows += newest_spark(pair)
        return rows


def _wanted(names: str) -> set[str]:
    chosen = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(chosen.difference(ROWS))
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    return chosen or set(ROWS)


def _compared(wanted: set[str], engines: Engines) -> list[Row]:
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
def _sources(wanted: set[str], engines: Engines) -> list[Row]:
    rows = []
    with filled(engines.both, BIG) as (topics, count):
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
    engines: Engines,
    topics: Sequence[str],
    count: int,
    records: Records = BIG,
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
    return _row(work, bar, in_turns(*readers, ceiling, warm_ups=WARM_UPS))


def _sink(kind: Kind, engines: Engines) -> Row:
    work = f"sink, rows of a range, {kind}"
    progress(work)
    count = sized(SINK_ROWS)

    def write(engine: Engine) -> SparkMeasured:
        with engine.side.topic("sink", PARTITIONS) as topic:
            measured = engine.run(engine.job(kind, topic, count))
            engine.side.expect_records(topic, count, PARTITIONS)
            return measured

    writers = (partial(write, engine) for engine in engines.both)
    ceiling = engines.ceiling.job(kind, count)
    return _row(work, 2.0, in_turns(*writers, ceiling, warm_ups=WARM_UPS))


def _copy(engines: Engines) -> Row:
    work = "copy topic to topic"
    progress(work)

    def copy(engine: Engine, topic: str, count: int) -> SparkMeasured:
        with engine.side.topic("copy", PARTITIONS) as to:
            measured = engine.run(engine.job("copy", topic, count, to=to))
            engine.side.expect_records(to, count, PARTITIONS)
            return measured

    with filled(engines.both, _COPIED) as (topics, count):
        copies = [
            partial(copy, engine, topic, count)
            for engine, topic in zip(engines.both, topics, strict=True)
        ]
        ceiling = engines.ceiling.job("copy", count)
        return _row(work, 2.0, in_turns(*copies, ceiling, warm_ups=WARM_UPS))


def _shape(what: str, records: Records, engines: Engines) -> Row:
    options = {"includeHeaders": "true"} if records.headers else {}
    with filled(engines.both, records) as (topics, count):
        work = f"batch source to noop, {what}"
        return _read_row(work, 1.0, "batch", engines, topics, count, records, options)


def _row(work: str, bar: float | None, given: Sequence[Sequence[SparkMeasured]]) -> Row:
    """The row of klog's runs, the peer's, and those of the ceiling."""
    rates = [median([run.records / run.seconds for run in runs]) for runs in given]
    cpu = " / ".join(cpu_us(runs) for runs in given)
    notes = [
        f"local[2]; {rates[0] / rates[2]:.0%} of the ceiling, {rates[2]:,.0f}",
        f"CPU us a record (JVM + Python + broker), klog / peer / ceiling {cpu}",
    ]
    triggers = [[run.records / run.triggers_s for run in runs if run.triggers_s] for runs in given]
    if all(triggers):
        alone = " / ".join(f"{median(each):,.0f}" for each in triggers)
        notes.append(f"the micro-batches alone, klog / peer / ceiling {alone}")
    work = f"{work} (Spark {version('pyspark')})"
    return print_row(Row(work, "records/s", rates[0], rates[1], bar, note="; ".join(notes)))


# --- small things --------------------------------------------------------------------------------
def _micro_batches(engines: Engines) -> list[Row]:
    rows = []
    batches = max(_MICRO_BATCHES, sized(_MICRO_BATCHES))
    records = Records(batches * MICRO_RECORDS)
    kinds: tuple[tuple[Kind, float], ...] = (("micro_noop", 1.25), ("micro_topic", 1.6))
    for kind, bar in kinds:
        target = "to noop" if kind == "micro_noop" else "into a topic"
        work = f"micro-batch of {MICRO_RECORDS} records, 4 partitions, {target}"
        progress(work)

        def measure(engine: Engine, topic: str, count: int, kind: Kind = kind) -> SparkMeasured:
            with engine.side.topic("micro", PARTITIONS) as to:
                return engine.run(engine.job(kind, topic, count, to=to))

        with filled(engines.both, records, in_full=True) as (topics, count):
            sides = zip(engines.both, topics, strict=True)
            readers = (partial(measure, engine, topic, count) for engine, topic in sides)
            runs = in_turns(*readers, engines.ceiling.job(kind, count))
        klog, kafka, ceiling = (median([run.batch_ms or 0.0 for run in each]) for each in runs)
        note = (
            f"median of {batches} micro-batches a run, the first ones left out; "
            f"{klog / ceiling:.0%} of the ceiling's {ceiling:.0f} ms; "
            f"ms klog / peer / ceiling: {phases(runs)}"
        )
        rows.append(print_row(Row(work, "ms", klog, kafka, bar, lower_is_better=True, note=note)))
    return rows


def _idle(engines: Engines) -> list[Row]:
    progress("idle query")
    measured = []
    for engine in engines.both:
        with engine.side.topic("idle", PARTITIONS) as topic:
            measured.append(engine.run(engine.job("idle", topic, 1)))
    jvm = " / ".join(f"{(each.jvm_cpu or 0) * 100:.1f}" for each in measured)
    shares = [(each.driver_cpu or 0) * 100 for each in measured]
    waits_ms = [each.pick_up_ms or 0.0 for each in measured]

    def row(work: str, unit: str, figures: Sequence[float], bar: float, note: str) -> Row:
        klog, peer = figures
        return print_row(Row(f"idle query, {work}", unit, klog, peer, bar, True, note, True))

    note = f"JVM and Python; the JVM alone, klog / peer {jvm}"
    return [
        row("CPU of the driver", "% of a core", shares, 5.0, note),
        row("a new record is picked up", "ms", waits_ms, 100.0, "the longest of ten"),
    ]
