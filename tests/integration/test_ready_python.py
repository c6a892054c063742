"""The Python that tests give to Spark: to Spark it is any other."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.spark import ready_python
from tests.support.spark.session import ROOT

_DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            patch.setenv(name, sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "broker")]))
        with ready_python.forked_processes():
            script = os.environ["PYSPARK_DRIVER_PYTHON"]
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
        yield script


@contextmanager
def source(python: str) -> Iterator[tuple["subprocess.Popen[str]", socket.socket]]:
    """Start a stream's source as Spark does; yield the process and its connection to Spark.

    The source finds the connection only by the variable in its environment and its folder.
    """
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as spark:
        spark.bind(f"{folder}/spark")
        spark.listen()
        spark.settimeout(_DEADLINE_S)
        process = subprocess.Popen(
            [python, "-m", ready_python.MODULE],
            env=os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": "spark"},
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = spark.accept()
        with connection:
            connection.settimeout(_DEADLINE_S)
            yield process, connection


def test_what_is_no_source_of_a_stream_is_started(python: str) -> None:
    program = "import sys; print(sys.executable, sys.argv); sys.exit(7)"
    command = [python, "-c", program, "a b"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.stdout == f"{sys.executable} ['-c', 'a b']\n"
    assert done.returncode == 7


def test_a_source_writes_to_its_parents_files_and_both_end_together(python: str) -> None:
    with source(python) as (process, connection):
        assert int.from_bytes(connection.recv(4), "big") not in (0, process.pid)
        connection.close()  # the source waits for the Python release
        _, written = process.communicate(timeout=_DEADLINE_S)
    assert "EOFError" in written


def test_a_source_ends_when_its_parent_gets_a_signal(python: str) -> None:
    with source(python) as (process, connection):
        assert len(connection.recv(4)) == 4
        process.send_signal(signal.SIGTERM)
        assert connection.recv(1) == b""
        process.communicate(timeout=_DEADLINE_S)


def test_a_daemon_forks_workers_that_have_loaded_modules(python: str) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as spark:
        daemon = subprocess.Popen(
            [python, "-m", ready_python.DAEMON, "pyspark.sql.worker.plan_data_source_read"],
            env=os.environ
            | {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        spark.settimeout(_DEADLINE_S)
        spark.connect(daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big")))
        worker = int.from_bytes(spark.recv(4), "big")
        assert worker not in (0, daemon.pid)
        files = Path(f"/proc/{worker}/maps").read_text(encoding="utf-8")
        spark.close()
        daemon.communicate(timeout=_DEADLINE_S)  # the daemon ends with its stdin
    assert "/numba/" in files, "this worker was asked for nothing yet"
