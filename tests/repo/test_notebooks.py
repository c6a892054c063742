"""The notebooks as they are committed: without outputs, and each shown in the documents."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.repo.notebooks import (
    IMAGES,
    MAX_PICTURE_BYTES,
    ROOT,
    canonical,
    cells_of,
    ended,
    main,
    notebooks,
    run,
)

NOTEBOOKS = pytest.mark.parametrize("notebook", notebooks(), ids=lambda path: path.stem)
LONGEST_CELL = 40


def _document(*sources: str) -> dict[str, Any]:
    return {"cells": [{"cell_type": "code", "source": source} for source in sources]}


def _written(folder: Path, *sources: str) -> Path:
    path = folder / "n.ipynb"
    path.write_text(canonical(_document(*sources)), encoding="utf-8")
    return path


@NOTEBOOKS
def test_a_notebook_is_committed_without_outputs(notebook: Path) -> None:
    text = notebook.read_text(encoding="utf-8")
    assert text == canonical(json.loads(text)), "run: Clear All Outputs"


@NOTEBOOKS
def test_a_notebook_begins_with_words_and_has_short_cells(notebook: Path) -> None:
    cells = cells_of(notebook)
    assert not cells[0].is_code and cells[0].source.startswith("# ")
    long = [cell.number for cell in cells if len(cell.source.splitlines()) > LONGEST_CELL]
    assert long == []
    assert any("assert " in cell.source for cell in cells if cell.is_code)


@NOTEBOOKS
def test_a_notebook_sets_the_python_of_sparks_workers(notebook: Path) -> None:
    code = [cell.source for cell in cells_of(notebook) if cell.is_code]
    assert 'os.environ.setdefault("PYSPARK_PYTHON", sys.executable)' in code[0]
    assert all(ast.parse(source) for source in code)


@NOTEBOOKS
def test_a_notebook_and_its_images_are_in_the_documents(notebook: Path) -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert f"../notebooks/{notebook.name}" in page
    for picture in IMAGES.glob(f"{notebook.stem}-*.png"):
        assert f"(images/{picture.name})" in page
        assert picture.stat().st_size < MAX_PICTURE_BYTES


def test_every_image_is_of_an_existing_notebook_or_made_elsewhere() -> None:
    names = [path.stem for path in notebooks()]
    assert len(names) == 7
    elsewhere = {"flights.png", "klog-commands.svg", "latency.png", "paper.svg", "dashboard.png"}
    pictures = [path.name for path in IMAGES.iterdir() if path.name not in elsewhere]
    assert pictures
    assert [p for p in pictures if not any(p.startswith(f"{name}-") for name in names)] == []


def test_cells_share_a_namespace_and_show_their_last_expression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = run(_written(tmp_path, "x = 20\nNone", "def f():\n    return x + 1", "x\nf()"))
    assert namespace["x"] == 20
    assert capsys.readouterr().out == "21\n"


def test_what_a_cell_raises_names_the_cell(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run(_written(tmp_path, "x = 1", "y = x\ny / 0\ny"))
    assert "n.ipynb, cell 2" in str(raised.traceback[-1].path)
    assert raised.traceback[-1].lineno == 1


def test_notebooks_of_one_process_share_no_names_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    sources = (
        'import os\nx = 1\nos.environ["KLOG_OF_THE_FIRST"] = "1"',
        'import os\nassert "x" not in globals()\nassert "KLOG_OF_THE_FIRST" not in os.environ',
        "x / 0",
    )
    paths = []
    for name, source in zip("abc", sources, strict=True):
        (tmp_path / name).mkdir()
        paths.append(_written(tmp_path / name, source).rename(tmp_path / f"{name}.ipynb"))
    with pytest.raises(NameError):
        main([str(path) for path in paths])
    assert capsys.readouterr().out.splitlines() == [ended(path) for path in paths[:2]]


def test_figures_with_a_name_are_saved(tmp_path: Path) -> None:
    draw = (
        "from matplotlib import pyplot as plt\nfigure, axes = plt.subplots({})\naxes.plot([1, 2])"
    )
    notebook = _written(tmp_path, draw.format('num="up"'), draw.format(""))
    run(notebook, tmp_path)
    assert [path.name for path in tmp_path.glob("*.png")] == ["n-up.png"]


def test_canonical_drops_what_a_run_leaves() -> None:
    document = _document("x")
    cell = document["cells"][0]
    cell |= {"outputs": [{"output_type": "stream"}], "execution_count": 3, "metadata": {"a": 1}}
    document["metadata"] = {"kernelspec": {"name": "mine"}, "language_info": {"version": "3.11.7"}}
    assert canonical(document) == canonical(_document("x"))
