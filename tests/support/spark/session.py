"""One Spark session for a test process: small, without a UI, and on this process's Python."""

import atexit
import functools
import os
import shutil
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.peers import kafka_release, spark_connector_jars
from tests.support.spark import ready_python
from tests.support.spark.home import compiled_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]


OVERRIDES: dict[str, str] = {}
"""Settings that a file of tests adds before the session is made."""
_first_settings: dict[str, str] = {}
_quick: list[bool] = []
# Spark's default starts some thirty `readlink` and `chmod` for a micro-batch where Hadoop has no
# native library. Spark's releases have the other class in different packages.
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_QUICK_CHECKPOINTS = tuple(
    f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
    for package in ("checkpointing.", "")
)
# Queries of tests have few rows: compiling Java code for each query costs more than interpreting
# the query. A stream without new records asks its source again after 100 ms instead of 10 ms.
_QUICK_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.pollingDelay": "100",
}


def quicken_session() -> None:
    """Let the session that is made later run queries and streams with half of the work.

    For tests of what a query or stream does. A session with `OVERRIDES`, and those of jobs whose
    processes are killed, stay as Spark has them.
    """
    _quick.append(True)


@functools.cache
def spark_session() -> "SparkSession":
    """The session of this process: local[2], two shuffle partitions, all files in one folder.

    Workers import klog from this checkout, whichever way the environment finds it.
    """
    # A host name that does not resolve kills Spark; workers would take python3 from PATH.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_HOME", str(compiled_home()))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)  # ./dev has set it: Spark trips over spaces
    paths = [str(ROOT), str(ROOT / "broker"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp(prefix="klog-spark-")
    builder = SparkSession.builder.master("local[2]")
    if kafka_release() is not None:  # Spark's own connector takes part in this process
        builder = builder.config("spark.jars", ",".join(map(str, spark_connector_jars())))
    builder = (
        builder.appName("klog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.local.dir", f"{folder}/local")
        .config("spark.sql.streaming.stopTimeout", "30000")
    )
    is_quick = bool(_quick) and not OVERRIDES
    for name, value in (_QUICK_SETTINGS if is_quick else OVERRIDES).items():
        builder = builder.config(name, value)
    with ready_python.forked_processes() if is_quick else nullcontext():
        session = builder.getOrCreate()
    if is_quick:
        loadable = session._jvm.org.apache.spark.util.Utils.classIsLoadable
        session.conf.set(_CHECKPOINTS, next(filter(loadable, _QUICK_CHECKPOINTS)))
    session.sparkContext.setLogLevel("OFF")
    _first_settings.update(session.conf.getAll)

    def stop_session() -> None:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop_session)
    return session


def restore_session() -> None:
    """Leave this process's session, if it has one, as it began: files of tests share it."""
    if not spark_session.cache_info().currsize:
        return
    session = spark_session()
    for query in session.streams.active:
        query.stop()
    for view in session.sql("SHOW VIEWS").collect():  # listTables() needs compiled Java code
        if view.isTemporary:
            session.catalog.dropTempView(view.viewName)
    session.catalog.clearCache()
    settings = dict(session.conf.getAll)
    for name in settings.keys() - _first_settings.keys():
        session.conf.unset(name)
    for name, value in _first_settings.items():
        if settings.get(name) != value:
            session.conf.set(name, value)
