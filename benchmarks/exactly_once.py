"""Spark's sink with and without exactlyOnce, local[2], on klog and on Kafka.

Rows for ``--rows``: rows, micro, rows_kafka, micro_kafka.
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.generator import SparkDriver
from benchmarks._load.jobs import LoadFailed
from benchmarks._load.spark_fill import Records
from benchmarks._load.spark_jobs import MICRO_RECORDS, SparkMeasured
from benchmarks._report import print_row
from benchmarks._spark_engines import (
    PARTITIONS,
    SINK_ROWS,
    WARM_UPS,
    Engine,
    cpu_us,
    filled,
    phases,
)
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row

_MICRO_BATCHES = 50
_TASKS = 2
"""The number of tasks of a range on local[2]."""
_MODES: tuple[dict[str, str], ...] = ({"exactlyOnce": "true"}, {})
"""Options of the measured sink, and of the sink that it is compared with."""
_BARS_MICRO = {_brokers.KLOG: 1.3, _brokers.KAFKA: 1.5}
_BAR_ROWS = 0.85
ROWS = ("rows", "micro", "rows_kafka", "micro_kafka")


def run(args: argparse.Namespace) -> list[Row]:
    wanted = _wanted(args.rows)
    rows: list[Row] = []
    brokers = ((_brokers.klog_broker, ""), (_brokers.kafka_broker, "_kafka"))
    for broker, ending in brokers:
        if wanted.isdisjoint({f"rows{ending}", f"micro{ending}"}):
            continue
        with ExitStack() as stack:
            side = stack.enter_context(broker())
            # One driver serves both modes, since the code that the JVM compiles is common to both.
            engine = Engine(stack.enter_context(SparkDriver("klog", [])), side)
            if f"rows{ending}" in wanted:
                rows.append(_many_rows(engine))
            if f"micro{ending}" in wanted:
                rows.append(_micro_batches(engine))
    return rows


def _wanted(names: str) -> set[str]:
    chosen = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(chosen.difference(ROWS))
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    return chosen or set(ROWS)


def _many_rows(engine: Engine) -> Row:
    """A batch write: each task is one transaction."""
    count = sized(SINK_ROWS)
    work = f"sink, {count:,} rows of a range, on {engine.side.name}"
    progress(work)

    def write(options: dict[str, str]) -> SparkMeasured:
        with engine.side.topic("sink", PARTITIONS) as topic:
            measured = engine.run(engine.job("keyed", topic, count, sink_options=options))
            # A task's keys go to all partitions, so its transaction ends with a marker in each of
            # them.
            markers = _TASKS * PARTITIONS if options else 0
            engine.side.expect_records(topic, count + markers, PARTITIONS)
            return measured

    runs = in_turns(*_each_mode(write), warm_ups=WARM_UPS)
    exactly, at_least = (median([run.records / run.seconds for run in each]) for each in runs)
    cpu = " / ".join(cpu_us(each) for each in runs)
    note = (
        f"{_spark()}; 10-byte keys, 200-byte values; CPU us a record (JVM + Python + broker), "
        f"exactly / at least once {cpu}"
    )
    return print_row(Row(work, "records/s", exactly, at_least, _BAR_ROWS, note=note))


def _micro_batches(engine: Engine) -> Row:
    """A stream from topic to topic.

    The first micro-batches, where the driver ends the transactions, do not count.
    """
    work = f"micro-batch of {MICRO_RECORDS} records into a topic, on {engine.side.name}"
    progress(work)
    batches = max(_MICRO_BATCHES, sized(_MICRO_BATCHES))

    def copy(topic: str, count: int, options: dict[str, str]) -> SparkMeasured:
        with engine.side.topic("micro", PARTITIONS) as to:
            job = engine.job("micro_topic", topic, count, to=to, sink_options=options)
            measured = engine.run(job)
            _check_copy(engine.side, to, count, most_markers=batches * PARTITIONS**2)
            return measured

    records = Records(batches * MICRO_RECORDS)
    with filled([engine], records, in_full=True) as ((topic,), count):
        runs = in_turns(*_each_mode(partial(copy, topic, count)))
    exactly, at_least = (median([run.batch_ms or 0.0 for run in each]) for each in runs)
    note = (
        f"{_spark()}; {PARTITIONS} tasks; median of {batches} micro-batches a run, the first ones "
        f"left out; ms exactly / at least once: {phases(runs)}"
    )
    bar = _BARS_MICRO[engine.side.name]
    return print_row(Row(work, "ms", exactly, at_least, bar, lower_is_better=True, note=note))


def _check_copy(side: Side, topic: str, count: int, most_markers: int) -> None:
    """Raise LoadFailed unless all records are there, with no more than their markers besides."""
    ends = sum(side.end_offset(topic, partition) for partition in range(PARTITIONS))
    if not count <= ends <= count + most_markers:
        raise LoadFailed(
            f"{side.name}: {topic} ends at {ends} in all, expected {count} records and at most "
            f"{most_markers} markers"
        )


def _each_mode(
    measure: Callable[[dict[str, str]], SparkMeasured],
) -> Sequence[Callable[[], SparkMeasured]]:
    return [partial(measure, options) for options in _MODES]


def _spark() -> str:
    return f"exactly beside at least once, local[2], Spark {version('pyspark')}"
