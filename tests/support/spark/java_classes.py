"""Classes that Java finds ready made: an archive of what Spark loads, mapped by all JVMs of a run.

A whole run starts Java some thirty times, and half of the work of a start is to load the same
classes again. `python -m tests.support.spark.java_classes` is the program whose classes are kept.
An archive is of one Java and one Spark; a JVM that it does not fit (another class path) goes
without.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from pyspark_klog import testing
from tests.support.peers import PeersMissing, java
from tests.support.spark.session import spark_session

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ".dev/java-classes"
JAVA_VARIABLE = "JDK_JAVA_OPTIONS"
_PROGRAM = "tests/support/spark/java_classes.py"
_DEADLINE_S = 600
# A JVM that the archive does not fit says so on stdout, which programs read.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def option(root: Path = ROOT) -> str:
    """Return the JVM options that use the archive; "" if there is none."""
    found = archive(root)
    if found is None or not found.exists():
        return ""
    return f'{_SILENT} "-XX:SharedArchiveFile={found}"'


def make(options: str, root: Path = ROOT) -> None:
    """Make the archive if it does not exist, with the other options of the tests' JVMs.

    A failure is only printed, because tests also run without the archive, more slowly.
    """
    found = archive(root)
    if found is None or found.exists() or not (root / _PROGRAM).exists():
        return
    found.parent.mkdir(parents=True, exist_ok=True)
    made = found.with_suffix(f".{os.getpid()}")  # a JVM that maps half an archive dies
    print("Java's classes are made ready (once)", flush=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.spark.java_classes"],
            cwd=root,
            env={**os.environ, JAVA_VARIABLE: f'{options} "-XX:ArchiveClassesAtExit={made}"'},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # Java has it, too: its end is Java's
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DEADLINE_S,
            check=False,
        )
        if done.returncode == 0 and made.exists():
            for other in found.parent.glob(f"{_spark()}-*"):
                if other != made:  # of a Java that was here before, or of a run that was killed
                    other.unlink()
            made.replace(found)
        else:
            print(f"Java's classes are not ready: {done.stdout[-2_000:]}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"Java's classes are not ready after {_DEADLINE_S} s", flush=True)
    finally:
        made.unlink(missing_ok=True)


def archive(root: Path = ROOT) -> Path | None:
    """Return the path of the archive; None without Java.

    Its name depends on all inputs: Java by path, size and time, the environment, this file.
    """
    try:
        launcher = Path(java()).resolve()
    except PeersMissing:
        return None
    digest = hashlib.sha256(Path(__file__).read_bytes())
    it = launcher.stat()
    digest.update(f"{launcher} {it.st_size} {it.st_mtime_ns} {sys.prefix}".encode())
    return root / FOLDER / f"{_spark()}-{digest.hexdigest()[:12]}.jsa"


def _spark() -> str:
    return metadata.version("pyspark")


def main() -> None:
    """Read and write as tests do: by batch, and in streams with a state and with foreachBatch."""
    spark = spark_session()
    with testing.Broker() as broker, tempfile.TemporaryDirectory() as folder:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        rows = spark.range(100).selectExpr("string(id % 7) AS key", "string(id) AS value")
        rows.write.format("klog").options(**options).option("topic", "numbers").mode(
            "append"
        ).save()
        batch = spark.read.format("klog").options(**options).option("subscribe", "numbers").load()
        batch.groupBy("key").count().orderBy("key").collect()
        stream = spark.readStream.format("klog").options(**options)
        stream = stream.option("subscribe", "numbers").option("startingOffsets", "earliest")
        counts = stream.load().groupBy("key").count().selectExpr("key", "string(count) AS value")
        counted = counts.writeStream.format("klog").options(**options).option("topic", "counts")
        each = stream.load().writeStream.foreachBatch(lambda frame, _: frame.collect() and None)
        for name, writer in (("counted", counted.outputMode("complete")), ("each", each)):
            writer = writer.option("checkpointLocation", f"{folder}/{name}")
            writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
