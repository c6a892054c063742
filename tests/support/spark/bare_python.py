"""A Python for Spark's workers that seems to lack a package."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_klog import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SITE = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] == {package!r}
        return None if hidden else PathFinder.find_spec(name, path, target)

# Tasks run in "python -m pyspark.daemon pyspark.worker"; what plans on the driver, in others.
if {everywhere} or sys.orig_argv[-1] == "pyspark.worker":
    sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


@contextmanager
def workers_without(
    spark: "SparkSession", package: str, folder: Path, *, everywhere: bool
) -> Iterator[None]:
    """Let the session's Python processes lack a package: those of tasks, or ``everywhere`` those of
    the driver that plan, too. A frame that was loaded keeps the Python that it was loaded with."""
    site = folder / "site"
    site.mkdir()
    text = _SITE.format(package=package, everywhere=everywhere)
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    python = folder / "python"
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(site))}:$PYTHONPATH exec "
        f'{shlex.quote(sys.executable)} "$@"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    context = spark.sparkContext
    usual = context.pythonExec
    context.pythonExec = str(python)
    register(spark)  # a source runs in the Python with which it was registered
    try:
        yield
    finally:
        context.pythonExec = usual
        register(spark)
