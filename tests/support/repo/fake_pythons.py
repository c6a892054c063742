"""Small scripts that stand for interpreters, for tests of the search for a Python."""

import json
import shlex
from pathlib import Path
from typing import Any


def fake_python(path: Path, **found: Any) -> str:
    """A program that says, as `pyspark_klog.interpreters.probe` does, that it has this."""
    return fake_program(path, f"printf '%s\\n' {shlex.quote(json.dumps(found))}")


def fake_java(path: Path, version: str) -> str:
    """A program that prints its version to stderr, as Java does."""
    return fake_program(path, f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")


def fake_program(path: Path, script: str) -> str:
    """A program that runs a line of shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)
