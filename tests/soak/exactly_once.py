"""The soak of the exactly-once sink: copies of a topic, and a machine on which everybody is killed.

One query copies by writeStream, another one by foreachBatch to two topics; both go through all
faults of a plan (kills.py) with one checkpoint each. In between, and at the end, librdkafka reads
topic and copies (copies.py).
"""

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from pyspark_klog import testing
from pyspark_klog.client.admin import Admin, NewTopic
from tests.soak.checkpoint import Checkpoint
from tests.soak.copies import by_key, problems_of_copy, problems_of_ends, read_all
from tests.soak.copy_driver import SETTINGS_VARIABLE
from tests.soak.kills import CLUSTER, EACH, MASTERS, PLAIN, QUERIES, Fault, Kind
from tests.soak.processes import ROOT, DriverFailed, DriverProcess
from tests.soak.records import Numbers
from tests.soak.refusals import Failure, failure_of
from tests.soak.traps import FOLDER_VARIABLE, IN_COMMIT, Action, Traps
from tests.support.eventually import eventually
from tests.support.process_table import Process, is_running, processes
from tests.support.spark_home import spark_home

SOURCE = "numbers"
SOURCE_PARTITIONS = 3
COPIES = {PLAIN: {PLAIN: 4}, EACH: {"left": 2, "right": 5}}
"""Of each query, its topics with their partitions."""
KEYS = 40
RATE_A_S = 100
TIMEOUT_MS = 15_000
SWEEP_MS = 500
SERVER_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(SWEEP_MS)}
"""For brokers of this soak: they look for transactions past their time-out that often."""
_CHECKED_EVERY = 8
_REACHED_S = 40.0
_PROGRESS_S = 300.0
_KILLS = "kills: "
_WORKER, _EXECUTOR = "pyspark.daemon pyspark.worker", "CoarseGrainedExecutorBackend"

Say = Callable[[str], None]


class Server(Protocol):
    """A broker that can be killed: klog's, or Apache Kafka (`tests.support.peers.KafkaServer`)."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, the same in all its lives."""
        ...

    def restart(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Kill it and start it again; ``meanwhile`` is called while nobody serves."""
        ...


class KlogServer(testing.Broker):
    """klog's broker."""

    def __init__(self, data: Path) -> None:
        settings = {name.replace(".", "_"): value for name, value in SERVER_SETTINGS.items()}
        super().__init__(data=data, auto_create_topics_enable=False, **settings)

    def restart(self, meanwhile: Callable[[], object] | None = None) -> None:
        """SIGKILL, then a start on the same port and data."""
        self.kill()
        if meanwhile is not None:
            meanwhile()
        self.start()


class ExactlyOnceSoak:
    """One run. `problems` is what went wrong so far."""

    def __init__(
        self,
        work: Path,
        server: Server,
        say: Say,
        *,
        rate_a_s: int = RATE_A_S,
        timeout_ms: int = TIMEOUT_MS,
        exactly_once: bool = True,
    ) -> None:
        """``exactly_once`` False shows what the checks find without it."""
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._work = work
        self._server = server
        self._tell = say
        self._rate_a_s = rate_a_s
        self._timeout_ms = timeout_ms
        self._exactly_once = exactly_once
        self._traps = Traps(work / "traps")
        self._home = spark_home(work / "spark-home")
        self._chance = random.Random(0)
        self._driver: DriverProcess | None = None
        self._master = MASTERS[1]
        self._masters: list[str] = []
        """Of each driver so far."""
        self._refused: dict[tuple[str, int], list[str]] = {}
        """By query and micro-batch, the masters on which it was split otherwise."""
        self._running: set[str] = set()
        self._stopped: set[int] = set()
        self._pause = threading.Event()
        self._began_s = time.monotonic()

    # --- the whole -------------------------------------------------------------------------------
    def run(self, faults: Iterable[Fault]) -> list[str]:
        """Do all faults, and check; gives the problems."""
        with Admin(self._server.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(SOURCE, SOURCE_PARTITIONS)])
            for topics in COPIES.values():
                admin.create_topics([NewTopic(*topic) for topic in topics.items()])
        self._numbers = Numbers(self._server.bootstrap_servers, SOURCE, self._rate_a_s, KEYS)
        self._numbers.resume()
        try:
            self._progress()
            for number, fault in enumerate(faults, 1):
                self._say(f"[{number}] {fault}")
                self._take(fault)
                if number % _CHECKED_EVERY == 0:
                    self._check()
            self._check()
        finally:
            self._end_driver()
            for pid in self._stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._numbers.close()
        return self.problems

    def _take(self, fault: Fault) -> None:
        does: dict[Kind, Callable[[Fault], None]] = {
            Kind.DRIVER: self._kill_driver,
            Kind.WORKER: self._kill_worker,
            Kind.COMMITTER: self._kill_committer,
            Kind.EXECUTOR: self._kill_executor,
            Kind.BROKER: self._kill_broker,
            Kind.PAST_TIMEOUT: self._past_timeout,
            Kind.ASLEEP: self._asleep,
            Kind.ZOMBIE: self._zombie,
        }
        try:
            does[fault.kind](fault)
            self._traps.disarm()
            self._progress()
        except Exception as error:  # it is told, and the soak goes on
            self._problem(f"{fault}: {type(error).__name__}: {error}")
            self._traps.disarm()
            self._end_driver()

    # --- faults ----------------------------------------------------------------------------------
    def _kill_driver(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if pid is not None:
            self._count("driver", fault)
            self._end_driver(spared=pid)
            if pid:
                self._stopped.discard(pid)
                os.kill(pid, signal.SIGKILL)
        self._master = fault.master

    def _past_timeout(self, fault: Fault) -> None:
        self._kill_driver(fault)
        self._sleep_past_timeout()

    def _kill_worker(self, fault: Fault) -> None:
        if fault.point is None:
            self._pause.wait(fault.seconds)
            self._kill_one("worker", fault, self._workers())
        elif self._reach(fault, Action.KILL):
            self._count("worker", fault)

    def _kill_committer(self, fault: Fault) -> None:
        if self._reach(fault, Action.KILL):
            self._count("committer", fault)

    def _kill_executor(self, fault: Fault) -> None:
        """Its worker, if one is hit at a point, goes on when another executor has done the task."""
        if self._master != CLUSTER:
            self._end_driver()
            self._master = CLUSTER
            self._progress()
        pid = self._reach(fault, Action.STOP)
        if pid is None:
            return
        those = [process for process in self._children() if _EXECUTOR in process.command]
        if pid:
            those = [process for process in those if process.pid in _ancestors(pid)]
        self._kill_one("executor", fault, those)
        if pid:
            self._progress()
            self._wake(pid, "executor's worker")

    def _kill_broker(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if pid is None:
            return
        self._count("broker", fault)
        self._server.restart(lambda: self._pause.wait(fault.seconds))
        if pid:
            self._go_on(pid)

    def _asleep(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if pid:
            self._sleep_past_timeout()
            self._count("committer asleep" if fault.point in IN_COMMIT else "worker asleep", fault)
            self._go_on(pid)

    def _zombie(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if not pid:
            return
        self._count("driver", fault)
        self._end_driver(spared=pid)
        self._master = fault.master
        try:
            self._progress()
        finally:
            self._wake(pid, "zombie")

    # --- parts of faults -------------------------------------------------------------------------
    def _reach(self, fault: Fault, action: Action) -> int | None:
        """Let a process be hit at the fault's point; gives its process id, 0 if the fault is at no
        point but at any moment, None if no process came there in time."""
        if fault.point is None:
            self._pause.wait(fault.seconds)
            return 0
        point = fault.point
        self._traps.arm(point, action)
        if fault.in_first_batch:
            self._stop(fault.query)

        def sprung() -> int | None:
            pid = self._traps.sprung(point)
            if pid is None:
                self._heal()
            return pid

        try:
            pid = eventually(sprung, _REACHED_S, str(point))
        except AssertionError:
            self._traps.disarm()
            self.counts["points not reached"] += 1
            self._say(f"         nobody came to the point: {point.value}")
            return None
        if action is Action.STOP:
            self._stopped.add(pid)
            eventually(lambda: _is_stopped(pid), 10, f"process {pid} being stopped")
        return pid

    def _go_on(self, pid: int) -> None:
        self._traps.wake(pid)
        self._stopped.discard(pid)

    def _wake(self, pid: int, what: str) -> None:
        """Let a process go on that nobody waits for, and wait for its end."""
        self._go_on(pid)
        try:
            eventually(lambda: not is_running(pid), 90, f"the end of a {what} that was woken")
        except AssertionError as error:
            self._problem(str(error))
            os.kill(pid, signal.SIGKILL)
        did = self._traps.noted().get(pid, [])
        self.counts[f"woken: {what}"] += 1
        self._say(f"         the {what} did: {'; '.join(did) or 'nothing'}")

    def _sleep_past_timeout(self) -> None:
        self._pause.wait((self._timeout_ms + 2 * SWEEP_MS) / 1_000)

    def _kill_one(self, what: str, fault: Fault, those: Sequence[Process]) -> None:
        if those:
            self._count(what, fault)
            os.kill(self._chance.choice(those).pid, signal.SIGKILL)

    def _children(self) -> list[Process]:
        return [] if self._driver is None else self._driver.children()

    def _workers(self) -> list[Process]:
        """Workers of tasks: each is the child of a daemon with the same command."""
        found = [process for process in self._children() if _WORKER in process.command]
        daemons = {process.pid for process in found}
        return [process for process in found if process.parent in daemons]

    # --- queries ---------------------------------------------------------------------------------
    def _progress(self) -> None:
        """Wait until each query has done two more micro-batches; those that failed start again."""
        goals = {name: self._checkpoint(name).done + 2 for name in QUERIES}

        def going() -> bool:
            self._heal()
            return all(self._checkpoint(name).done >= goal for name, goal in goals.items())

        eventually(going, _PROGRESS_S, "two more micro-batches of each query")

    def _heal(self) -> None:
        """Start what does not run, and tell why it failed."""
        self._pause.wait(0.2)  # an answer costs the driver work that queries need
        for name in QUERIES:
            if name not in self._running:
                self._start(name)
                continue
            assert self._driver is not None
            error = self._driver.ask("status", query=name)["error"]
            if error is None:
                continue
            self._stop(name)
            failure = failure_of(error)
            self.counts[f"failed: {failure.value}"] += 1
            if failure is Failure.UNKNOWN:
                self._problem(f"{name} failed with an error that no fault explains: {error}")
            if failure is Failure.OTHER_ROWS:
                self._other_master(name)
                return

    def _other_master(self, name: str) -> None:
        """A micro-batch is split otherwise than when its first rows became visible: start again on
        as many cores as then, which are those of a driver before."""
        self._end_driver()
        refused = self._refused.setdefault((name, self._checkpoint(name).done + 1), [])
        refused.append(self._master)
        left = [master for master in (*reversed(self._masters), *MASTERS) if master not in refused]
        if not left:
            raise AssertionError(f"{name} is refused on any number of cores")
        self._master = left[0]
        self._say(f"         {name} is split otherwise than before: trying {self._master}")

    def _start(self, name: str) -> None:
        if self._driver is None:
            self.counts["driver starts"] += 1
            others = self._masters and self._masters[-1] != self._master
            self.counts["driver starts on another number of cores"] += bool(others)
            self._masters.append(self._master)
            self._driver = DriverProcess(self._work, "tests.soak.copy_driver", self._environment())
        servers = {"kafka.bootstrap.servers": self._server.bootstrap_servers}
        sinks = [servers | {"topic": topic} | self._sink(topic) for topic in COPIES[name]]
        self._driver.ask(
            "start",
            query=name,
            source=servers | {"subscribe": SOURCE, "startingOffsets": "earliest"},
            sinks=sinks,
            checkpoint=str(self._checkpoint(name).folder),
        )
        self._running.add(name)

    def _sink(self, name: str) -> dict[str, str]:
        if not self._exactly_once:
            return {}
        return {
            "exactlyOnce": "true",
            "exactlyOnceName": name,
            "kafka.transaction.timeout.ms": str(self._timeout_ms),
        }

    def _environment(self) -> dict[str, str]:
        settings = {"spark.master": self._master, "spark.executor.memory": "512m"}
        paths = [str(ROOT / "tests" / "soak" / "site"), os.environ.get("PYTHONPATH", "")]
        return {
            SETTINGS_VARIABLE: json.dumps(settings),
            FOLDER_VARIABLE: str(self._traps.folder),
            "SPARK_HOME": str(self._home),
            "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)]),
        }

    def _stop(self, name: str) -> None:
        if name in self._running:
            assert self._driver is not None
            self._running.discard(name)
            self._driver.ask("stop", query=name)

    def _end_driver(self, spared: int = 0) -> None:
        driver, self._driver = self._driver, None
        self._running.clear()
        for command in driver.kill({spared}) if driver is not None else ():
            self._say(f"         killed what outlived its driver: {command}")

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self._work / "checkpoints" / name, SOURCE)

    # --- checks ----------------------------------------------------------------------------------
    def _check(self) -> None:
        """Everything that was written is copied; then it is compared."""
        self._numbers.pause()
        servers = self._server.bootstrap_servers
        source = read_all(servers, SOURCE)
        try:
            eventually(lambda: self._caught_up(source.ends), _PROGRESS_S, "all being copied")
        except (AssertionError, DriverFailed) as error:
            self._problem(str(error))
        self.counts["records to copy"] = len(source.records)
        due = by_key(source.records)
        for topic in (topic for topics in COPIES.values() for topic in topics):
            copied = read_all(servers, topic)
            everything = read_all(servers, topic, "read_uncommitted")
            self.counts[f"aborted records in {topic}"] = len(everything.records) - len(
                copied.records
            )
            problems = problems_of_copy(due, copied.records, topic)
            for problem in problems + problems_of_ends(copied.ends, everything.ends, topic):
                self._problem(problem)
        self._say(f"         checked {len(source.records)} records in each copy")
        self._numbers.resume()

    def _caught_up(self, ends: dict[int, int]) -> bool:
        self._heal()
        return all(
            self._checkpoint(name).committed().get(partition, 0) == end
            for name in QUERIES
            for partition, end in ends.items()
        )

    # --- telling ---------------------------------------------------------------------------------
    def _say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began_s:6.1f} s  {text}")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._say(f"PROBLEM  {text}")

    def _count(self, what: str, fault: Fault) -> None:
        self.counts[f"{_KILLS}{what}"] += 1
        if fault.point is not None:
            self.counts[f"at: {fault.point.value}"] += 1


def _ancestors(pid: int) -> set[int]:
    parents = {process.pid: process.parent for process in processes()}
    found = set()
    while pid in parents:
        pid = parents[pid]
        found.add(pid)
    return found


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return state == "T"


def soak(
    faults: Iterable[Fault],
    say: Say,
    *,
    work: Path | None = None,
    rate_a_s: int = RATE_A_S,
    timeout_ms: int = TIMEOUT_MS,
    server: Server | None = None,
    exactly_once: bool = True,
) -> list[str]:
    """Run a plan, on klog unless it is said otherwise; gives the problems. A temporary folder is
    removed if there are none."""
    folder = work or Path(tempfile.mkdtemp(prefix="klog-soak-"))
    with contextlib.ExitStack() as started:
        running = ExactlyOnceSoak(
            folder,
            server or started.enter_context(KlogServer(folder / "broker")),
            say,
            rate_a_s=rate_a_s,
            timeout_ms=timeout_ms,
            exactly_once=exactly_once,
        )
        problems = running.run(faults)
    kills = sum(n for name, n in running.counts.items() if name.startswith(_KILLS))
    for name, count in sorted(running.counts.items()):
        say(f"         {name}: {count}")
    say(f"         {kills} kills in all")
    if problems:
        say(f"         what it left is in {folder}")
    elif work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return problems
