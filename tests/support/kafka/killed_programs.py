"""Programs that tests kill and start again; most of them run on Apache Kafka's jars."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.peers import NEWEST_KAFKA, java, kafka_jars

_JAVA_SOURCES = Path(__file__).parents[1] / "java"


class Program:
    """A child process. Its output is appended to ``output``, after that of earlier processes. Its
    standard input ends with this process; a context manager kills it at the end.
    """

    def __init__(
        self, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=output.parent,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def lines(self) -> list[str]:
        """Return all lines that this process, and those before it, have printed."""
        return self._output.read_text(encoding="utf-8", errors="replace").splitlines()

    def expect_running(self) -> None:
        """Raise RuntimeError, with the last lines of its output, if the program has ended."""
        code = self._process.poll()
        if code is not None:
            last = "\n".join(self.lines()[-30:])
            raise RuntimeError(f"the program ended with exit code {code}:\n{last}")

    def wait(self, deadline_s: float) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        return self._process.wait(deadline_s)

    def kill(self) -> None:
        """Send SIGKILL; a process that has ended already is fine."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class JavaProgram(Program):
    """``main`` is a class of the jars, or the name of a source file in tests/support/java."""

    def __init__(
        self, main: str, arguments: Sequence[str], output: Path, version: str = NEWEST_KAFKA
    ) -> None:
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
        jars = ("-cp", f"{kafka_jars(version)}{os.sep}*")
        program = str(_JAVA_SOURCES / main) if main.endswith(".java") else main
        super().__init__([java(), *options, *jars, program, *arguments], output)
