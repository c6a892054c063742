"""Notebooks without Jupyter: read, checked, and run as a program would run them.

`python -m tests.support.repo.notebooks NOTEBOOK ... [--pictures DIR]` runs the code cells of each
notebook, in order and in a namespace of the notebook's own, and prints the value of the last
expression of each cell. Figures that are open after a cell, and have a name
(`plt.subplots(num="lag")`), are saved as NOTEBOOK-NAME.png and closed, as Jupyter closes figures
that it has shown. `--pictures docs/images` makes those of the docs. The notebooks share a process,
and so Spark's JVM, which takes most of the time that one notebook needs. The first error ends the
process.
"""

import argparse
import ast
import json
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "notebooks"
IMAGES = ROOT / "docs" / "images"
MAX_PICTURE_BYTES = 60_000
PICTURE_COLOURS = 64
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""Metadata of a committed notebook: no facts about the machine on which it ran."""


@dataclass(frozen=True)
class Cell:
    """A cell; ``number`` counts all of them from 1."""

    number: int
    is_code: bool
    source: str


def notebooks() -> list[Path]:
    """The project's notebooks, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def cells_of(path: Path) -> list[Cell]:
    """The cells of a notebook."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return [
        Cell(number, cell["cell_type"] == "code", "".join(cell["source"]))
        for number, cell in enumerate(document["cells"], 1)
    ]


def canonical(document: dict[str, Any]) -> str:
    """The text of a notebook as it is committed: without outputs, counts and machines' names."""
    cells = []
    for number, cell in enumerate(document["cells"], 1):
        kept: dict[str, Any] = {"cell_type": cell["cell_type"]}
        if cell["cell_type"] == "code":
            kept["execution_count"] = None
        kept["id"] = f"cell-{number:02}"
        kept["metadata"] = {}
        if cell["cell_type"] == "code":
            kept["outputs"] = []
        kept["source"] = "".join(cell["source"]).strip("\n").splitlines(keepends=True)
        cells.append(kept)
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def run(path: Path, pictures: Path | None = None) -> dict[str, Any]:
    """Run the code cells of a notebook; return their namespace. Errors of a cell are raised."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    namespace: dict[str, Any] = {"__name__": "__main__", "__doc__": None}
    for cell in cells_of(path):
        if not cell.is_code:
            continue
        _execute(cell.source, f"{path.name}, cell {cell.number}", namespace)
        for name, data in _figures():
            if pictures is not None:
                (pictures / f"{path.stem}-{name}.png").write_bytes(data)
    return namespace


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    tree = ast.parse(source, name)
    # Let tracebacks quote the lines of cells, too.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
    exec(compile(tree, name, "exec"), namespace)
    # Like a prompt: the value of the last expression is printed, unless it is None.
    exec(compile(ast.Interactive(last), name, "single"), namespace)
    sys.stdout.flush()


def _figures() -> Iterator[tuple[str, bytes]]:
    """The open figures as PNG of few colours, by name; they are closed."""
    if "matplotlib" not in sys.modules:
        return
    import io

    from matplotlib import pyplot as plt
    from PIL import Image

    for number in plt.get_fignums():
        figure = plt.figure(number)
        drawn, small = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, dpi=100)
        plt.close(figure)
        reduced = Image.open(drawn).convert("RGB").quantize(PICTURE_COLOURS)
        reduced.save(small, format="PNG", optimize=True)
        if figure.get_label():
            yield str(figure.get_label()), small.getvalue()


def _has_spark() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def ended(path: Path) -> str:
    """The line that is printed after a notebook has run without an error."""
    return f"{path.name} has run to its end"


def main(arguments: Sequence[str]) -> None:
    """Run notebooks one after another, each with the environment variables of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", type=Path, nargs="+")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args(arguments)
    environment = dict(os.environ)
    for path in given.notebooks:
        run(path, given.pictures)
        if _has_spark():
            raise RuntimeError(f"{path.name} left Spark running; the next one would take it over")
        print(ended(path), flush=True)
        os.environ.clear()
        os.environ.update(environment)


if __name__ == "__main__":
    main(sys.argv[1:])
