"""`klog lake run`, and Spark's reads of its tables beside klog's source and Spark's own connector.

Rows for ``--rows``: writer, rows, column, counts, union.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.generator import SparkDriver
from benchmarks._load.spark_fill import Records, fill, whole
from benchmarks._load.spark_jobs import Kind
from benchmarks._processes import cpu_seconds
from benchmarks._report import print_row
from benchmarks._spark_engines import PARTITIONS, WARM_UPS, Engine
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from tests.support.lake import ICEBERG, KINDS, Lake
from tests.support.peers import spark_connector_jars

ROWS = ("writer", "rows", "column", "counts", "union")
_COPIED = Records(12_000_000)
_READ = Records(12_000_000)
_COLD_SHARE = 0.91
_MOST_MB = 500.0
_COLUMN = {"columns": "value"}
_COUNTS = {"columns": "partition"}


@dataclass(frozen=True)
class Copied:
    """One run of `klog lake run --once`."""

    records: int
    seconds: float
    cpu_s: float
    peak_mb: float
    broker_cpu_s: float


def _copy(lake: Lake, side: Side, topic: str, records: int, kind: str = ICEBERG) -> Copied:
    """Copy a topic in a process of its own."""
    config = lake.folder / f"{kind}.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in lake.catalog(kind).items()))
    command = [str(Path(sys.executable).with_name("klog")), "lake", "run", "--once"]
    command += ["--bootstrap-server", side.bootstrap_servers, "--topic", topic]
    command += ["--to", lake.place(kind), "--catalog-config", str(config)]
    before_s = cpu_seconds(side.pid)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    began_s = os.times().elapsed
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}")
    return Copied(
        records,
        os.times().elapsed - began_s,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        cpu_seconds(side.pid) - before_s,
    )


def run(args: argparse.Namespace) -> list[Row]:
    wanted = {name.strip() for name in args.rows.split(",") if name.strip()} or set(ROWS)
    if unknown := sorted(wanted - set(ROWS)):
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    rows: list[Row] = []
    with _brokers.both() as pair, tempfile.TemporaryDirectory(prefix="klog-bench-lake-") as folder:
        lake = Lake(Path(folder))
        if "writer" in wanted:
            rows += _writer(pair.klog, lake)
        if wanted - {"writer"}:
            rows += _reads(wanted, pair, lake)
    return rows


# --- writing -------------------------------------------------------------------------------------
def _writer(side: Side, lake: Lake) -> list[Row]:
    records = Records(sized(_COPIED.count), PARTITIONS)
    count = whole(records)

    def copy(kind: str) -> Copied:
        # Each run has a topic of its own, because a table that exists is only continued.
        with side.topic("lake", PARTITIONS) as topic:
            fill(side.bootstrap_servers, topic, records)
            return _copy(lake, side, topic, count, kind)

    progress(f"klog lake run --once, {count} records")
    given = in_turns(*(partial(copy, kind) for kind in KINDS), warm_ups=0)
    rows: list[Row] = []
    for kind, runs in zip(KINDS, given, strict=True):
        a_core = median([each.records / each.cpu_s for each in runs])
        wall = median([each.records / each.seconds for each in runs])
        broker_us = median([each.broker_cpu_s / each.records * 1e6 for each in runs])
        peak_mb = max(each.peak_mb for each in runs)
        what = f"klog lake run, {kind.title()}"
        note = f"whole process with its start; {wall:,.0f} records/s of wall time"
        rows.append(Row(f"{what}: writer", "records/s and core", a_core, bar=1.1e6, note=note))
        rows.append(Row(f"{what}: broker", "us a record", broker_us, None, 0.12, True))
        rows.append(Row(f"{what}: memory", "MB", peak_mb, None, _MOST_MB, True, "peak"))
    return [print_row(row) for row in rows]


# --- reading -------------------------------------------------------------------------------------
def _reads(wanted: set[str], pair: _brokers.Pair, lake: Lake) -> list[Row]:
    records = Records(sized(_READ.count), PARTITIONS)
    rows: list[Row] = []
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(driver)
            for driver in (
                SparkDriver("klog", []),
                SparkDriver("klog", []),
                SparkDriver("kafka", spark_connector_jars()),
            )
        ]
        sides = (pair.klog, pair.klog, pair.kafka)
        engines = [Engine(driver, side) for driver, side in zip(drivers, sides, strict=True)]
        compare = partial(_compare, engines, lake)
        with _filled(pair, [records]) as (topics, count):
            _copy(lake, pair.klog, topics[0], count)
            if "rows" in wanted:
                rows += compare("whole rows", "batch", topics, count, 1.8)
            if "column" in wanted:
                rows += compare("one column", "column", topics, count, 2.5, own=_COLUMN)
            if "counts" in wanted:
                rows += compare("counts by partition", "counts", topics, count, 5.0, own=_COUNTS)
        if "union" in wanted:
            rows += _union(compare, pair, lake, records)
    return rows


def _union(
    compare: partial[list[Row]], pair: _brokers.Pair, lake: Lake, all_: Records
) -> list[Row]:
    cold = Records(whole(Records(round(all_.count * _COLD_SHARE), PARTITIONS)), PARTITIONS)
    hot = Records(all_.count - cold.count, PARTITIONS)
    with _filled(pair, [cold]) as (topics, count):
        _copy(lake, pair.klog, topics[0], count)
        for side, topic in zip((pair.klog, pair.kafka), topics, strict=True):
            fill(side.bootstrap_servers, topic, hot)
        count += whole(hot)
        work = f"union, {(count - whole(hot)) / count:.0%} cold"
        return compare(work, "batch", topics, count, 1.8, is_union=True)


@contextmanager
def _filled(pair: _brokers.Pair, parts: Sequence[Records]) -> Iterator[tuple[list[str], int]]:
    """A topic with the same records on both brokers: the names, and the record count."""
    with ExitStack() as stack:
        topics = []
        for side in (pair.klog, pair.kafka):
            topic = stack.enter_context(side.topic("lake", PARTITIONS))
            for records in parts:
                fill(side.bootstrap_servers, topic, records)
            topics.append(topic)
        yield topics, sum(whole(records) for records in parts)


def _compare(
    engines: Sequence[Engine],
    lake: Lake,
    work: str,
    kind: Kind,
    topics: Sequence[str],
    count: int,
    bar: float,
    own: dict[str, str] | None = None,
    *,
    is_union: bool = False,
) -> list[Row]:
    """The CPU time of one query over the table, klog's source and Spark's connector."""
    progress(work)
    table, source, connector = engines
    topic, kafka_topic = topics
    jobs = [
        table.job(
            kind,
            topic if is_union else "",
            count,
            table=lake.address(ICEBERG, topic),
            catalog=lake.catalog(ICEBERG),
        ),
        source.job(kind, topic, count),
        connector.job(kind, kafka_topic, count),
    ]
    sides: list[tuple[str, Engine, float | None]] = [
        ("the table", table, None),
        ("klog's source", source, bar),
        ("Spark's connector", connector, None),
    ]
    if own:
        # Spark does not tell a source in Python which columns a query needs; this option does.
        jobs.append(source.job(kind, topic, count, options=own))
        sides.append(("klog's source with the option columns", source, bar))
    runs = in_turns(
        *(partial(engine.run, job) for (_, engine, _), job in zip(sides, jobs, strict=True)),
        warm_ups=WARM_UPS,
    )
    cpu = [median([run.cpu_s / count * 1e6 for run in each]) for each in runs]
    wall = [median([count / run.seconds for run in each]) for each in runs]
    return [
        print_row(
            Row(
                f"{work}: CPU that {name} needs, over that of the table",
                "us a record",
                cpu[at],
                cpu[0],
                least,
                note=f"klog: {name}, peer: the table; {wall[at]:,.0f} and {wall[0]:,.0f} records/s",
            )
        )
        for at, (name, _, least) in enumerate(sides)
        if at
    ]
