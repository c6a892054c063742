"""Code that blocks, in virtual time: it has a thread, and runs only while everybody else waits."""

import threading
from collections.abc import Callable
from contextlib import suppress


class Vanished(BaseException):
    """The process in which this code ran is gone. No `except Exception` holds it up."""


class Fiber:
    """``go_on`` runs ``work`` up to its next ``wait``; never do two threads run at once."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.is_over = False
        self._work = work
        self._error: BaseException | None = None
        self._has_vanished = False
        self._may_run = threading.Semaphore(0)
        self._has_paused = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def go_on(self) -> None:
        """Until it waits, or is over. What comes out of ``work`` comes out of here."""
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
        """For ``work``: everybody else goes on, until the next ``go_on``."""
        self._has_paused.release()
        self._may_run.acquire()
        if self._has_vanished:
            raise Vanished

    def vanish(self) -> None:
        """It never goes on."""
        self._has_vanished = True
        if self._thread is None or threading.current_thread() is self._thread:
            return
        # A dead process finds its disk gone, and tells nobody.
        with suppress(BaseException):
            self.go_on()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        self.is_over = True
        self._has_paused.release()
