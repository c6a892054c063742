"""Ends a command quietly when nobody reads its output any more, as in ``command | head``."""

import contextlib
import os
import sys
from collections.abc import Iterator

CLOSED_PIPE = 128 + 13
"""The exit code of a command that wrote to a closed pipe: a shell shows this number for Unix tools,
which the signal SIGPIPE (13) ends. Python ignores SIGPIPE, because sockets would raise it, too."""


@contextlib.contextmanager
def quiet_on_closed_pipe() -> Iterator[None]:
    """Run a whole command: if it writes to a stdout that is closed, exit with `CLOSED_PIPE` and
    without a traceback."""
    stdout = sys.stdout
    try:
        try:
            yield
        finally:
            if stdout is not None:
                stdout.flush()
    except BrokenPipeError:
        pass
    except SystemExit:
        # click catches the error, puts another object in the place of stdout, and exits.
        if sys.stdout is stdout:
            raise
    else:
        return
    # The interpreter flushes stdout once more when it exits.
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stdout.fileno())
    sys.exit(CLOSED_PIPE)
