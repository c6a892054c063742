"""Waiting for something to become true: the only place in the tests that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1


def eventually(
    condition: Callable[[], T], deadline_s: float = 10.0, what: str = "the condition"
) -> T:
    """Calls ``condition`` until it returns something true, and returns that.

    An AssertionError that it raises counts as "not yet". After ``deadline_s`` the last such error,
    or an AssertionError that names ``what``, is raised.
    """
    end = time.monotonic() + deadline_s
    pause_s = _FIRST_PAUSE_S
    failure: AssertionError | None = None
    while True:
        try:
            result = condition()
            if result:
                return result
            failure = None
        except AssertionError as error:
            failure = error
        if time.monotonic() >= end:
            message = f"{what} did not come true within {deadline_s:g} s"
            raise AssertionError(message) from failure
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
