"""A Spark driver, local[2]: a job on each line of stdin, its measurement on a line of stdout.

The first argument is the format, ``klog`` or ``kafka``; the others are jars.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks._load.spark_ends import Ends
from benchmarks._load.spark_jobs import SparkJob, SparkMeasured, read_job
from benchmarks._load.spark_small import idle, jvm_pid, micro_batches, python_peak_bytes
from benchmarks._processes import cpu_seconds, tree_cpu_seconds

_SHOWN_CHARACTERS = 1_500
_CHECKOUT = Path(__file__).resolve().parents[2]


def make_session(folder: str, jars: list[str]) -> SparkSession:
    """A session with few extras; both engines get an equal one."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("klog bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.local.dir", f"{folder}/local")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class Driver:
    """Runs jobs in one session, through one data source."""

    def __init__(self, session: SparkSession, source: str, folder: str) -> None:
        self._session = session
        self._ends = Ends(session, source)
        self._folder = folder
        self._triggers_s: float | None = None
        self._run: dict[str, Callable[[SparkJob], int]] = {
            "check": self._check,
            "batch": self._batch,
            "column": self._column,
            "counts": self._counts,
            "stream": self._stream,
            "keyed": self._write,
            "unkeyed": self._write,
            "copy": self._copy,
        }

    def run(self, job: SparkJob) -> SparkMeasured:
        """Run a job; the time is that of the Spark action alone."""
        if job.kind in ("micro_noop", "micro_topic"):
            return micro_batches(self._ends, self._folder, job)
        if job.kind == "idle":
            return idle(self._ends, self._folder, job)
        self._triggers_s = None
        jvm = jvm_pid()
        cpu_before_s = tree_cpu_seconds(jvm) + time.process_time()
        jvm_before_s = cpu_seconds(jvm)
        start = time.perf_counter()
        records = self._run[job.kind](job)
        seconds = time.perf_counter() - start
        return SparkMeasured(
            seconds,
            records,
            self._triggers_s,
            cpu_s=tree_cpu_seconds(jvm) + time.process_time() - cpu_before_s,
            jvm_cpu_s=cpu_seconds(jvm) - jvm_before_s,
            python_peak_bytes=python_peak_bytes(),
        )

    # --- reading ---------------------------------------------------------------------------------
    def _check(self, job: SparkJob) -> int:
        columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        counts = [f.count(column).alias(column) for column in columns]
        found = (
            self._ends.load(job).agg(*counts, f.sum(f.length("value")).alias("bytes")).collect()[0]
        )
        assert len({found[column] for column in columns}) == 1, found
        assert found["bytes"] == found["value"] * job.value_bytes, found
        return int(found["value"])

    def _batch(self, job: SparkJob) -> int:
        self._ends.load(job).write.format("noop").mode("overwrite").save()
        return job.records

    def _column(self, job: SparkJob) -> int:
        self._ends.load(job).select("value").write.format("noop").mode("overwrite").save()
        return job.records

    def _counts(self, job: SparkJob) -> int:
        found = self._ends.load(job).groupBy("partition").count().collect()
        return sum(row["count"] for row in found)

    def _stream(self, job: SparkJob) -> int:
        frame = self._ends.stream(job)
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            query = (
                frame.writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        progress = query.recentProgress
        self._triggers_s = sum(each.durationMs["triggerExecution"] for each in progress) / 1000
        return sum(each.numInputRows for each in progress)

    # --- writing ---------------------------------------------------------------------------------
    def _rows(self, job: SparkJob) -> DataFrame:
        key = f.lit(None).cast("string")
        if job.kind == "keyed":
            key = f.concat(f.lit("key-"), (f.col("id") % 1_000_000).cast("string"))
        value = f.rpad(f.col("id").cast("string"), job.value_bytes, "x")
        return self._session.range(job.records).select(key.alias("key"), value.alias("value"))

    def _write(self, job: SparkJob) -> int:
        self._ends.save(self._rows(job), job, job.topic)
        return job.records

    def _copy(self, job: SparkJob) -> int:
        self._ends.save(self._ends.load(job).select("key", "value"), job, job.to)
        return job.records


def main(source: str, jars: list[str]) -> int:
    """Run jobs until stdin ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark finds data sources in folders, and its workers find modules there.
    paths = [str(_CHECKOUT), str(_CHECKOUT / "broker"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    with tempfile.TemporaryDirectory(prefix="klog-bench-spark-") as folder:
        session = make_session(folder, jars)
        try:
            driver = Driver(session, source, folder)
            for line in sys.stdin:
                try:
                    answer: dict[str, object] = {"measured": asdict(driver.run(read_job(line)))}
                except (PySparkException, Py4JError, AssertionError) as error:
                    # The rest of the text is Java's stack.
                    text = str(error)[:_SHOWN_CHARACTERS]
                    answer = {"error": f"{type(error).__name__}: {text}"}
                out.write(json.dumps(answer) + "\n")
                out.flush()
        finally:
            session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
