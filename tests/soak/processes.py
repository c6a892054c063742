"""The processes of a soak: the driver that is killed, and the memory of all processes."""

import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.eventually import eventually
from tests.support.process_table import Process, processes

ROOT = Path(__file__).resolve().parents[2]


class DriverFailed(RuntimeError):
    """The driver ended by itself, did not answer, or refused a command."""


class DriverProcess:
    """A driver as a child in a process group of its own; it is ready when the object is made."""

    def __init__(
        self,
        work: Path,
        module: str = "tests.soak.driver",
        environment: Mapping[str, str] | None = None,
        deadline_s: float = 240,
    ) -> None:
        """Start the driver.

        ``work`` takes its log, and the temporary files that a killed process leaves.
        """
        self._answers: queue.Queue[str] = queue.Queue()
        temporary = work / "tmp"
        temporary.mkdir(exist_ok=True)
        with (work / "driver.log").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={
                    **os.environ,
                    "TMPDIR": str(temporary),
                    # Spark searches the text of an interrupted foreachBatch with a regular
                    # expression that overflows a stack of the usual size.
                    "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary} -Xss8m",
                    **(environment or {}),
                },
            )
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self._answer(deadline_s)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process id of the driver's Python."""
        return self._process.pid

    def send_command(self, do: str, deadline_s: float = 240, **command: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"do": do, **command}), file=self._process.stdin, flush=True)
        except OSError as error:
            raise DriverFailed(f"the driver had ended before the command {do}: {error}") from None
        answer = self._answer(deadline_s)
        if "refused" in answer:
            raise DriverFailed(f"the driver could not {do}: {answer['refused']}")
        return answer

    def children(self) -> list[Process]:
        """The driver's child processes, and theirs."""
        return descendants(self.pid, processes())

    def kill(self, spared: Collection[int] = ()) -> list[str]:
        """Send SIGKILL to Python and Java; return the commands of processes that outlived them.

        Spark's Python workers are in groups of their own, and end when Java's connections do; those
        with the process ids ``spared`` are left alone.
        """
        began = [process for process in self.children() if process.pid not in spared]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        left = began
        try:
            eventually(lambda: not alive(began), deadline_s=60, what="the end of Spark's workers")
        except AssertionError:
            left = alive(began)
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            return [process.command[:100] for process in left]
        return []

    def shut_down(self) -> list[str]:
        """Close the driver's input, at which it ends by itself; kill it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        return self.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=deadline_s)
        except queue.Empty:
            raise DriverFailed(f"the driver did not answer within {deadline_s:g} s") from None
        if not line:
            raise DriverFailed(f"the driver ended by itself, with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def descendants(pid: int, among: Sequence[Process]) -> list[Process]:
    """The children of a process, their children, and so on."""
    found: list[Process] = []
    parents = {pid}
    while parents:
        children = [process for process in among if process.parent in parents]
        found += children
        parents = {process.pid for process in children}
    return found


def alive(those: Sequence[Process]) -> list[Process]:
    """The processes of ``those`` that still run.

    A zombie does not run; a process with the same id and another command is another one.
    """
    there = {process.pid: process for process in processes()}
    return [
        process
        for process in those
        if process.pid in there and there[process.pid].command == process.command
    ]


ROLES = {
    "source": "python_streaming_source_runner",
    "workers": "pyspark.daemon",
    "java": "java",
}
FLAT = ("broker", "source", "workers")
"""The roles whose memory must not grow. Java's heap grows up to a bound of its own."""


class Sample(NamedTuple):
    """The memory of the largest process of each role, at one time."""

    at_s: float
    rss_bytes: dict[str, int]


@dataclass
class Memory:
    """Samples of the memory of a driver's processes and of the broker."""

    samples: list[Sample] = field(default_factory=list)

    def add_sample(self, driver_pid: int | None, broker_pid: int | None) -> Sample:
        """Take one sample."""
        there = processes()
        found: dict[str, int] = {}
        for process in there:
            if process.pid == broker_pid:
                found["broker"] = process.rss_bytes
            elif process.pid == driver_pid:
                found["driver"] = process.rss_bytes
        for process in descendants(driver_pid, there) if driver_pid is not None else ():
            for role, word in ROLES.items():
                if word in process.command:
                    found[role] = max(found.get(role, 0), process.rss_bytes)
                    break
        sample = Sample(time.monotonic(), found)
        self.samples.append(sample)
        return sample


def growth_bytes(samples: Sequence[Sample], role: str) -> int | None:
    """A role's growth from the second to the last quarter of the samples, by medians.

    The first quarter is for warming up. The result is None if there are too few samples.
    """
    series = [sample.rss_bytes[role] for sample in samples if role in sample.rss_bytes]
    quarter = len(series) // 4
    if quarter < 3:
        return None
    early = statistics.median(series[quarter : 2 * quarter])
    return round(statistics.median(series[-quarter:]) - early)


def in_mib(rss_bytes: Mapping[str, int]) -> str:
    """Sizes in words: ``broker 80, source 140 MiB``."""
    shown = ", ".join(f"{role} {size >> 20}" for role, size in sorted(rss_bytes.items()))
    return f"{shown} MiB" if shown else "-"
