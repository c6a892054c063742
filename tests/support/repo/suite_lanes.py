"""Runs the processes of a whole run of tests, some at a time, and loses none of their failures."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.support.repo.suite_reports import Counts, counts_of

NO_TESTS_COLLECTED = 5
"""pytest's exit code if it ran no test; also that of a whole run in which no test ran."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_END_WITHIN_S = 60.0
"""Time for a process to end its brokers and its Spark after a signal, before it is killed."""


@dataclass(frozen=True)
class Job:
    """A process to run, and the JUnit report that it writes."""

    name: str
    command: tuple[str, ...]
    report: Path
    environment: tuple[tuple[str, str], ...] = ()
    is_heavy: bool = False
    """Whether the process takes a core and gigabytes: only ``most_heavy`` of these run at once."""


class Interrupted(Exception):
    """A signal ended the run; none of its processes is left."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class Lanes:
    """Runs at most ``lanes`` jobs at once, in their order; at most ``most_heavy`` of these are
    heavy. While a heavy job has to wait, the jobs behind it may begin.

    A job that runs alone has the terminal for itself, so that a debugger works. The output of
    several jobs is kept in ``folder`` until each ends, and then printed whole. Each job leads a
    process group, so that Ctrl-C reaches it once: from here. With ``stop_at_failure`` the first
    failure ends all jobs.
    """

    def __init__(
        self,
        lanes: int,
        folder: Path,
        *,
        cwd: Path | None = None,
        stop_at_failure: bool = False,
        most_heavy: int | None = None,
    ) -> None:
        self._lanes = lanes
        self._heavy_left = lanes if most_heavy is None else most_heavy
        self._heavy_ended = threading.Condition()
        self._folder = folder
        self._cwd = cwd
        self._stop_at_failure = stop_at_failure
        self._lock = threading.RLock()  # a signal may come while this thread holds it
        self._running: list[subprocess.Popen[bytes]] = []
        self._shown = False
        self._grouped = True
        self._stopped = False
        self._signal = 0

    def run(self, jobs: Sequence[Job]) -> list[Counts | None]:
        """How the tests of each job ended; None for one that a failure kept from beginning.

        A process that died, or whose report says less than its exit code, is a failure. Raises
        Interrupted after SIGINT, SIGTERM or SIGHUP.
        """
        self._shown = 1 in (self._lanes, len(jobs))
        self._grouped = not (self._shown and sys.stdin.isatty())
        waiting = list(enumerate(jobs, 1))
        counts: dict[int, Counts | None] = {}

        def run_next() -> None:
            number, job = self._choose(waiting)
            try:
                counts[number] = self._run_one(job, f"[{number}/{len(jobs)}] {job.name}", number)
            finally:
                self._give_back(job)

        with self._signals(), ThreadPoolExecutor(self._lanes) as threads:
            results = [threads.submit(run_next) for _ in jobs]
            try:
                for each in results:
                    each.result()
            except BaseException:  # a full disk, a closed pipe
                self._stop()
                raise
        if self._signal:
            raise Interrupted(self._signal)
        return [counts[number] for number in range(1, len(jobs) + 1)]

    def _choose(self, waiting: list[tuple[int, Job]]) -> tuple[int, Job]:
        """Take the first waiting job that may begin; wait until there is one."""
        with self._heavy_ended:
            while True:
                for each in waiting:
                    if self._heavy_left or not each[1].is_heavy:
                        waiting.remove(each)
                        self._heavy_left -= each[1].is_heavy
                        return each
                self._heavy_ended.wait()

    def _give_back(self, job: Job) -> None:
        with self._heavy_ended:
            self._heavy_left += job.is_heavy
            self._heavy_ended.notify_all()

    def _run_one(self, job: Job, title: str, number: int) -> Counts | None:
        log = self._folder / f"{number}.log"
        with log.open("wb") as output:
            process = self._begin(job, title, None if self._shown else output.fileno())
            if process is None:
                return None
            began = time.monotonic()
            exit_code = process.wait()
        with self._lock:
            self._running.remove(process)
            counts = self._judge(job.report, exit_code)
            if not self._shown:
                text = log.read_text(encoding="utf-8", errors="replace")
                print(f"\n{title}\n{text.rstrip()}")
            took = f"{title}: {counts.line()}, in {time.monotonic() - began:.0f} s"
            print(took, flush=True)
            if self._stop_at_failure and counts.failed:
                self._stop()
        return counts

    def _begin(self, job: Job, title: str, output: int | None) -> "subprocess.Popen[bytes] | None":
        with self._lock:
            if self._stopped:
                return None
            print(f"{title}: begins", flush=True)
            job.report.unlink(missing_ok=True)
            process = subprocess.Popen(
                job.command,
                cwd=self._cwd,
                env={**os.environ, **dict(job.environment)},
                stdin=None if self._shown else subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                process_group=0 if self._grouped else None,
            )
            self._running.append(process)
            return process

    def _judge(self, report: Path, exit_code: int) -> Counts:
        if self._stopped and not report.exists():
            return Counts()
        counts = counts_of(report)
        if exit_code not in (0, NO_TESTS_COLLECTED) and not counts.failed and not self._stopped:
            counts += Counts(failed=1)  # a process with a failing exit code counts as a failure
        return counts

    def _stop(self, number: int = 0) -> None:
        """Begin no more jobs, and end the running ones; a second signal kills them."""
        with self._lock:
            if self._signal:
                self._kill()
            self._signal = self._signal or number
            if not self._stopped:
                self._stopped = True
                # At a terminal a single process has had SIGINT already.
                if self._grouped or number != signal.SIGINT:
                    self._send(signal.SIGINT)
                killer = threading.Timer(_END_WITHIN_S, self._kill)
                killer.daemon = True
                killer.start()

    def _kill(self) -> None:
        with self._lock:
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        for process in self._running:
            with suppress(ProcessLookupError):  # it has just ended
                if process.returncode is not None:
                    continue
                if self._grouped:
                    os.killpg(process.pid, number)
                else:
                    process.send_signal(number)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """A signal ends the processes first, unless this one was started to ignore it (nohup).

        A handler is set in any case: processes would inherit an ignored signal.
        """
        ignored = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN]

        def handle(number: int, _frame: FrameType | None) -> None:
            if number not in ignored:
                self._stop(number)

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
