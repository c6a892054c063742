"""A shorter thread switch interval, so that the loop's thread gets to run soon while a helper
thread runs Python code."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_INTERVAL_S = 0.0005
_lock = threading.Lock()
_inside = 0
_before = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Limit the interpreter's switch interval to 0.5 ms (default: 5 ms) while any thread is in the
    `with` block of this function.

    When the loop's thread releases the interpreter's lock (GIL) for a system call, it waits up to
    one interval to get the lock back. So a shorter interval makes each system call of the loop
    faster.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_SWITCH_INTERVAL_S, _before))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_before)
