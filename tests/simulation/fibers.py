"""Runs blocking code in virtual time: in a thread of its own, while all other code stands still."""

import threading
from collections.abc import Callable
from contextlib import suppress


class Vanished(BaseException):
    """The process in which this code ran has ended. No `except Exception` catches it."""


class Fiber:
    """``go_on`` runs ``work`` up to its next ``wait``; two threads never run at the same time."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.is_over = False
        self._work = work
        self._error: BaseException | None = None
        self._has_vanished = False
        self._may_run = threading.Semaphore(0)
        self._has_paused = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def go_on(self) -> None:
        """Run ``work`` until it waits or is over; raise the error that ends it."""
        if self.is_over:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._may_run.release()
        self._has_paused.acquire()
        if self.is_over:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Called by ``work``: let other code run until the next ``go_on``."""
        self._has_paused.release()
        self._may_run.acquire()
        if self._has_vanished:
            raise Vanished

    def vanish(self) -> None:
        """End ``work``: its ``wait`` raises Vanished instead of returning."""
        self._has_vanished = True
        if self._thread is None or threading.current_thread() is self._thread:
            return
        # The dead process finds its disk gone; nobody needs its errors.
        with suppress(BaseException):
            self.go_on()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        self.is_over = True
        self._has_paused.release()
