"""Which Pythons Spark runs, and how to ask them.

Spark runs Python sources and functions in processes of its own. Their interpreter is named by the
environment of the driver's JVM, and is another than the driver's unless somebody sees to it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

PROBE_TIMEOUT_S = 60.0
"""A Python that imports everything for the first time, on a cold disk, takes some seconds."""


@dataclass(frozen=True)
class Interpreter:
    """A Python as Spark is told of it: a path, or a name to be looked for in PATH."""

    command: str
    setting: str
    """What names it, as PYSPARK_PYTHON."""
    is_default: bool = False

    def __str__(self) -> str:
        if self.is_default:
            return f"{self.command} of PATH, as {self.setting} is not set"
        return f"{self.setting}={self.command}"

    def path(self, environ: Mapping[str, str]) -> str | None:
        """The file that the command stands for; None if there is none."""
        found = shutil.which(self.command, path=environ.get("PATH"))
        # Not resolved: an environment's python is a link to that of the system.
        return None if found is None else os.path.abspath(found)  # noqa: PTH100


def of_workers(environ: Mapping[str, str]) -> Interpreter:
    """That of functions, and of a source that was registered: as pyspark's SparkContext has it."""
    command = environ.get("PYSPARK_PYTHON")
    return Interpreter(command or "python3", "PYSPARK_PYTHON", is_default=not command)


def of_look_up(environ: Mapping[str, str]) -> Interpreter:
    """That in which Spark looks for formats, and runs those that it finds so."""
    command = environ.get("PYSPARK_DRIVER_PYTHON")
    return Interpreter(command, "PYSPARK_DRIVER_PYTHON") if command else of_workers(environ)


@dataclass(frozen=True)
class Contents:
    """What a Python has. What was not asked for is None."""

    version: tuple[int, int, int]
    klog: str | None = None
    klog_error: str | None = None
    pyspark: str | None = None
    pyspark_error: str | None = None
    pyarrow: str | None = None
    pyarrow_error: str | None = None
    """Spark's own words about a pyarrow that is missing or too old."""
    numba: str | None = None
    kernels_are_cached: bool | None = None

    @property
    def minor(self) -> str:
        """The part of the version in which Spark's Pythons must be equal."""
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def text(self) -> str:
        """The whole version."""
        return ".".join(map(str, self.version))


class NoPython(Exception):
    """A command that did not run as a Python does, and why."""


class Probe:
    """A Python that is being asked. Several can be at work at the same time: make them first."""

    def __init__(self, path: str, environ: Mapping[str, str], *asked: str) -> None:
        """``asked`` are "klog" and "packages"."""
        source = resources.files(__package__).joinpath("probe.py").read_text("utf-8")
        self._error: OSError | None = None
        try:
            self._process = subprocess.Popen(
                [path, "-c", source, *asked],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            self._error = error

    def result(self, timeout_s: float = PROBE_TIMEOUT_S) -> Contents:
        """Wait for the answer.

        :raises NoPython: if there is none
        """
        if self._error is not None:
            raise NoPython(self._error.strerror or str(self._error))
        try:
            out, err = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise NoPython(f"it did not answer within {timeout_s:g} s") from None
        try:
            found: dict[str, Any] = json.loads(out.rstrip().rpartition("\n")[2])
            major, minor, micro = found.pop("version")
        except (ValueError, TypeError, KeyError, AttributeError):
            last = err.strip().splitlines()[-1:] or ["it printed nothing"]
            raise NoPython(f"it ended with code {self._process.returncode}: {last[0]}") from None
        known = {name: found[name] for name in Contents.__dataclass_fields__ if name in found}
        return Contents((major, minor, micro), **known)


def worker_environment(environ: Mapping[str, str], spark_home: Path | None) -> dict[str, str]:
    """The environment in which Spark runs Python: with its own pyspark in front."""
    library = [] if spark_home is None else sorted((spark_home / "python" / "lib").glob("py*.zip"))
    paths = [*map(str, library), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)}


def spark_home(environ: Mapping[str, str]) -> Path | None:
    """The folder of the Spark that this Python would start; None if there is none."""
    from importlib.util import find_spec

    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def is_own(path: str) -> bool:
    """Whether that file is the Python that runs here."""
    return path == os.path.abspath(sys.executable)  # noqa: PTH100
