"""Commands whose output nobody reads to its end, as in `command | head`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_klog.closed_pipe import CLOSED_PIPE

_KLOG = [str(Path(sys.executable).with_name("klog"))]
_PYTHON = [sys.executable, "-m"]


@pytest.mark.parametrize(
    "command",
    [
        [*_PYTHON, "pyspark_klog"],
        [*_PYTHON, "pyspark_klog", "check"],
        [*_PYTHON, "pyspark_klog.warm"],
        [*_PYTHON, "pyspark_klog.testing.run_cluster", "--help"],
        [*_PYTHON, "klog_broker", "--help"],
        [*_PYTHON, "klog_broker.warm"],
        [*_KLOG, "--help"],
        [*_KLOG, "completion", "bash"],
    ],
    ids=lambda command: " ".join(command[1:]),
)
def test_a_command_ends_quietly_when_its_output_is_closed(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (CLOSED_PIPE, "")
