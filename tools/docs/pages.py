"""Writes generated pages, or compares them with the files of the checkout."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Pages = Mapping[str, Callable[[], str]]
"""The function that makes the text of a page, by the page's path from the top of the checkout."""


def print_pages(pages: Pages, arguments: Sequence[str], root: Path = ROOT) -> int:
    """Write the pages that are not current, or with ``--check`` only name them.

    Returns the exit code: 1 if ``--check`` found a page that is not current, 2 for other arguments.
    """
    if list(arguments) not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tools.docs [--check]\n")
        return 2
    stale = []
    for name, make in pages.items():
        path = root / name
        text = make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    if arguments and stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run ./dev python -m tools.docs\n")
        return 1
    return 0


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
