"""The progress of a long command on stderr: rich's bar in a terminal, otherwise nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from klog_broker.cli.common.tables import rich_console

Advance = Callable[[int], None]
"""Called with the number of items (records, bytes or partitions) done since the last call."""


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Advance]:
    """Show a progress bar while the ``with`` block runs; ``total`` is None if it is unknown.

    No bar is shown without rich, or if stderr is not a terminal or has TERM=dumb.
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
    # rich must not redirect stdout, because the command's output may go into a pipe.
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _ignore(count: int) -> None:
    """Ignore the progress when no bar is shown."""
