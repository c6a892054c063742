"""A standalone Spark master with workers on several addresses of this machine: for speculation,
since Spark never runs two attempts of a task on one host."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark_klog.testing.ports import free_port
from tests.support.eventually import eventually
from tests.support.spark.home import spark_home

_DEADLINE_S = 90.0
_DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone_master(
    folder: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.2")
) -> Iterator[str]:
    """Gives the master's address; there is a worker with one core on each host. SPARK_HOME has to
    be ``folder / "home"`` for drivers, too."""
    home = spark_home(folder / "home")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as started:
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        started.enter_context(_process(folder, home, "master.Master", master, "127.0.0.1"))
        eventually(lambda: _listens(port), _DEADLINE_S, f"a Spark master on port {port}")
        for host in hosts:
            worker = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(folder / f"work-{host}"), address]
            started.enter_context(_process(folder, home, "worker.Worker", worker, host))
        yield address


@contextlib.contextmanager
def _process(
    folder: Path, home: Path, main_class: str, arguments: Sequence[str], host: str
) -> Iterator[None]:
    with (folder / f"{main_class}-{host}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"{_DEPLOY}.{main_class}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": host,
                "SPARK_DAEMON_MEMORY": "256m",
            },
        )
    try:
        yield
    finally:
        _end(process)


def _end(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
