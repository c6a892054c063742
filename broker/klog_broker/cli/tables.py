"""Tables on stdout: aligned text, or rich's where it is installed and stdout is a terminal."""

import sys
from collections.abc import Sequence

import click

Row = tuple[str, ...]


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print the rows under the columns' names; all cells are aligned to the left."""
    if sys.stdout.isatty() and _print_with_rich(columns, rows):
        return
    widths = [
        max(len(columns[index]), *(len(row[index]) for row in rows))
        if rows
        else len(columns[index])
        for index in range(len(columns))
    ]
    for row in (tuple(name.upper() for name in columns), *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_with_rich(columns: Sequence[str], rows: Sequence[Row]) -> bool:
    """Print with rich; returns False without it (the extra `cli` installs it)."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(*columns)
    for row in rows:
        # As Text, because rich would take a value in brackets for markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
    return True
