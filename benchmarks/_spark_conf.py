"""Measures the lines of spark-conf/: `./dev python -m benchmarks._spark_conf [LINE ...]`.

Each setting of spark-defaults.conf is measured on its own job, with the line and without it, in
turns, all other lines being in force: `spark.sql.*` within one driver, others in a new driver each
time, on one embedded broker. The program prints the seconds by the clock and of CPU, and the median
of the ratios of pairs, with / without: 0.80 is a fifth less. LINE is a setting, or `name=value@job`
for one that is not in the file. `--log` counts instead the lines that Spark logs with
log4j2.properties and without.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROOT = Path(__file__).resolve().parents[1]
_CONF = _ROOT / "spark-conf"
_PARTITIONS = 4
_RECORDS = 800_000
_FEW = 800
_WRITTEN = 300_000

JOB_OF = {"spark.sql.streaming.checkpointFileManagerClass": "micro"}
"""For a setting: the job whose time it changes."""


def settings_in(text: str) -> dict[str, str]:
    """The settings of a spark-defaults.conf, those right behind a `#` included."""
    found = {}
    for line in text.splitlines():
        stripped = line.removeprefix("#")
        if stripped.startswith("spark."):
            name, value = stripped.split(maxsplit=1)
            found[name] = value.strip()
    return found


# --- in a driver ---------------------------------------------------------------------------------
def _start(spark: "SparkSession", servers: str, folder: str) -> list[float]:  # noqa: ARG001
    """Start Spark and run a first action; its CPU time is that of the whole driver."""
    began = time.perf_counter()
    spark.range(1).count()
    return [time.perf_counter() - began]


def _read(spark: "SparkSession", servers: str, folder: str) -> list[float]:  # noqa: ARG001
    """Read all records in a batch to noop."""
    began = time.perf_counter()
    frame = spark.read.format("klog").option("kafka.bootstrap.servers", servers)
    frame.option("subscribe", "many").load().write.format("noop").mode("overwrite").save()
    return [time.perf_counter() - began]


def _write(spark: "SparkSession", servers: str, folder: str) -> list[float]:  # noqa: ARG001
    """Write rows in a batch."""
    rows = spark.range(_WRITTEN).selectExpr("string(id) as key", "rpad(id, 200, 'x') as value")
    began = time.perf_counter()
    writer = rows.write.format("klog").option("kafka.bootstrap.servers", servers)
    writer.option("topic", "out").mode("append").save()
    return [time.perf_counter() - began]


def _stream(spark: "SparkSession", servers: str, records_a_batch: int) -> "DataFrame":
    return (
        spark.readStream.format("klog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "few")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_a_batch)
        .load()
    )


def _micro(spark: "SparkSession", servers: str, folder: str) -> list[float]:
    """Run micro-batches of a few records to noop."""
    writer = _stream(spark, servers, _FEW // 20).writeStream.format("noop")
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    return [each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress]


def _state(spark: "SparkSession", servers: str, folder: str) -> list[float]:
    """Run micro-batches that count by key and write the counts to a topic."""
    counts = _stream(spark, servers, _FEW // 2).groupBy("key").count()
    writer = counts.selectExpr("key", "string(count) as value").writeStream.format("klog")
    query = (
        writer.option("kafka.bootstrap.servers", servers)
        .option("topic", "out")
        .option("checkpointLocation", folder)
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress]


JOBS: dict[str, Callable[["SparkSession", str, str], list[float]]] = {
    "start": _start,
    "read": _read,
    "write": _write,
    "micro": _micro,
    "state": _state,
}


class Timed(NamedTuple):
    """A job's seconds: the median of its parts by the clock, and all of its CPU time."""

    wall_s: float
    cpu_s: float


def _cpu_seconds() -> float:
    """CPU time of this process and its descendants, ended children included."""
    times: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        ticks = sum(map(int, fields[11:15]))
        times[int(path.parent.name)] = (int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
    total, wanted = 0.0, [os.getpid()]
    while wanted:
        pid = wanted.pop()
        total += times[pid][1]
        wanted += [each for each, (parent, _) in times.items() if parent == pid]
    return total


def drive(job: str, servers: str, folder: str, name: str, value: str, rounds: int) -> None:
    """Run one driver: print the times of `rounds` of its job, after one to warm up.

    With a ``name`` each round runs with that setting and without it, in turns.
    """
    from pyspark.sql import SparkSession

    timed: list[list[Timed]] = [[], []]
    with SparkSession.builder.master("local[2]").getOrCreate() as spark:
        default = spark.conf.get(name, None) if name else None
        for number in range(0 if job == "start" else -1, rounds):  # -1 warms up
            for side in (0, 1) if name else (0,):
                if name and side == 0:
                    spark.conf.set(name, value)
                elif name and default is not None:
                    spark.conf.set(name, default)
                elif name:
                    spark.conf.unset(name)
                cpu_before = 0.0 if job == "start" else _cpu_seconds()
                parts = JOBS[job](spark, servers, f"{folder}/{number}-{side}")
                used = _cpu_seconds() - cpu_before
                if number >= 0:
                    timed[side].append(Timed(median(parts), used))
        print(json.dumps(timed), flush=True)


# --- around them ---------------------------------------------------------------------------------
def run_driver(
    job: str,
    servers: str,
    settings: Mapping[str, str],
    *,
    log4j: Path | None = _CONF / "log4j2.properties",
    rounds: int = 1,
    toggled: tuple[str, str] = ("", ""),
) -> tuple[list[list[Timed]], str]:
    """Run a driver with these settings; return its times and its log."""
    with tempfile.TemporaryDirectory(prefix="klog-spark-conf-") as folder:
        conf = Path(folder, "conf")
        conf.mkdir()
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
        if log4j is not None:
            (conf / "log4j2.properties").write_text(log4j.read_text("utf-8"), encoding="utf-8")
        environment = {
            **os.environ,
            "SPARK_CONF_DIR": str(conf),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "broker")]),
        }
        command = [sys.executable, "-m", "benchmarks._spark_conf", "--drive", job, servers, folder]
        done = subprocess.run(
            [*command, *toggled, str(rounds)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise SystemExit(f"{job} with {dict(settings)} failed:\n{done.stderr[-3_000:]}")
    times = json.loads(done.stdout.splitlines()[-1])
    return [[Timed(*each) for each in side] for side in times], done.stderr


def fill(servers: str) -> None:
    """Fill the topics: one with many records, one with few; the third stays empty."""
    with BlockingClient({"bootstrap.servers": servers}) as client:
        with Admin(client=client) as admin:
            made = ("many", "few", "out")
            admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in made])
        producer = Producer(client)
        for topic, records, a_batch in (("many", _RECORDS, 1_000), ("few", _FEW, 10)):
            builder = BatchBuilder()
            for number in range(a_batch):
                builder.append(b"key-%d" % number, b"x" * 200, 1_000)
            data, count = builder.build(), builder.record_count
            for number in range(records // a_batch):
                producer.add(TopicPartition(topic, number % _PARTITIONS), data, count)
        producer.flush()


def measure(servers: str, name: str, value: str, job: str, pairs: int) -> str:
    """Measure one line's effect; return it as a line of text."""
    file = settings_in((_CONF / "spark-defaults.conf").read_text(encoding="utf-8"))
    others = {key: given for key, given in file.items() if key != name}
    if name.startswith("spark.sql."):  # such a setting may change while a driver runs
        times, _ = run_driver(job, servers, others, rounds=pairs, toggled=(name, value))
        with_it, without = times
    else:
        with_it, without = [], []
        for _ in range(pairs):
            with_it += run_driver(job, servers, {**others, name: value}, rounds=2)[0][0][-1:]
            without += run_driver(job, servers, others, rounds=2)[0][0][-1:]
    shown = []
    for clock in ("wall_s", "cpu_s"):
        both = [
            (getattr(a, clock), getattr(b, clock)) for a, b in zip(with_it, without, strict=True)
        ]
        ratios = sorted(a / b for a, b in both if b)
        shown.append(
            f"{clock} {median(a for a, _ in both):.3f} with, {median(b for _, b in both):.3f} "
            f"without, ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
    return f"{name}={value} {job}: {'; '.join(shown)}"


def count_log_lines(servers: str) -> str:
    """Count the log lines of a write and a stateful stream, with and without log4j2.properties."""
    file = settings_in((_CONF / "spark-defaults.conf").read_text(encoding="utf-8"))
    counts = {}
    for label, log4j in (("with", _CONF / "log4j2.properties"), ("without", None)):
        logged = [run_driver(job, servers, file, log4j=log4j)[1] for job in ("write", "state")]
        for text in logged:
            print(text, file=sys.stderr)
        counts[label] = [len(text.splitlines()) for text in logged]
    return f"log4j2.properties: lines of write, state: {counts}"


def main(arguments: Sequence[str]) -> int:
    """Measure the named lines, or every line of the file."""
    if arguments[:1] == ["--drive"]:
        job, servers, folder, name, value, rounds = arguments[1:]
        drive(job, servers, folder, name, value, int(rounds))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", nargs="*", metavar="LINE")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--log", action="store_true")
    given = parser.parse_args(arguments)
    file = settings_in((_CONF / "spark-defaults.conf").read_text(encoding="utf-8"))
    with testing.Broker(num_partitions=_PARTITIONS) as broker:
        servers = broker.bootstrap_servers
        fill(servers)
        if given.log:
            print(count_log_lines(servers))
            return 0
        for line in given.lines or [name for name in file if name in JOB_OF]:
            name, _, rest = line.partition("=")
            value, _, job = rest.rpartition("@") if rest else (file[name], "", JOB_OF[name])
            print(measure(servers, name, value, job, given.pairs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
