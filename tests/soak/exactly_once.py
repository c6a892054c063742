"""The soak of the exactly-once sink: copies of a topic, while all processes are killed.

One query copies by writeStream, another one by foreachBatch to two topics; both go through all
faults of a plan (process_faults.py) with one checkpoint each. In between, and at the end,
librdkafka reads the topic and its copies (copies.py).
"""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.soak.copies import by_key, problems_of_copy, problems_of_ends, read_all
from tests.soak.copy_queries import COPIES, PROGRESS_S, SOURCE, CopyQueries
from tests.soak.process_faults import CLUSTER, Fault, Kind
from tests.soak.processes import DriverFailed
from tests.soak.records import Numbers
from tests.soak.report import Report, Say
from tests.soak.traps import IN_COMMIT, Action, Traps
from tests.support.eventually import eventually
from tests.support.process_table import Process, is_running, processes

SOURCE_PARTITIONS = 3
KEYS = 40
RATE_A_S = 100
TIMEOUT_MS = 15_000
INTERVAL = "500 milliseconds"
SWEEP_MS = 500
SERVER_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(SWEEP_MS)}
"""The brokers of this soak look this often for transactions past their timeout."""
_CHECKED_EVERY = 8
_REACHED_S = 40.0
_KILLS = "kills: "
_EXECUTOR = "CoarseGrainedExecutorBackend"


class Server(Protocol):
    """A broker that can be killed: klog's, or Apache Kafka (`tests.support.peers.KafkaServer`)."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, the same after each restart."""
        ...

    def restart(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Kill and restart the broker; ``meanwhile`` is called while it is down."""
        ...


class KlogServer(testing.Broker):
    """klog's broker."""

    def __init__(self, data: Path) -> None:
        settings = {name.replace(".", "_"): value for name, value in SERVER_SETTINGS.items()}
        super().__init__(data=data, auto_create_topics_enable=False, **settings)

    def restart(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Send SIGKILL, then start again on the same port and data."""
        self.kill()
        if meanwhile is not None:
            meanwhile()
        self.start()


class ExactlyOnceSoak:
    """One run of the soak."""

    def __init__(
        self,
        work: Path,
        server: Server,
        report: Report,
        *,
        rate_a_s: int,
        timeout_ms: int,
        interval: str,
    ) -> None:
        self._server = server
        self._report = report
        self._rate_a_s = rate_a_s
        self._timeout_ms = timeout_ms
        self._traps = Traps(work / "traps")
        sink = {"exactlyOnce": "true", "kafka.transaction.timeout.ms": str(timeout_ms)}
        self._queries = CopyQueries(
            work, server.bootstrap_servers, self._traps.folder, report, sink, interval
        )
        self._chance = random.Random(0)
        self._stopped: set[int] = set()
        self._pause = threading.Event()

    # --- the whole run ----------------------------------------------------------------------------
    def run(self, faults: Iterable[Fault]) -> None:
        """Apply all faults, and check."""
        with Admin(self._server.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(SOURCE, SOURCE_PARTITIONS)])
            for topics in COPIES.values():
                admin.create_topics([NewTopic(*topic) for topic in topics.items()])
        self._numbers = Numbers(self._server.bootstrap_servers, SOURCE, self._rate_a_s, KEYS)
        self._numbers.resume()
        try:
            self._queries.progress()
            for number, fault in enumerate(faults, 1):
                self._report.say(f"[{number}] {fault}")
                self._take(fault)
                if number % _CHECKED_EVERY == 0:
                    self._check()
            self._check()
        finally:
            self._queries.end_driver()
            for pid in self._stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._numbers.close()

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
            self._queries.progress()
        except Exception as error:  # it is reported, and the soak continues
            self._report.problem(f"{fault}: {type(error).__name__}: {error}")
            self._traps.disarm()
            self._queries.end_driver()

    # --- faults ----------------------------------------------------------------------------------
    def _kill_driver(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if pid is not None:
            self._count("driver", fault)
            self._queries.end_driver(spared=pid)
            if pid:
                self._stopped.discard(pid)
                os.kill(pid, signal.SIGKILL)
        self._queries.master = fault.master

    def _past_timeout(self, fault: Fault) -> None:
        self._kill_driver(fault)
        self._sleep_past_timeout()

    def _kill_worker(self, fault: Fault) -> None:
        if fault.point is None:
            self._pause.wait(fault.seconds)
            self._kill_one("worker", fault, self._queries.workers())
        elif self._reach(fault, Action.KILL):
            self._count("worker", fault)

    def _kill_committer(self, fault: Fault) -> None:
        if self._reach(fault, Action.KILL):
            self._count("committer", fault)

    def _kill_executor(self, fault: Fault) -> None:
        """Kill an executor.

        If its worker was stopped at a point, that worker goes on after another executor has done
        the task.
        """
        if self._queries.master != CLUSTER:
            self._queries.end_driver()
            self._queries.master = CLUSTER
            self._queries.progress()
        pid = self._reach(fault, Action.STOP)
        if pid is None:
            return
        those = [process for process in self._queries.children() if _EXECUTOR in process.command]
        if pid:
            those = [process for process in those if process.pid in _ancestors(pid)]
        if not those:
            # A micro-batch was refused on this master, and the driver runs on another one now.
            self._report.counts["executors not there"] += 1
            if pid:
                self._resume_process(pid)
            return
        self._kill_one("executor", fault, those)
        if pid:
            self._queries.progress()
            self._wake(pid, "executor's worker")

    def _kill_broker(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if pid is None:
            return
        self._count("broker", fault)
        self._server.restart(lambda: self._pause.wait(fault.seconds))
        if pid:
            self._resume_process(pid)

    def _asleep(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if pid:
            self._sleep_past_timeout()
            self._count("committer asleep" if fault.point in IN_COMMIT else "worker asleep", fault)
            self._resume_process(pid)

    def _zombie(self, fault: Fault) -> None:
        pid = self._reach(fault, Action.STOP)
        if not pid:
            return
        self._count("driver", fault)
        self._queries.end_driver(spared=pid)
        self._queries.master = fault.master
        try:
            self._queries.progress()
        finally:
            self._wake(pid, "zombie")

    # --- parts of faults -------------------------------------------------------------------------
    def _reach(self, fault: Fault, action: Action) -> int | None:
        """Wait until a process hits the trap at the fault's point; return its process id.

        The result is 0 if the fault has no point and may come at any moment, None if no process
        reached the point in time.
        """
        if fault.point is None:
            self._pause.wait(fault.seconds)
            return 0
        point = fault.point
        self._traps.arm(point, action)
        if fault.in_first_batch:
            self._queries.stop(fault.query)

        def sprung() -> int | None:
            pid = self._traps.sprung(point)
            if pid is None:
                self._queries.heal()
            return pid

        try:
            pid = eventually(sprung, _REACHED_S, str(point))
        except AssertionError:
            self._traps.disarm()
            self._report.counts["points not reached"] += 1
            self._report.say(f"         nobody came to the point: {point.value}")
            return None
        if action is Action.STOP:
            self._stopped.add(pid)
            eventually(lambda: _is_stopped(pid), 10, f"process {pid} being stopped")
        return pid

    def _resume_process(self, pid: int) -> None:
        self._traps.wake(pid)
        self._stopped.discard(pid)

    def _wake(self, pid: int, what: str) -> None:
        """Resume a stopped process that nothing waits for, and wait for its end."""
        self._resume_process(pid)
        try:
            eventually(lambda: not is_running(pid), 90, f"the end of a {what} that was woken")
        except AssertionError as error:
            self._report.problem(str(error))
            os.kill(pid, signal.SIGKILL)
        did = self._traps.noted().get(pid, [])
        self._report.counts[f"woken: {what}"] += 1
        self._report.say(f"         the {what} did: {'; '.join(did) or 'nothing'}")

    def _sleep_past_timeout(self) -> None:
        self._pause.wait((self._timeout_ms + 2 * SWEEP_MS) / 1_000)

    def _kill_one(self, what: str, fault: Fault, those: Sequence[Process]) -> None:
        if those:
            self._count(what, fault)
            os.kill(self._chance.choice(those).pid, signal.SIGKILL)

    # --- checks ----------------------------------------------------------------------------------
    def _check(self) -> None:
        """Wait until all written records are copied; then compare."""
        self._numbers.pause()
        servers = self._server.bootstrap_servers
        source = read_all(servers, SOURCE)
        try:
            eventually(lambda: self._queries.caught_up(source.ends), PROGRESS_S, "all being copied")
        except (AssertionError, DriverFailed) as error:
            self._report.problem(str(error))
        self._report.counts["records to copy"] = len(source.records)
        due = by_key(source.records)
        for topic in (topic for topics in COPIES.values() for topic in topics):
            copied = read_all(servers, topic)
            everything = read_all(servers, topic, "read_uncommitted")
            self._report.counts[f"aborted records in {topic}"] = len(everything.records) - len(
                copied.records
            )
            problems = problems_of_copy(due, copied.records, topic)
            for problem in problems + problems_of_ends(copied.ends, everything.ends, topic):
                self._report.problem(problem)
        self._report.say(f"         checked {len(source.records)} records in each copy")
        self._numbers.resume()

    def _count(self, what: str, fault: Fault) -> None:
        self._report.counts[f"{_KILLS}{what}"] += 1
        if fault.point is not None:
            self._report.counts[f"at: {fault.point.value}"] += 1


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
    interval: str = INTERVAL,
) -> list[str]:
    """Run a plan on ``server``, by default klog; return the problems.

    A temporary folder is removed if there are none. ``interval`` is the queries' trigger interval.
    """
    folder = work or Path(tempfile.mkdtemp(prefix="klog-soak-"))
    report = Report(say)
    with contextlib.ExitStack() as started:
        ExactlyOnceSoak(
            folder,
            server or started.enter_context(KlogServer(folder / "broker")),
            report,
            rate_a_s=rate_a_s,
            timeout_ms=timeout_ms,
            interval=interval,
        ).run(faults)
    kills = sum(n for name, n in report.counts.items() if name.startswith(_KILLS))
    for name, count in sorted(report.counts.items()):
        say(f"         {name}: {count}")
    say(f"         {kills} kills in all")
    if report.problems:
        say(f"         what it left is in {folder}")
    elif work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return report.problems
