"""Mutual exclusion, for the little that helper threads do to the same object at the same time."""

import threading
from contextlib import AbstractContextManager


def make_lock() -> AbstractContextManager[object]:
    """One thread at a time is inside; others wait. Not to be entered twice by the same one."""
    return threading.Lock()
