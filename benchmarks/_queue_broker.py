"""A message broker with queues, ActiveMQ or RabbitMQ: its process, its folder and its client."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks._load.jobs import Measured
from tests.support.eventually import eventually

_START_DEADLINE_S = 90.0
_STOP_DEADLINE_S = 60.0
_BLOCK_BYTES = 512
_SHOWN_CHARACTERS = 2_000


class QueueBroker:
    """A broker as a context manager; subclasses start its processes and drive it with a client.

    ``folder`` is a new temporary folder, which is removed at the end; the broker keeps its messages
    in ``data``. Processes are ended by their ids, the last one first.
    """

    def __init__(self, name: str, client: str) -> None:
        self.name = name
        self.client = client
        """The name of the client that sends and receives."""
        self.folder = Path()
        self._broker: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the broker's processes with ``launch``; return the broker itself."""
        raise NotImplementedError

    def serves(self) -> bool:
        """Whether the broker answers its clients."""
        raise NotImplementedError

    def send(self, queue: str, messages: int, value_bytes: int) -> Measured:
        """Send persistent messages without waiting for acknowledgements, one at a time."""
        raise NotImplementedError

    def receive(self, queue: str, messages: int, prefetch: int) -> Measured:
        """Receive messages with automatic acknowledgement, at most ``prefetch`` ahead."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="klog-peer-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self._broker = self.start()
            eventually(self._serves_or_ended, _START_DEADLINE_S, f"{self.name} serving")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        if self._broker is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._broker.pid

    def disk_bytes(self) -> int:
        """The allocated bytes of all files in ``data``, without space beyond their ends."""
        found = 0
        for folder, _, names in os.walk(self.data):
            for name in names:
                with suppress(FileNotFoundError):  # the broker may delete files meanwhile
                    stat = Path(folder, name).stat()
                    found += min(stat.st_size, stat.st_blocks * _BLOCK_BYTES)
        return found

    def output(self) -> str:
        """Return all that the processes have printed."""
        return (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace")

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with this object."""
        with (self.folder / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
            )
        self._stack.callback(_end, process)
        return process

    def _serves_or_ended(self) -> bool:
        if self._broker is not None and self._broker.poll() is not None:
            shown = self.output()[-_SHOWN_CHARACTERS:]
            raise RuntimeError(f"{self.name} ended at its start: {shown}")
        return self.serves()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with SIGTERM, or with SIGKILL if it does not end in time."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
