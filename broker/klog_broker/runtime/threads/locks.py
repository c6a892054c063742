"""Locks for the few objects that helper threads and the loop change at the same time."""

import threading
from contextlib import AbstractContextManager


def make_lock() -> AbstractContextManager[object]:
    """Return a lock, used by ``with``. The lock is not reentrant: a thread that enters the lock
    twice deadlocks."""
    return threading.Lock()
