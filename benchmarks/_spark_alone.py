"""Rows of klog alone in Spark: its memory, many micro-batches, and its newest release of Spark."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks._brokers import Pair
from benchmarks._load.generator import SparkDriver
from benchmarks._load.spark_fill import Records, fill, whole
from benchmarks._load.spark_jobs import MICRO_RECORDS, Kind, SparkMeasured
from benchmarks._report import print_row
from benchmarks._spark_engines import (
    BIG,
    PARTITIONS,
    SINK_ROWS,
    WARM_UPS,
    Ceiling,
    Engine,
    filled,
)
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row

_CHECKOUT = Path(__file__).resolve().parents[1]
_NEWEST_PYTHON = _CHECKOUT / ".venv" / "bin" / "python"
_MOST_PYTHON_MB = 300.0
_MANY_MICRO_BATCHES = 20_000
_MOST_GROWTH_MB = 8.0
_SMALL = Records(100_000_000, 1, value_bytes=10, key_bytes=0, codec="zstd", batch_bytes=1_000_000)


def memory(pair: Pair) -> Row:
    progress("100 million small records in one task")
    with (
        SparkDriver("klog", []) as driver,
        filled((Engine(driver, pair.klog),), _SMALL) as (topics, count),
    ):
        engine = Engine(driver, pair.klog)
        measured = engine.run(engine.job("batch", topics[0], count))
    rate = measured.records / measured.seconds
    return print_row(
        Row(
            *(f"{count:,} records of 10 bytes, zstd, in one task", "MB of Python"),
            measured.python_peak_bytes / 1e6,
            bar=_MOST_PYTHON_MB,
            lower_is_better=True,
            note=f"the largest worker's peak; {rate:,.0f} records/s",
        )
    )


def many_micro_batches(pair: Pair) -> Row:
    count = sized(_MANY_MICRO_BATCHES)
    progress(f"{count} micro-batches, without Spark")
    shape = Records(count * MICRO_RECORDS)
    with (
        pair.klog.topic("batches", PARTITIONS) as topic,
        pair.klog.topic("batches", PARTITIONS) as to,
    ):
        fill(pair.klog.bootstrap_servers, topic, shape)
        command = [sys.executable, "-m", "benchmarks._load.spark_batches"]
        command += [pair.klog.bootstrap_servers, topic, to, str(count)]
        ran = subprocess.run(command, cwd=_CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
        pair.klog.expect_records(to, whole(shape), PARTITIONS)
    memory = json.loads(ran.stdout)
    growth_mb = (memory["late_bytes"] - memory["early_bytes"]) / 1e6
    work = f"{count:,} micro-batches of {MICRO_RECORDS} records, read and written"
    note = f"growth from the first fifth to the end, of {memory['late_bytes'] / 1e6:,.0f} MB"
    row = Row(work, "MB of Python", growth_mb, bar=_MOST_GROWTH_MB, lower_is_better=True, note=note)
    return print_row(row)


def newest_spark(pair: Pair) -> list[Row]:
    """klog on its own environment's Spark release, for which there is no jar of the peer here."""
    if not _NEWEST_PYTHON.exists():
        progress(f"spark43: {_NEWEST_PYTHON} is missing: ./dev test makes it")
        return []
    rows = []
    with (
        SparkDriver("klog", [], python=_NEWEST_PYTHON) as driver,
        SparkDriver("klog", [], python=_NEWEST_PYTHON) as bare,
        filled((Engine(driver, pair.klog),), BIG) as (topics, count),
    ):
        engine, ceiling = Engine(driver, pair.klog), Ceiling(bare)
        read: tuple[Kind, ...] = ("batch", "stream")
        for kind in read:
            ours = partial(engine.run, engine.job(kind, topics[0], count))
            runs = in_turns(ours, ceiling.job(kind, count), warm_ups=WARM_UPS)
            rows.append(_alone(f"{kind} source to noop", runs))

        def write() -> SparkMeasured:
            with pair.klog.topic("sink", PARTITIONS) as topic:
                return engine.run(engine.job("keyed", topic, sized(SINK_ROWS) // 2))

        bound = ceiling.job("keyed", sized(SINK_ROWS) // 2)
        runs = in_turns(write, bound, warm_ups=WARM_UPS)
        rows.append(_alone("sink, rows of a range, keyed", runs))
    return rows


def _alone(work: str, runs: Sequence[Sequence[SparkMeasured]]) -> Row:
    klog, ceiling = (median([run.records / run.seconds for run in each]) for each in runs)
    note = f"local[2]; {klog / ceiling:.0%} of the ceiling, {ceiling:,.0f}"
    return print_row(Row(f"{work} (klog's own Spark)", "records/s", klog, note=note))
