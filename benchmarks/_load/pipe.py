"""A child process that takes a line of JSON on stdin and answers with one on stdout."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks._load.jobs import LoadFailed

_CHECKOUT = Path(__file__).resolve().parents[2]
_END_S = 20.0


class Program:
    """A command as a context manager, called ``name`` in errors; ended by its process id."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_CHECKOUT,
            env=self._environment,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def send_line(self, line: str, timeout_s: float) -> dict[str, Any]:
        """Send a line; return the ``measured`` of the answer.

        Raises LoadFailed with the answer's ``error``, or if there is no answer in time.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the child does not run: use it in a with statement")
        process.stdin.write(line + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                process.kill()  # the child may never end by itself
                raise LoadFailed(f"{self._name} did not answer in {timeout_s:g} s")
        answered = process.stdout.readline()
        if not answered:
            raise LoadFailed(f"{self._name} ended: see what it printed above")
        answer: dict[str, Any] = json.loads(answered)
        if "error" in answer:
            raise LoadFailed(answer["error"])
        measured: dict[str, Any] = answer["measured"]
        return measured


class Child(Program):
    """``python -m MODULE ARGUMENTS``, with this Python unless another one is given."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        command = [str(python or sys.executable), "-m", module, *arguments]
        super().__init__(module, command, environment)
