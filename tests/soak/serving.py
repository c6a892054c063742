"""How a driver that a soak starts takes its commands; `DriverProcess` is the other side."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Command = Callable[[dict[str, Any]], dict[str, Any]]


def answers_alone() -> Any:
    """The standard output for answers; all else that is printed, as by Java, goes to the error
    output from now on. To be called before Spark starts."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def serve(commands: dict[str, Command], answers: Any) -> None:
    """Carry out commands until the standard input ends: a JSON object a line, each answered with
    one. An error is an answer."""
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = commands[command["do"]](command)
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def error_text(error: object) -> str | None:
    """What a query failed with, without Spark's picture of its plan."""
    return None if error is None else str(error).split("\n=== Streaming Query")[0]
