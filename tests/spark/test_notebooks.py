"""The notebooks, and the files of docs/testing-a-job.md: run as their readers run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repo.notebooks import IMAGES, MAX_PICTURE_BYTES, ROOT, ended, notebooks
from tests.support.spark.home import compiled_home

# One process runs all notebooks; on a busy machine that can take many minutes.
pytestmark = pytest.mark.timeout(3600)

PAGE = ROOT / "docs" / "testing-a-job.md"
TOO_SLOW_FOR_SPARK = "Timed out while waiting for the Python worker to connect back"
WITHOUT_SPARK = "04-testing-a-job"
"""The notebook that shows that its broker has imported no pyspark; a process runs it first."""
_DEADLINE_S = 550


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


def _python(
    arguments: list[str], folder: Path, deadline_s: int = _DEADLINE_S
) -> subprocess.CompletedProcess[str]:
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
        timeout=deadline_s,
        check=False,
    )


def _run_notebooks(paths: list[Path], here: Path, pictures: Path) -> dict[Path, str]:
    """Run notebooks in one process; return the output of each that failed.

    The notebooks behind one that failed run in another process. A notebook is run once more if
    Spark had too little time.
    """
    failed: dict[Path, str] = {}
    left, was_slow = list(paths), set[Path]()
    while left:
        arguments = ["-m", "tests.support.repo.notebooks", *map(str, left)]
        arguments += ["--pictures", str(pictures)]
        done = _python(arguments, here, _DEADLINE_S * len(left))
        output = done.stdout
        while left and f"{ended(left[0])}\n" in output:
            last = left.pop(0)
            output = output.partition(f"{ended(last)}\n")[2]
        if left and TOO_SLOW_FOR_SPARK in output and left[0] not in was_slow:
            was_slow.add(left[0])
        elif left or done.returncode != 0:
            failed[left.pop(0) if left else last] = output
    return failed


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def failed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pictures: Path
) -> dict[Path, str]:
    """The failed ones of the notebooks whose tests run now, and what they printed."""
    mine: list[Path] = [
        item.callspec.params["notebook"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function is test_a_notebook_runs_and_draws_what_the_docs_show
    ]
    mine.sort(key=lambda path: path.stem != WITHOUT_SPARK)
    here = tmp_path_factory.mktemp("here")
    found = _run_notebooks(mine, here, pictures)
    assert list(here.iterdir()) == []
    return found


@pytest.mark.parametrize("notebook", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws_what_the_docs_show(
    notebook: Path, failed: dict[Path, str], pictures: Path
) -> None:
    assert notebook not in failed, failed[notebook][-6_000:]
    drawn = sorted(path.name for path in pictures.glob(f"{notebook.stem}-*"))
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
