"""Tables on stdout: aligned text, or rich's tables if rich is installed and stdout is a
terminal."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Cell = str | int | float | None
"""A number is aligned to the right, and a float is shown with two digits after the point. A cell
without a value, None, is shown as ``-``."""
Row = tuple[Cell, ...]

NOTHING = "-"


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print the rows below the columns' names.

    In a terminal with rich the table has borders and colours: NO_COLOR turns colours off, TERM=dumb
    also borders.
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
    """Return rich's console for a stream, if the stream is a terminal that can do more than print
    lines.

    Return None for other streams, and if rich is not installed: the extra `cli` installs it.
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
    """Return the table as a rich table; rich must be installed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold cyan")
    for name, is_number in zip(columns, _are_numbers(columns, rows), strict=True):
        # Fold a long value onto several lines and do not truncate it, so that a whole value can be
        # copied.
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Each cell is a Text, because rich would interpret brackets in a str as markup.
        table.add_row(*(Text(_text(cell)) for cell in row))
    return table


def _are_numbers(columns: Sequence[str], rows: Sequence[Row]) -> list[bool]:
    """Return for each column whether it contains numbers."""
    return [
        any(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))
    ]


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:.2f}"
    return NOTHING if cell is None else shown(str(cell))


def shown(text: str) -> str:
    """Return text that klog has not written, such as a client's name, with its control characters
    escaped, so that the terminal does not interpret them."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
