"""The notebooks, and the files of docs/testing-a-job.md: run as their readers run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repo.notebooks import IMAGES, MAX_PICTURE_BYTES, ROOT, notebooks
from tests.support.spark.home import compiled_home

# Each starts a Spark of its own; on a busy machine that alone can take minutes.
pytestmark = pytest.mark.timeout(1200)

PAGE = ROOT / "docs" / "testing-a-job.md"
TOO_SLOW_FOR_SPARK = "Timed out while waiting for the Python worker to connect back"


def _run(arguments: list[str], folder: Path) -> str:
    """Run Python in a folder of its own; return its output. No process may stay behind.

    Spark gives the Python of a stream's source ten seconds to start. If a busy machine took longer,
    and Spark reports this, run the whole program once more.
    """
    done = _python(arguments, folder)
    if done.returncode != 0 and TOO_SLOW_FOR_SPARK in done.stdout:
        done = _python(arguments, folder)
    assert done.returncode == 0, done.stdout[-6_000:]
    return done.stdout


def _python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "broker")]),
        "MPLBACKEND": "Agg",
        "SPARK_HOME": str(compiled_home()),  # only quicker
    }
    # Remove the variables that `./dev` sets, because a reader may not have them.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        environment.pop(name, None)
    if " " in sys.executable:  # Spark trips over spaces
        environment["PYSPARK_PYTHON"] = "python"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=550,
        check=False,
    )


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws_what_the_docs_show(notebook: Path, tmp_path: Path) -> None:
    here, pictures, temporary = tmp_path / "here", tmp_path / "pictures", tmp_path / "temporary"
    for folder in (here, pictures, temporary):
        folder.mkdir()
    arguments = ["-m", "tests.support.repo.notebooks", str(notebook), "--pictures", str(pictures)]
    _run(arguments, here)
    assert list(here.iterdir()) == []
    drawn = sorted(path.name for path in pictures.iterdir())
    assert drawn == sorted(path.name for path in IMAGES.glob(f"{notebook.stem}-*.png"))
    assert all(0 < (pictures / name).stat().st_size < MAX_PICTURE_BYTES for name in drawn)


@pytest.mark.parity("beyond: 9 embedded broker")
def test_the_files_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    files = re.findall(r"```python\n(# (\w+\.py)\b.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(files) == PAGE.read_text("utf-8").count("```python")
    for text, name in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    printed = _run(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)], tmp_path)
    tests = sum(text.count("\ndef test_") for text, _ in files)
    assert f"{tests} passed" in printed
