"""The queries of the exactly-once soak: copies of one topic, whose driver may be killed.

One copies by writeStream, another one by foreachBatch to two topics. Each has one checkpoint, and
is restarted when it fails or its driver has died.
"""

import json
import os
import threading
from pathlib import Path

from tests.soak.checkpoint import Checkpoint
from tests.soak.copy_driver import SETTINGS_VARIABLE
from tests.soak.process_faults import EACH, MASTERS, PLAIN, QUERIES
from tests.soak.processes import ROOT, DriverProcess
from tests.soak.refusals import Failure, failure_of
from tests.soak.report import Report
from tests.soak.traps import FOLDER_VARIABLE
from tests.support.eventually import eventually
from tests.support.process_table import Process
from tests.support.spark.home import spark_home

SOURCE = "numbers"
COPIES = {PLAIN: {PLAIN: 4}, EACH: {"left": 2, "right": 5}}
"""The topics of each query, with their partition counts."""
PROGRESS_S = 300.0
_WORKER = "pyspark.daemon pyspark.worker"


class CopyQueries:
    """Both queries, and the driver that runs them."""

    def __init__(
        self,
        work: Path,
        servers: str,
        traps: Path,
        report: Report,
        sink: dict[str, str],
        interval: str,
    ) -> None:
        """Create the queries; none runs yet.

        ``traps`` is the folder in which Spark's processes look for traps. ``sink`` are options of
        each sink, which also gets an exactlyOnceName. ``interval`` is the trigger interval.
        """
        self.master = MASTERS[1]
        """Spark's master for the next driver."""
        self._work = work
        self._servers = servers
        self._trap_folder = traps
        self._report = report
        self._sink = sink
        self._interval = interval
        self._home = spark_home(work / "spark-home")
        self._driver: DriverProcess | None = None
        self._masters: list[str] = []
        """The master of each driver so far."""
        self._refused: dict[tuple[str, int], list[str]] = {}
        """The masters on which a micro-batch was refused, because they split it otherwise."""
        self._running: set[str] = set()
        self._pause = threading.Event()

    def progress(self) -> None:
        """Wait until each query has done two more micro-batches; failed queries are restarted."""
        goals = {name: self._checkpoint(name).last_batch + 2 for name in QUERIES}

        def going() -> bool:
            self.heal()
            return all(self._checkpoint(name).last_batch >= goal for name, goal in goals.items())

        eventually(going, PROGRESS_S, "two more micro-batches of each query")

    def heal(self) -> None:
        """Start the queries that do not run, and report failures."""
        self._pause.wait(0.2)  # answering costs the driver time that queries need
        for name in QUERIES:
            if name not in self._running:
                self._start(name)
                continue
            assert self._driver is not None
            error = self._driver.send_command("status", query=name)["error"]
            if error is None:
                continue
            self.stop(name)
            failure = failure_of(error)
            self._report.counts[f"failed: {failure.value}"] += 1
            if failure is Failure.UNKNOWN:
                self._report.problem(f"{name} failed with an error that no fault explains: {error}")
            if failure is Failure.OTHER_ROWS:
                self._other_master(name)
                return
            if failure is Failure.BROKEN_JVM:
                self.end_driver()
                return

    def caught_up(self, ends: dict[int, int]) -> bool:
        """Whether each query has read up to these offsets; failed queries are restarted."""
        self.heal()
        return all(
            self._checkpoint(name).committed().get(partition, 0) == end
            for name in QUERIES
            for partition, end in ends.items()
        )

    def stop(self, name: str) -> None:
        """Stop a query if it runs."""
        if name in self._running:
            assert self._driver is not None
            self._running.discard(name)
            self._driver.send_command("stop", query=name)

    def end_driver(self, spared: int = 0) -> None:
        """Kill the driver and its child processes, except for the process ``spared``."""
        driver, self._driver = self._driver, None
        self._running.clear()
        for command in driver.kill({spared}) if driver is not None else ():
            self._report.say(f"         killed what outlived its driver: {command}")

    def children(self) -> list[Process]:
        """The child processes of the driver, if there is one."""
        return [] if self._driver is None else self._driver.children()

    def workers(self) -> list[Process]:
        """Workers of tasks: each is the child of a daemon with the same command."""
        found = [process for process in self.children() if _WORKER in process.command]
        daemons = {process.pid for process in found}
        return [process for process in found if process.parent in daemons]

    def _other_master(self, name: str) -> None:
        """Restart on another number of cores, that of an earlier driver if possible.

        A micro-batch was refused: it is split otherwise now than when its first rows became
        visible.
        """
        self.end_driver()
        refused = self._refused.setdefault((name, self._checkpoint(name).last_batch + 1), [])
        refused.append(self.master)
        left = [master for master in (*reversed(self._masters), *MASTERS) if master not in refused]
        if not left:
            raise AssertionError(f"{name} is refused on any number of cores")
        self.master = left[0]
        self._report.say(f"         {name} is split otherwise than before: trying {self.master}")

    def _start(self, name: str) -> None:
        if self._driver is None:
            self._report.counts["driver starts"] += 1
            others = self._masters and self._masters[-1] != self.master
            self._report.counts["driver starts on another number of cores"] += bool(others)
            self._masters.append(self.master)
            self._driver = DriverProcess(self._work, "tests.soak.copy_driver", self._environment())
        servers = {"kafka.bootstrap.servers": self._servers}
        sinks = [
            servers | self._sink | {"topic": topic, "exactlyOnceName": topic}
            for topic in COPIES[name]
        ]
        self._driver.send_command(
            "start",
            query=name,
            source=servers | {"subscribe": SOURCE, "startingOffsets": "earliest"},
            sinks=sinks,
            checkpoint=str(self._checkpoint(name).folder),
            interval=self._interval,
        )
        self._running.add(name)

    def _environment(self) -> dict[str, str]:
        settings = {"spark.master": self.master, "spark.executor.memory": "512m"}
        paths = [str(ROOT / "tests" / "soak" / "site"), os.environ.get("PYTHONPATH", "")]
        return {
            SETTINGS_VARIABLE: json.dumps(settings),
            FOLDER_VARIABLE: str(self._trap_folder),
            "SPARK_HOME": str(self._home),
            "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
        }

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self._work / "checkpoints" / name, SOURCE)
