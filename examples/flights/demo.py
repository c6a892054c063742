"""Runs the jobs against an embedded broker, kills the streaming driver, and checks the result.

The broker is this process's child, so it outlives the driver, which is killed with SIGKILL in the
middle of a batch and then started again on the same checkpoint.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.flights.checkpoint import committed_offsets, read_checkpoint
from examples.flights.data import ROWS, DataMissing, extract_flights
from examples.flights.jobs import (
    DELAYS_PARTITIONS,
    DELAYS_TOPIC,
    FLIGHTS_PARTITIONS,
    FLIGHTS_TOPIC,
)
from examples.flights.progress import Progress
from examples.flights.report import plot, table
from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.ids import TopicPartition

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / ".dev" / "flights.png"
COMMITTED_BEFORE_THE_KILL = 3
_LOOK_S = 0.02
_SHOW_S = 1.0
_JOB_TIMEOUT_S = 300.0
_PARTITIONS = [TopicPartition(FLIGHTS_TOPIC, n) for n in range(FLIGHTS_PARTITIONS)]


class DemoFailed(Exception):
    """Something did not go as it has to."""


class Driver:
    """A Spark driver as a process in a session of its own, so that it can be killed as a whole."""

    def __init__(self, jobs: list[str], servers: str, folder: Path) -> None:
        self._folder = folder
        self._log_path = folder / "spark.log"
        command = [sys.executable, "-m", "examples.flights.jobs", *jobs]
        command += ["--servers", servers, "--folder", str(folder)]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether the driver is there."""
        return self._process.poll() is None

    def signal(self, what: signal.Signals) -> None:
        """Send a signal to the driver and its JVM."""
        if self.is_running:
            os.killpg(self._process.pid, what)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def wait_for(self, job: str, look: Callable[[], None]) -> dict[str, Any]:
        """Call ``look`` once a second until the job is done; gives its result."""
        path = self._folder / f"{job}.json"
        deadline = time.monotonic() + _JOB_TIMEOUT_S
        next_look = 0.0
        while not path.exists():
            now = time.monotonic()
            if not self.is_running and not path.exists():
                raise DemoFailed(f"the job {job} failed: {self.tail()}")
            if now >= deadline:
                raise DemoFailed(f"the job {job} took more than {_JOB_TIMEOUT_S:g} s")
            if now >= next_look:
                look()
                next_look = now + _SHOW_S
            time.sleep(_LOOK_S)
        look()
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return result

    def tail(self) -> str:
        """The end of the driver's output."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")[-3_000:]


class Demo:
    """The story, step by step."""

    def __init__(self, servers: str, client: BlockingClient, folder: Path) -> None:
        self._servers = servers
        self._client = client
        self._folder = folder
        self._checkpoint = folder / "checkpoint"
        self._drivers: list[Driver] = []

    def start_driver(self, *jobs: str) -> Driver:
        """A new driver for some jobs."""
        driver = Driver(list(jobs), self._servers, self._folder)
        self._drivers.append(driver)
        return driver

    def close(self) -> None:
        """Leave no driver behind."""
        for driver in self._drivers:
            driver.kill()

    def _ends(self) -> dict[TopicPartition, int]:
        found = list_offsets(self._client, dict.fromkeys(_PARTITIONS, LATEST))
        return {partition: at.offset for partition, at in found.items()}

    def write(self, driver: Driver) -> float:
        """The batch job; gives its rate in records a second."""
        _say(f"A batch job writes {ROWS:,} flights to a topic of {FLIGHTS_PARTITIONS} partitions")
        progress = Progress("written", ROWS)
        result = driver.wait_for("write", lambda: progress.show(sum(self._ends().values())))
        progress.end()
        return ROWS / float(result["seconds"])

    def _show_stream(self, progress: Progress, ends: dict[TopicPartition, int]) -> None:
        done = committed_offsets(self._checkpoint)
        lag = {p.partition: end - done.get(p, 0) for p, end in ends.items()}
        progress.show(sum(done.values()), lag)

    def stream_and_kill(self, driver: Driver) -> None:
        """The streaming job, killed after some batches, in the middle of another."""
        _say("A streaming job computes delays by origin and hour; its driver will be killed")
        progress = Progress("processed", ROWS)
        ends = self._ends()
        next_look = 0.0
        while driver.is_running and not self._stopped_in_a_batch(driver):
            if time.monotonic() >= next_look:
                self._show_stream(progress, ends)
                next_look = time.monotonic() + _SHOW_S
            time.sleep(_LOOK_S)
        driver.kill()
        self._show_stream(progress, ends)
        progress.end()
        left = read_checkpoint(self._checkpoint)
        if len(left.committed) < COMMITTED_BEFORE_THE_KILL or not left.has_uncommitted:
            raise DemoFailed(f"the driver ended at the wrong time: {left}: {driver.tail()}")
        _say(
            f"Driver killed (SIGKILL): {len(left.committed)} batches committed, batch "
            f"{left.planned[-1]} begun and not committed"
        )

    def _stopped_in_a_batch(self, driver: Driver) -> bool:
        """Whether the driver is now stopped within a batch, after enough others.

        Stop the driver before its checkpoint is read: between a look and a kill it could commit.
        """
        if not self._is_in_a_late_batch():
            return False
        driver.signal(signal.SIGSTOP)
        if self._is_in_a_late_batch():
            return True
        driver.signal(signal.SIGCONT)
        return False

    def _is_in_a_late_batch(self) -> bool:
        now = read_checkpoint(self._checkpoint)
        return len(now.committed) >= COMMITTED_BEFORE_THE_KILL and now.has_uncommitted

    def stream_again(self, driver: Driver) -> float:
        """The same job on the same checkpoint, to its end; gives its rate."""
        _say("The streaming job is started again, on its checkpoint")
        before = sum(committed_offsets(self._checkpoint).values())
        progress = Progress("processed", ROWS, before)
        ends = self._ends()
        result = driver.wait_for("stream", lambda: self._show_stream(progress, ends))
        progress.end()
        left = read_checkpoint(self._checkpoint)
        if left.has_uncommitted or sum(committed_offsets(self._checkpoint).values()) != ROWS:
            raise DemoFailed(f"the stream did not come to its end: {left}")
        return (ROWS - before) / float(result["seconds"])

    def check(self, driver: Driver) -> dict[str, Any]:
        """Both topics against the file."""
        _say("A batch job reads both topics back and compares them with the file")
        return driver.wait_for("check", lambda: None)


def differences(found: dict[str, Any]) -> list[str]:
    """Return the faults of the topics, a sentence each."""
    wrong: list[str] = []
    if found["expected"] != ROWS:
        wrong.append(f"the file has {found['expected']:,} rows, expected {ROWS:,}")
    if found["count"] != found["expected"]:
        wrong.append(f"the first topic has {found['count']:,} records")
    if found["missing"] or found["extra"]:
        wrong.append(f"{found['missing']} flights are missing and {found['extra']} are too many")
    if found["in_topic"] != found["in_file"]:
        wrong.append("the last delays of the second topic are not those of the file")
    return wrong


def _say(text: str) -> None:
    print(text, flush=True)


def tell(servers: str, client: BlockingClient, folder: Path) -> tuple[dict[str, Any], str]:
    """The whole story; gives what the check found, and the rates as a text."""
    with Admin(client=client) as admin:
        admin.create_topics(
            [
                NewTopic(FLIGHTS_TOPIC, FLIGHTS_PARTITIONS, 1),
                NewTopic(DELAYS_TOPIC, DELAYS_PARTITIONS, 1),
            ]
        )
    demo = Demo(servers, client, folder)
    try:
        first = demo.start_driver("write", "stream")
        write_rate = demo.write(first)
        demo.stream_and_kill(first)
        second = demo.start_driver("stream", "check")
        stream_rate = demo.stream_again(second)
        found = demo.check(second)
    finally:
        demo.close()
    read_rate = found["count"] / float(found["read_seconds"])
    rates = f"write {write_rate:,.0f}, stream {stream_rate:,.0f}, read {read_rate:,.0f} records/s"
    return found, rates


def run(picture: Path) -> int:
    """The demo on an embedded broker; gives the exit code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="klog-flights-") as name:
        folder = Path(name)
        extract_flights(folder)
        with (
            testing.Broker(num_partitions=1) as broker,
            BlockingClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
        ):
            _say(f"klog broker (pid {broker.pid}) on {broker.bootstrap_servers}")
            found, rates = tell(broker.bootstrap_servers, client, folder)
    wrong = differences(found)
    print()
    print(table(found["in_topic"]))
    print()
    plot(found["in_topic"], picture)
    print(f"plot: {picture}")
    print(
        f"{'FAILED' if wrong else 'OK'}: {found['count']:,} flights written and read back "
        f"({found['null_keys']:,} without a tail number), {len(found['in_topic'])} origins and "
        f"hours; {rates}; {time.monotonic() - started:.0f} s in all"
    )
    for text in wrong:
        print(f"  {text}")
    return 1 if wrong else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--png", type=Path, default=PICTURE, help="where the plot goes")
    given = parser.parse_args()
    try:
        return run(given.png)
    except (DemoFailed, DataMissing, testing.BrokerFailed) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
