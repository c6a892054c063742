"""The command loop of a driver that a soak starts; `DriverProcess` is the other side."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Command = Callable[[dict[str, Any]], dict[str, Any]]


def answers_alone() -> Any:
    """Reserve the standard output for answers; return it.

    All other output, such as Java's, goes to the standard error from now on. Call this before Spark
    starts.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def serve(commands: dict[str, Command], answers: Any) -> None:
    """Carry out commands until the standard input ends.

    A command is a JSON object on a line, and so is its answer. An error is an answer, too.
    """
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = commands[command["do"]](command)
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def error_text(error: object) -> str | None:
    """The text of a query's error, without Spark's description of its plan."""
    return None if error is None else str(error).split("\n=== Streaming Query")[0]
