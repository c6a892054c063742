"""Tables on stdout: aligned text, or rich's where it is installed and stdout is a terminal."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Cell = str | int | float | None
"""A number is aligned to the right, one with a fraction has two digits of it; None, for what there
is not, is shown as ``-``."""
Row = tuple[Cell, ...]

NOTHING = "-"


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print the rows under the columns' names.

    In a terminal with rich's borders; colours go with NO_COLOR, borders, too, with TERM=dumb.
    """
    console = rich_console(sys.stdout)
    if console is not None:
        console.print(rich_table(columns, rows))
        return
    texts = [[name.upper() for name in columns], *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in texts) for index in range(len(columns))]
    are_numbers = _are_numbers(columns, rows)
    for line in texts:
        cells = (
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, are_numbers, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def rich_console(stream: TextIO) -> "Console | None":
    """rich's way to write to a stream, if it is a terminal that knows more than lines of text.

    None, too, where rich is not installed: the extra `cli` brings it.
    """
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=stream)
    return None if console.is_dumb_terminal else console


def rich_table(columns: Sequence[str], rows: Sequence[Row]) -> "Table":
    """The table as rich's, which must be installed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold cyan")
    for name, is_number in zip(columns, _are_numbers(columns, rows), strict=True):
        # Folded, not cut: what is shown can be copied as a whole.
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # As Text, because rich would take a value in brackets for markup.
        table.add_row(*(Text(_text(cell)) for cell in row))
    return table


def _are_numbers(columns: Sequence[str], rows: Sequence[Row]) -> list[bool]:
    """By column, whether a number is among its cells."""
    return [
        any(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))
    ]


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.2f}"
    return NOTHING if cell is None else shown(str(cell))


def shown(text: str) -> str:
    """Words of somebody else, as a client's own name, without anything that a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
