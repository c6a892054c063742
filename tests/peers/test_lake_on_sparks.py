"""pyspark_klog.lake on older releases of Spark: the tests of tests/spark run on each of them."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.peers.test_delta_and_iceberg import ICEBERGS_SPARK
from tests.support.package_environment import ROOT, python_with

pytestmark = pytest.mark.timeout(900)

_OLDEST = "4.0.0" if sys.version_info < (3, 14) else "4.1.0"
_NEWEST_OLD = "4.2.0"


@pytest.mark.parametrize("release", [_OLDEST, ICEBERGS_SPARK, _NEWEST_OLD])
def test_a_union_and_a_table_are_the_same_on_each_spark(release: str) -> None:
    environment = os.environ.copy()
    environment.pop("SPARK_HOME", None)
    if metadata.version("pyspark") != release:
        # Only PySpark comes from the other environment, whose modules are found first.
        python = python_with(f"pyspark=={release}", "--no-binary=pyspark")
        [packages] = (python.parent.parent / "lib").glob("python3*/site-packages")
        environment["PYTHONPATH"] = os.pathsep.join([str(packages), str(ROOT)])
    show = "import pyspark; print(pyspark.__version__)"
    found = subprocess.run(
        [sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == release
    tests = str(Path("tests") / "spark" / "test_lake.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
