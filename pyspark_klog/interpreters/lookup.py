"""Finds the Python interpreters that Spark runs, and looks up which packages each of them has.

Spark runs Python data sources and user-defined functions in separate processes. PYSPARK_PYTHON and
PYSPARK_DRIVER_PYTHON in the environment of the driver's JVM name their interpreter. Without these
variables it is ``python3``, perhaps another Python than the driver's.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

PROBE_TIMEOUT_S = 60.0
"""How long to wait for probe.py, the script that prints the versions of a Python and its packages:
importing all packages from a cold disk takes some seconds."""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter as Spark's settings name it: a path, or a name to look up in PATH."""

    command: str
    setting: str
    """The environment variable or Spark setting that names the command: PYSPARK_PYTHON ..."""
    is_default: bool = False

    def __str__(self) -> str:
        if self.is_default:
            return f"{self.command} of PATH, as {self.setting} is not set"
        return f"{self.setting}={self.command}"

    def path(self, environ: Mapping[str, str]) -> str | None:
        """The absolute path of the command's file; None if there is no such executable file."""
        found = shutil.which(self.command, path=environ.get("PATH"))
        # Do not resolve links: a virtual environment's python is a link to the system's python.
        return None if found is None else os.path.abspath(found)  # noqa: PTH100


def worker_interpreter(environ: Mapping[str, str]) -> Interpreter:
    """The Python that runs user-defined functions and the data sources that a session registers,
    as pyspark's SparkContext chooses it."""
    command = environ.get("PYSPARK_PYTHON")
    return Interpreter(command or "python3", "PYSPARK_PYTHON", is_default=not command)


def lookup_interpreter(environ: Mapping[str, str]) -> Interpreter:
    """The Python in which Spark looks up a format that the session has not registered, and runs
    the data source that it finds."""
    command = environ.get("PYSPARK_DRIVER_PYTHON")
    return Interpreter(command, "PYSPARK_DRIVER_PYTHON") if command else worker_interpreter(environ)


@dataclass(frozen=True)
class Contents:
    """The versions of a Python and its packages, as probe.py printed them. The version of a package
    is None if the package is missing or cannot be imported, or if probe.py was not asked for it."""

    version: tuple[int, int, int]
    klog: str | None = None
    klog_error: str | None = None
    pyspark: str | None = None
    pyspark_error: str | None = None
    pyarrow: str | None = None
    pyarrow_error: str | None = None
    """Spark's message about a pyarrow that is missing or too old."""
    numba: str | None = None
    protobuf: str | None = None
    connect_missing: Sequence[str] = ()
    """The packages of Spark Connect's client that are missing."""
    kernels_are_cached: bool | None = None

    @property
    def minor(self) -> str:
        """The major and minor version, which all Pythons of a Spark application must share."""
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def text(self) -> str:
        """The version with its patch level, for example 3.12.4."""
        return ".".join(map(str, self.version))


class NoPython(Exception):
    """A command did not run as a Python interpreter. The text says why, for example "it did not
    answer within 60 s", where "it" is the command."""


class Probe:
    """A process in which a Python interpreter runs probe.py, which prints the versions of
    that interpreter and its packages. Probes run at the same time if all are created before the
    first call of `result`.
    """

    def __init__(self, path: str, environ: Mapping[str, str], *asked: str) -> None:
        """``asked`` are the arguments of probe.py: "klog" to print klog's version, "packages" to
        print those of pyspark, pyarrow and numba, or both."""
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
        """Wait until probe.py ends, at most ``timeout_s`` seconds, and return the versions that it
        has printed.

        :raises NoPython: if the command did not start, or did not print the result in this time
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
            last = err.strip().splitlines()[-1:] or ["it printed no versions"]
            raise NoPython(f"it ended with code {self._process.returncode}: {last[0]}") from None
        known = {name: found[name] for name in Contents.__dataclass_fields__ if name in found}
        return Contents((major, minor, micro), **known)


def worker_environment(environ: Mapping[str, str], spark_home: Path | None) -> dict[str, str]:
    """The environment variables with which Spark runs Python: PYTHONPATH begins with the zip files
    of pyspark and py4j below ``spark_home``."""
    library = [] if spark_home is None else sorted((spark_home / "python" / "lib").glob("py*.zip"))
    paths = [*map(str, library), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)}


def spark_home(environ: Mapping[str, str]) -> Path | None:
    """The folder of the Spark installation that this Python would start; None if it finds none."""
    from importlib.util import find_spec

    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def is_current_interpreter(path: str) -> bool:
    """Whether ``path`` is the executable of the Python that runs this code."""
    return path == os.path.abspath(sys.executable)  # noqa: PTH100
