"""Spark Connect, where only the server's Python has klog, and pipelines, which are its clients."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from pyspark_klog.testing.ports import free_port
from tests.support.client.cases import read
from tests.support.eventually import eventually
from tests.support.repo.documents import first_block
from tests.support.spark import connect_client
from tests.support.spark.home import compiled_home
from tests.support.spark.pipeline_page import RUN, RUN_ON_SERVER, run_pipeline, write_pipeline
from tests.support.spark.topics import Topics

SPARK_HOME = compiled_home()


def _listens(port: int, server: "subprocess.Popen[bytes]") -> bool:
    if server.poll() is not None:
        raise RuntimeError(f"the Spark Connect server ended with code {server.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as Spark's start-connect-server.sh runs it, with this environment's Python."""
    folder = tmp_path_factory.mktemp("connect")
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Djava.io.tmpdir={folder}",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.local.dir": folder,
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-memory", "768m", "--name", "klog tests of Spark Connect"]
    # The arguments are those of the recipe in docs/clusters.md.
    recipe = shlex.split(first_block("clusters.md", "Spark Connect").splitlines()[-1])
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *recipe[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_spark_environment(),
            start_new_session=True,
        )
    try:
        eventually(lambda: _listens(port, server), 180, "the Spark Connect server")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _spark_environment() -> dict[str, str]:
    given = dict(os.environ)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        given.setdefault(name, sys.executable)
    return given | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)}


def _client_environment() -> dict[str, str]:
    """An environment without this checkout and without variables that start a local Spark."""
    given = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return given | {"PYTHONPATH": sysconfig.get_path("purelib")}


@pytest.mark.parity("beyond: 1 Spark Connect")
def test_a_client_without_klog_reads_writes_and_streams(
    remote: str, topics: Topics, tmp_path: Path
) -> None:
    source, written, streamed, left, right = (topics.create(2) for _ in range(5))
    for partition in range(2):
        topics.put_numbers(source, [10 * partition + n for n in range(3)], partition)
    given = {
        "remote": remote,
        "servers": topics.servers,
        "source": source,
        "written": written,
        "streamed": streamed,
        "each": {"left": left, "right": right},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    # Without the module site no .pth file puts this checkout onto the path.
    ran = subprocess.run(
        [sys.executable, "-S", "-P", connect_client.__file__],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=_client_environment(),
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout)
    refused = found.pop("refused")
    assert "subscribePattern" in refused and "Traceback" not in refused
    each = [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]
    assert found == {
        "session": "pyspark.sql.connect.session",
        "read": [0, 1, 2, 10, 11, 12],
        "written": [0, 1, 2, 3, 4],
        "ended": True,
        "exception": None,
        "streamed": [0, 1, 2, 10, 11, 12],
        "each_ended": [True, None],
        "each": {"left": each, "right": each},
    }


@pytest.mark.timeout(900)
def test_a_pipeline_continues_behind_its_last_run(
    remote: str, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    write_pipeline(tmp_path, topics.servers, source, target)
    large = [b'{"customer":"ann","cents":10000}', b'{"customer":"eve","cents":30000}']
    topics.put(source, [(None, large[0]), (None, b'{"customer":"bob","cents":9999}')])
    run_pipeline(RUN, tmp_path, _spark_environment())
    topics.put(source, [(None, large[1])])
    command = RUN_ON_SERVER.replace("sc://server:15002", remote)
    assert command != RUN_ON_SERVER
    run_pipeline(command, tmp_path, _spark_environment())
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        records = read(client, TopicPartition(target, 0), 0, 2)
    written = [(bytes(record.key or b""), bytes(record.value or b"")) for record in records]
    assert written == [(b"ann", large[0]), (b"eve", large[1])]
