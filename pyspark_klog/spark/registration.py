"""Checks, when the source is registered, Spark's release and the Python interpreter in which Spark
will run the source."""

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from pyspark_klog.interpreters.lookup import Interpreter, NoPython, Probe, is_current_interpreter
from pyspark_klog.spark.errors import PackageMissing, PythonUnfit, SparkTooOld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_LONGEST_S = 10.0


def check_release() -> None:
    """Refuse a Spark without Python data sources.

    :raises SparkTooOld: if the installed Spark has none
    :raises PackageMissing: if pyspark is not installed
    """
    try:
        pyspark = importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise PackageMissing(
            f"pyspark is not installed in this Python, {sys.executable}; expected 4.0 or later: "
            "pip install 'pyspark-klog[spark]', or use the Python of your jobs"
        ) from None
    try:
        importlib.import_module("pyspark.sql.datasource")
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        raise SparkTooOld(
            f"Spark {pyspark.__version__} has no Python data sources; expected 4.0 or later: use a "
            'newer Spark, or Spark\'s own connector, format("kafka")'
        ) from None


def check_session(spark: "SparkSession") -> None:
    """Refuse a Python in which no registered source can run; warn of one that seems to lack klog.

    Spark plans a registered source on the driver's host in the Python of its workers. A Connect
    client does not know that Python, so this function checks nothing under Spark Connect.

    :raises PythonUnfit: if that Python does not exist, or is not of the driver's version
    """
    try:
        command = spark.sparkContext.pythonExec
    except Exception:
        return  # Spark Connect and some vendors give no sparkContext
    check_python(command)


def check_python(command: str) -> None:
    """Check that the Python interpreter that Spark starts by ``command`` exists and is of the
    driver's version (else raise PythonUnfit); warn if it does not answer, or cannot import klog."""
    instead = (
        f"set PYSPARK_PYTHON={sys.executable} before the session begins; python -m pyspark_klog "
        "check looks at the rest"
    )
    python = Interpreter(command, "PYSPARK_PYTHON", is_default="PYSPARK_PYTHON" not in os.environ)
    path = python.path(os.environ)
    if path is None:
        raise PythonUnfit(f"Spark's workers run {python}, and there is no such program: {instead}")
    if is_current_interpreter(path):
        return
    try:
        found = Probe(path, os.environ, "klog").result(_LONGEST_S)
    except NoPython as error:
        _log.warning(
            "Spark's workers run %s, %s, which does not answer as Python: %s; %s",
            python,
            path,
            error,
            instead,
        )
        return
    own = "{}.{}".format(*sys.version_info[:2])
    if found.minor != own:
        raise PythonUnfit(
            f"Spark's workers run {python}, {path}, which is Python {found.text}; expected {own}, "
            f"as the driver's: {instead}"
        )
    if found.klog is None:
        # Only warn: klog may come by --py-files, which Spark puts on a worker's path later.
        _log.warning(
            "Spark's workers run %s, %s, which cannot import pyspark_klog (%s): install it there, "
            "or %s",
            *(python, path, found.klog_error, instead),
        )
