"""A klog broker as a child process, on loopback, with its data in a temporary folder."""

import atexit
import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pyspark_klog.errors import KlogError
from pyspark_klog.testing.faults import Faults

_READY = "klog ready on "
_OUTPUT_TAIL_BYTES = 4_000
DEFAULT_SETTINGS: dict[str, str] = {
    # A new group completes its first rebalance at once: a test has few consumers, so there is no
    # need to wait for others to join.
    "group.initial.rebalance.delay.ms": "0",
    # Keep records of any age: those of a test may have old timestamps, and the first retention
    # check, half a minute after the start, would delete them.
    "log.retention.hours": "-1",
}


class BrokerFailed(KlogError):
    """The broker's process did not start, ended by itself, or did not stop in time. The text of the
    error includes the end of the broker's log."""


class Broker:
    """A broker to test against; use it in a with statement, or call `start` and `stop`.

    Settings are the broker's own, with underscores for dots: ``Broker(num_partitions=3)``. The data
    folder is temporary unless ``data`` is given; it stays across `stop` and `start`, as does the
    port, so that a test can stop a broker and start it again. The broker ends with the process that
    started it, however that process ends; records are kept however old they are.
    """

    def __init__(
        self,
        *,
        data: Path | str | None = None,
        port: int = 0,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 20.0,
        python: Sequence[str] | None = None,
        **settings: str | int | bool,
    ) -> None:
        """With ``port`` 0 the broker chooses a free port. ``python`` is the command, with its
        arguments, that runs Python for the broker; the default is the interpreter of this process.
        With ``python`` the broker has no `faults`, because another version of klog may run."""
        self._settings = DEFAULT_SETTINGS | {
            name.replace("_", "."): _text(value) for name, value in settings.items()
        }
        self.faults = Faults(self._resume_if_paused)
        """The faults of this broker: errors, delays and lost connections that a test adds."""
        self._has_faults = python is None
        self._python = list(python or [sys.executable])
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._given_data = None if data is None else Path(data)
        self._folder: Path | None = None
        self._port = port
        self._host = "127.0.0.1"
        self._process: subprocess.Popen[bytes] | None = None
        self._paused_pid: int | None = None

    # --- state of the broker ---------------------------------------------------------------------
    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, for the clients' setting ``bootstrap.servers``."""
        if self._port == 0:
            raise RuntimeError(
                "the broker has no port yet: use it in a with statement, or start it"
            )
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        """The id of the broker's process, which is the process that listens on the port."""
        if self._process is None:
            raise RuntimeError("the broker is not running: use it in a with statement, or start it")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def data(self) -> Path:
        """The broker's data folder."""
        return self._given_data if self._given_data is not None else self._home() / "data"

    def output(self) -> str:
        """The broker's log so far (its standard error); empty after `close`."""
        path = None if self._folder is None else self._folder / "broker.log"
        if path is None or not path.exists():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    # --- start, stop and kill --------------------------------------------------------------------
    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker's process and wait until it accepts clients.

        :raises BrokerFailed: if the process ends, or does not accept clients in time
        """
        if self.is_running:
            raise RuntimeError("the broker is already running")
        command = [*self._python, "-P", "-m", "klog_broker"]
        command += ["--port", str(self._port), "--data", str(self.data), "--until-stdin-ends"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with contextlib.ExitStack() as stack:
            log = stack.enter_context((self._home() / "broker.log").open("ab"))
            inherited = []
            if self._has_faults:
                channel = stack.enter_context(self.faults._open())
                inherited.append(channel.fileno())
                command += ["--faults-fd", str(channel.fileno())]
            self._process = subprocess.Popen(
                command,
                # The test's process never writes to this pipe. When that process ends, even by
                # SIGKILL, the system closes the pipe, and the broker ends, too: it runs with
                # --until-stdin-ends.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=inherited,
                # Ctrl-C in a test run must reach only the test: `close` ends the broker.
                start_new_session=True,
            )
        atexit.register(self.close)
        try:
            self._host, self._port = self._wait_until_ready()
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def stop(self) -> None:
        """Stop the broker with SIGTERM and wait until its process ends; its data remain.

        :raises BrokerFailed: if the process does not end in time, or ends with an error
        """
        self._resume_if_paused()
        self.faults._settle()
        code = self._end(signal.SIGTERM)
        if code not in (None, 0):
            raise BrokerFailed(f"the broker ended with code {code}: {self._tail()}")

    def kill(self) -> None:
        """Kill the broker with SIGKILL; its data remain as they are."""
        if self._paused_pid is None:
            self.faults._settle()
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again with the same data and port.

        :raises BrokerFailed: if the broker does not stop in time, or does not start
        """
        if self.is_running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the broker (SIGSTOP): its connections stay open, and it answers nothing once this
        method has returned, until `resume`, `stop` or the end of the test."""
        if self._paused_pid != self.pid:
            self._paused_pid = self.pid
            os.kill(self.pid, signal.SIGSTOP)
            # Wait until all threads of the broker are suspended, which takes a moment.
            os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Let a suspended broker run again (SIGCONT)."""
        self._paused_pid = None
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop the broker and remove its temporary folder."""
        atexit.unregister(self.close)
        with contextlib.suppress(BrokerFailed):
            self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- the temporary folder, and the broker's process ------------------------------------------
    def _home(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="klog-broker-"))
        return self._folder

    def _wait_until_ready(self) -> tuple[str, int]:
        process = self._process
        assert process is not None and process.stdout is not None
        line = _read_line(process.stdout, self._start_timeout_s)
        if line is not None and line.startswith(_READY):
            host, _, port = line.removeprefix(_READY).strip().rpartition(":")
            return host, int(port)
        if line is None:
            raise BrokerFailed(
                f"the broker did not serve within {self._start_timeout_s:g} s: {self._tail()}"
            )
        code = process.wait(self._stop_timeout_s)
        raise BrokerFailed(f"the broker ended at its start with code {code}: {self._tail()}")

    def _resume_if_paused(self) -> None:
        if self._paused_pid is not None:
            self.resume()

    def _end(self, how: signal.Signals) -> int | None:
        self._paused_pid = None
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(how)
        try:
            code = process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(
                f"the broker did not end within {self._stop_timeout_s:g} s: {self._tail()}"
            ) from None
        finally:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            self.faults._close()
        return code

    def _tail(self) -> str:
        return self.output()[-_OUTPUT_TAIL_BYTES:].strip() or "it printed nothing"


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_line(stream: IO[bytes], timeout_s: float) -> str | None:
    """Return the first line of ``stream``, without the line feed.

    The result is "" if the stream ends before a line feed, and None after the timeout.
    """
    deadline = time.monotonic() + timeout_s
    received = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while b"\n" not in received:
            if not selector.select(max(deadline - time.monotonic(), 0)):
                return None
            some = os.read(stream.fileno(), 4096)
            if not some:
                return ""
            received += some
    return received.partition(b"\n")[0].decode("utf-8", "replace")
