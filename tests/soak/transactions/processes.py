"""The processes that copy: a soak starts, suspends and kills them, and reads their output."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.peers import NEWEST_KAFKA, java, kafka_jars

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = ("librdkafka", "java")


def command_of(client: str) -> list[str]:
    """The command of a copy with one of `CLIENTS`; PeersMissing if Kafka's jars are missing."""
    if client == "librdkafka":
        return [sys.executable, "-m", "tests.soak.transactions.librdkafka_copy"]
    return [
        java(),
        # The processes are short-lived, and four run at a time: full compilation would rarely pay.
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"),
        *("-cp", f"{kafka_jars(NEWEST_KAFKA)}{os.sep}*"),
        str(Path(__file__).with_name("CopyLoop.java")),
    ]


class Copy:
    """A copying process that is started, killed and restarted."""

    def __init__(self, command: Sequence[str], name: str, work: Path) -> None:
        """Create the copy; ``work`` takes its standard error."""
        self.name = name
        self.counts: Counter[str] = Counter()
        """The count of each printed word; ``records`` counts the committed records."""
        self.last_words = ""
        self.is_paused = False
        self._command = command
        self._log = work / f"{name}.stderr"
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    @property
    def is_there(self) -> bool:
        """Whether the copy was started, and not killed since."""
        return self._process is not None

    def start(self) -> None:
        """Start the process; it ends when its standard input closes."""
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def ended(self) -> int | None:
        """The exit code, if the process has ended by itself."""
        return None if self._process is None else self._process.poll()

    def last_errors(self) -> str:
        """The end of the process's standard error."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-2_000:]

    def kill(self) -> None:
        """Send SIGKILL, even if the process is suspended or has ended."""
        process, self._process, self.is_paused = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()
            assert self._listener is not None
            self._listener.join(60)
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()

    def pause(self) -> None:
        """Suspend the process."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def go_on(self) -> None:
        """Resume the process."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            word, _, rest = line.strip().partition(" ")
            self.counts[word] += 1
            if word == "committed":
                self.counts["records"] += int(rest)
            else:
                self.last_words = line.strip()
