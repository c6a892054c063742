"""Checks the versions of the Pythons of the driver and of Spark's workers, and their packages."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark_klog._version import __version__
from pyspark_klog.check.items import Item, fail, note, ok
from pyspark_klog.interpreters.lookup import (
    Contents,
    Interpreter,
    NoPython,
    Probe,
    is_current_interpreter,
    lookup_interpreter,
    spark_home,
    worker_environment,
    worker_interpreter,
)
from pyspark_klog.properties import PropertiesError, read_properties

_LEAST_SPARK = (4, 0)
_LIMITS_SINCE = (4, 2)
_ALL = ("klog", "packages")


class _Role(NamedTuple):
    """A role of a Python in a Spark job, such as ``workers``, and the Python that Spark runs in the
    role. ``path`` is None if there is no such program."""

    name: str
    python: Interpreter
    path: str | None

    def advice(self) -> str:
        """Advice to the user: the setting with which Spark runs, in this role, the Python that runs
        this check."""
        return f"set {self.python.setting}={sys.executable} before the session begins"


def check_pythons(environ: Mapping[str, str]) -> Iterator[Item]:
    """Check the driver's Python, which runs this check, then the Pythons of Spark's processes; if
    the driver's lacks pyspark, check only the driver's."""
    home = spark_home(environ)
    roles = list(_roles(environ, home))
    driver = Probe(sys.executable, environ, *_ALL)
    inside = worker_environment(environ, home)
    others = {
        role.path
        for role in roles
        if role.path is not None and not is_current_interpreter(role.path)
    }
    probes = {path: Probe(path, inside, *_ALL) for path in others}

    own = driver.result()
    yield ok(f"driver: Python {own.text}, {sys.executable}")
    yield _spark(own)
    if own.pyspark is None:
        return
    yield from _packages("driver", own)
    reported_paths: set[str] = set()
    for role in roles:
        found = _contents(role, probes)
        if isinstance(found, Item):
            yield found
            continue
        yield _version(role, found, own)
        assert role.path is not None
        if role.path not in reported_paths:
            reported_paths.add(role.path)
            yield from _packages(role.name, found)


def _roles(environ: Mapping[str, str], home: Path | None) -> Iterator[_Role]:
    workers, look_up = worker_interpreter(environ), lookup_interpreter(environ)
    yield _Role("workers", workers, workers.path(environ))
    if look_up != workers:
        yield _Role("look-up of formats", look_up, look_up.path(environ))
    for python in _spark_defaults(environ, home):
        yield _Role("workers of spark-submit", python, python.path(environ))


def _spark_defaults(environ: Mapping[str, str], home: Path | None) -> Iterator[Interpreter]:
    """The Python that spark-defaults.conf names in spark.pyspark.python. Only spark-submit reads
    this setting, and prefers it to the environment variable PYSPARK_PYTHON."""
    folder = environ.get("SPARK_CONF_DIR") or (home and home / "conf")
    if not folder:
        return
    try:
        entries = read_properties(Path(folder) / "spark-defaults.conf")
    except PropertiesError:
        return
    for entry in entries:
        if entry.name == "spark.pyspark.python" and entry.text.strip():
            yield Interpreter(entry.text.strip(), entry.name)


def _contents(role: _Role, probes: Mapping[str, Probe]) -> Contents | Item:
    """The packages of the Python that Spark runs in ``role``, such as "workers". If this Python
    cannot run, or is the driver's, the result is instead the line that `check` prints for the
    role."""
    name, python, path = role.name, role.python, role.path
    if " " in python.command:
        return fail(
            f"{name}: {python} has a blank in it; expected a path without, since Spark gives it to "
            "a shell unquoted: make a link without blanks to that environment, and name it"
        )
    if path is None:
        return fail(
            f"{name}: {python}, and there is no such program; expected a Python that has klog: "
            f"{role.advice()}"
        )
    if is_current_interpreter(path):
        return ok(f"{name}: the driver's Python ({python})")
    try:
        return probes[path].result()
    except NoPython as error:
        return fail(
            f"{name}: {path} ({python}) does not run as Python: {error}; expected a Python that "
            f"has klog: {role.advice()}"
        )


def _version(role: _Role, found: Contents, own: Contents) -> Item:
    text = f"{role.name}: Python {found.text}, {role.path} ({role.python})"
    if found.minor == own.minor:
        return ok(text)
    return fail(f"{text}; expected {own.minor}, as the driver's: {role.advice()}")


def _spark(own: Contents) -> Item:
    if own.pyspark is None:
        return fail(
            f"driver: pyspark cannot be imported ({own.pyspark_error}); expected 4.0 or later: "
            "pip install 'pyspark-klog[spark]', or run this with the Python of your jobs"
        )
    version = tuple(int(part) for part in own.pyspark.split(".")[:2])
    if version < _LEAST_SPARK:
        return fail(
            f"driver: Spark {own.pyspark}; expected 4.0 or later, which has Python data sources: "
            "use a newer Spark"
        )
    if version < _LIMITS_SINCE:
        return note(f"driver: Spark {own.pyspark}; limits of micro-batches need 4.2 or later")
    return ok(f"driver: Spark {own.pyspark}")


def _packages(name: str, found: Contents) -> Iterator[Item]:
    yield _klog(name, found)
    yield _pyarrow(name, found)
    yield _numba(name, found)
    yield _connect(name, found)
    yield _protobuf(name, found)


def _klog(name: str, found: Contents) -> Item:
    if found.klog is None:
        return fail(
            f"{name}: pyspark_klog cannot be imported ({found.klog_error}); expected "
            f"{__version__}: install it there, as by pip install pyspark-klog, or name a Python "
            "that has it"
        )
    if found.klog != __version__:
        return fail(
            f"{name}: pyspark_klog {found.klog}; expected {__version__}, as the driver's: install "
            "the same release"
        )
    return ok(f"{name}: pyspark_klog {found.klog}")


def _pyarrow(name: str, found: Contents) -> Item:
    if found.pyspark_error is not None:
        return fail(
            f"{name}: pyspark cannot be imported ({found.pyspark_error}); expected that of Spark's "
            "own folder: check SPARK_HOME"
        )
    if found.pyarrow_error is not None:
        return fail(f"{name}: pyarrow: {found.pyarrow_error}: install it there")
    return ok(f"{name}: pyarrow {found.pyarrow}")


def _numba(name: str, found: Contents) -> Item:
    if found.numba is None:
        return fail(
            f"{name}: numba is not installed; expected it, since klog reads and writes records "
            "with it: install it there, as by pip install pyspark-klog"
        )
    if not found.kernels_are_cached:
        return note(
            f"{name}: numba {found.numba}; klog's kernels are not compiled yet, so the first read "
            "and write take some seconds longer: python -m pyspark_klog.warm compiles them now"
        )
    return ok(f"{name}: numba {found.numba}, klog's kernels are compiled")


def _connect(name: str, found: Contents) -> Item:
    missing = found.connect_missing
    if missing:
        return note(
            f"{name}: without {', '.join(missing)}, foreachBatch under Spark Connect fails: pip "
            f"install {' '.join(missing)} where the server runs"
        )
    return ok(f"{name}: grpcio, for foreachBatch under Spark Connect")


def _protobuf(name: str, found: Contents) -> Item:
    if found.protobuf is None:
        return note(
            f"{name}: without protobuf, transformWithState fails: pip install protobuf on every "
            "executor"
        )
    return ok(f"{name}: protobuf {found.protobuf}, for transformWithState")
