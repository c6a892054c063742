"""How far a long command has come, on stderr: rich's bar in a terminal, nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from klog_broker.cli.common.tables import rich_console

Advance = Callable[[int], None]
"""Tells that so many more are done."""


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Advance]:
    """A bar that goes with the block; ``total`` is None where nobody knows how much there is.

    Nothing is shown without rich, or if nobody looks at stderr in a terminal.
    """
    console = rich_console(sys.stderr)
    if console is None:
        yield _ignore
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # stdout stays as it is: what a command prints there may be piped on.
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _ignore(count: int) -> None:
    """Where nobody looks."""
