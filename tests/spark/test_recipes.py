"""The recipes of docs/clusters.md bring klog to the executors of a standalone cluster.

The commands run as the page has them, with other paths and hosts. No Python on the way has klog
installed; the packages that klog needs come from this environment.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from tests.support.client.cases import read
from tests.support.repo.documents import ROOT, first_block
from tests.support.spark.home import spark_home
from tests.support.spark.standalone import standalone_master
from tests.support.spark.topics import Topics

# A master, a worker, a driver and an executor start on a machine that may be busy.
pytestmark = pytest.mark.timeout(600)

_JOB = """
import os

import pyspark_klog
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
pyspark_klog.register(spark)
servers = {"kafka.bootstrap.servers": os.environ["SERVERS"]}
rows = spark.read.format("klog").options(**servers).option("subscribe", os.environ["TOPIC"]).load()
writer = rows.select("value").write.format("klog").options(**servers)
writer.option("topic", os.environ["COPY"]).mode("append").save()
"""
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_SETTINGS = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    # Kernels run as plain Python: in these places klog's compiled kernels are not cached yet.
    "spark.executorEnv.NUMBA_DISABLE_JIT": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a master, and the home of Spark that has `spark-submit`."""
    folder = tmp_path_factory.mktemp("standalone")
    home = spark_home(folder / "home")
    settings = "".join(f"{name} {value}\n" for name, value in _SETTINGS.items())
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(settings, encoding="utf-8")
    with standalone_master(folder, ("127.0.0.1",)) as address:
        yield address, home


def _environment(folder: Path, *paths: Path) -> Path:
    """An environment with the packages of this one, but without klog, and with more ``paths``."""
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python3*/site-packages")
    # A file .pth may name a folder whose own .pth files do not count: they would bring klog.
    lines = [sysconfig.get_path("purelib"), *map(str, paths)]
    (site / "packages.pth").write_text("\n".join(lines), encoding="utf-8")
    return folder


def _program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def _submit(
    commands: str, folder: Path, master: tuple[str, Path], topics: Topics, programs: dict[str, str]
) -> None:
    """Run the commands, with a job that copies a topic, and ``programs`` in the PATH."""
    address, home = master
    source, target = topics.create(1), topics.create(1)
    topics.put_numbers(source, range(3))
    (folder / "bin").mkdir()
    for name, script in programs.items():
        _program(folder / "bin", name, script)
    (folder / "job.py").write_text(_JOB, encoding="utf-8")
    assert "spark://master:7077" in commands
    ran = subprocess.run(
        ["/bin/sh", "-ec", commands.replace("spark://master:7077", address)],
        cwd=folder,
        env={
            "HOME": str(folder),
            "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            "PATH": os.pathsep.join([str(folder / "bin"), str(home / "bin"), os.environ["PATH"]]),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SERVERS": topics.servers,
            "TOPIC": source,
            "COPY": target,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        records = read(client, TopicPartition(target, 0), 0, 3)
    assert sorted(bytes(record.value or b"") for record in records) == [b"0", b"1", b"2"]


def test_a_zip_of_klog_serves_a_standalone_cluster(
    master: tuple[str, Path], topics: Topics, tmp_path: Path
) -> None:
    python = _environment(tmp_path / "packages") / "bin" / "python"
    # A new checkout has no caches, which would take long to compress.
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        ROOT / "pyspark_klog", tmp_path / "klog" / "pyspark_klog", ignore=without_caches
    )
    commands = first_block("clusters.md", "A zip of klog")
    commands = commands.replace("/opt/packages/bin/python", str(python))
    programs = {"python": f'exec {shlex.quote(sys.executable)} "$@"'}
    _submit(commands, tmp_path, master, topics, programs)


def test_a_packed_environment_serves_a_standalone_cluster(
    master: tuple[str, Path], topics: Topics, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "pyspark_klog").symlink_to(ROOT / "pyspark_klog")
    packed = _environment(tmp_path / "packed", code)
    programs = {"venv-pack": f'tar -czf "$2" -C {shlex.quote(str(packed))} .'}
    commands = first_block("clusters.md", "A packed environment")
    _submit(commands, tmp_path, master, topics, programs)
