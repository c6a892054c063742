"""A broker as a child process, for tests that kill it or use it as a user would."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_READY = "klog ready on "
_LIMITED = (
    "import os, resource, sys; count = int(sys.argv[1]);"
    " resource.setrlimit(resource.RLIMIT_NOFILE, (count, count));"
    " os.execv(sys.argv[2], sys.argv[2:])"
)
KEEPS_RECORDS = {"log.retention.hours": -1}
"""Retention is off for brokers of tests, because the tests' records carry fixed, old timestamps:
the first retention round, 30 s after the start, would delete such records (Kafka's would, too)."""


def with_descriptors(count: int, command: list[str]) -> list[str]:
    """Return the command that runs ``command`` under `ulimit -n COUNT`, soft and hard."""
    return [sys.executable, "-c", _LIMITED, str(count), *command]


class BrokerProcess:
    """``python -m klog_broker`` with its data in ``data``; ready when the constructor returns."""

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, object] | None = None,
        port: int = 0,
        deadline_s: float = 60,
        options: Sequence[str] = (),
        descriptors: int | None = None,
    ) -> None:
        command = [sys.executable, "-P", "-m", "klog_broker", "--port", str(port), *options]
        if "log.dirs" not in (settings or {}):
            command += ["--data", str(data)]
        for name, value in (KEEPS_RECORDS | dict(settings or {})).items():
            command += ["--set", f"{name}={value}"]
        # A broker ends with the test run that started it, also if that one is killed.
        command.append("--until-stdin-ends")
        if descriptors is not None:
            command = with_descriptors(descriptors, command)
        data.parent.mkdir(parents=True, exist_ok=True)
        self.log_path = data.parent / f"{data.name}.stderr"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.stdout: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read_stdout, daemon=True)
        self._reader.start()
        if not self._ready.wait(deadline_s) or not self.stdout:
            self.kill()
            raise AssertionError(f"the broker did not get ready: {self.log()}")
        host, _, text = self.stdout[0].removeprefix(_READY).strip().rpartition(":")
        self.address = (host, int(text))

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.stdout.append(line)
            if line.startswith(_READY):
                self._ready.set()
        self._ready.set()

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.terminate()

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        """Return all that the broker has written to stderr."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, deadline_s: float = 60) -> int:
        """Wait until the broker has exited and return its exit code."""
        code = self._process.wait(deadline_s)
        self._reader.join(deadline_s)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        return code

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self._process.terminate()
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self.wait()
