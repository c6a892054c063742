"""An event loop in a background thread, for clients that work while their callers do not wait."""

import heapq
import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from pyspark_klog.client import clock
from pyspark_klog.client.errors import ClientError
from pyspark_klog.client.transport.event_loop import READABLE, WRITABLE

_log = logging.getLogger(__name__)

Action = Callable[[], None]


class _Timer:
    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class ThreadLoop:
    """An `EventLoop` in a daemon thread of its own.

    Callbacks run in this thread, one after the other. Other threads may call only `post`, `stop`
    and `is_running`. An exception from a callback is a bug: it is logged, ends the loop, and is
    passed to ``on_failure`` in the loop's thread.
    """

    def __init__(
        self,
        name: str,
        *,
        on_failure: Callable[[BaseException], None] = lambda _error: None,
        now_ms: Callable[[], int] = clock.monotonic_ms,
    ) -> None:
        self._read_time_ms = now_ms
        self._time_ms = now_ms()
        self._on_failure = on_failure
        self._selector = selectors.DefaultSelector()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, _Timer]] = []
        self._timer_count = 0
        self._posted: deque[Action] = deque()
        self._soon: deque[Action] = deque()
        self._sends: deque[Action] = deque()
        self._is_stopping = False
        self._wakes, self._wake = socket.socketpair()
        for each in (self._wakes, self._wake):
            each.setblocking(False)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def post(self, action: Action) -> None:
        """Run ``action`` in the loop's thread, in the order of posting. Any thread may call this.
        An action that is posted after `stop` may never run.

        :raises ClientError: in a process that was forked after the loop was made: the thread does
            not exist there
        """
        self.check_process()
        self._posted.append(action)
        self._wake_up()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the loop after the posted actions, and wait for the end of the thread (None: without
        limit). Return whether the thread has ended."""
        if os.getpid() != self._process_id:
            return True
        self._is_stopping = True
        self._wake_up()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def check_process(self) -> None:
        """Check that this is the process in which the loop was made.

        :raises ClientError: after a fork
        """
        if os.getpid() != self._process_id:
            raise ClientError(
                "this client was made before the process was forked, and its thread exists only in "
                "the parent process: make a new client after the fork"
            )

    def _wake_up(self) -> None:
        with suppress(BlockingIOError, OSError):  # a full socket wakes the thread as well
            self._wake.send(b"\0")

    # --- EventLoop -------------------------------------------------------------------------------
    def now_ms(self) -> int:
        """Return the time in ms at which the current turn began, by a clock that never goes
        back."""
        return self._time_ms

    def call_at(self, deadline_ms: int, action: Action) -> _Timer:
        """Run ``action`` once, in the first turn at or after ``deadline_ms``."""
        timer = _Timer(action)
        self._timer_count += 1
        heapq.heappush(self._timers, (deadline_ms, self._timer_count, timer))
        return timer

    def call_soon(self, action: Action) -> None:
        """Run ``action`` in the next turn, which does not wait for events; in the same turn if a
        timer calls this."""
        self._soon.append(action)

    def call_at_send(self, action: Action) -> None:
        """Run ``action`` at the end of the same turn."""
        self._sends.append(action)

    def register(self, fd: int, interest: int, callback: Callable[[int], None]) -> None:
        """Call ``callback(readiness)`` in each turn in which ``fd`` is ready."""
        self._selector.register(fd, _events(interest))
        self._callbacks[fd] = callback

    def modify(self, fd: int, interest: int) -> None:
        """Change the readiness to wait for."""
        self._selector.modify(fd, _events(interest))

    def unregister(self, fd: int) -> None:
        """End the callbacks for ``fd``, also those of the current turn."""
        del self._callbacks[fd]
        self._selector.unregister(fd)

    # --- the thread ------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
            self._run_queue(self._posted)
        except BaseException as error:
            _log.exception("the client's thread has failed, the client cannot be used any more")
            self._on_failure(error)
        finally:
            self._selector.close()
            self._wakes.close()
            self._wake.close()

    def _turn(self) -> None:
        ready = self._selector.select(self._wait_s())
        self._time_ms = max(self._time_ms, self._read_time_ms())
        while self._timers and self._timers[0][0] <= self._time_ms:
            *_, timer = heapq.heappop(self._timers)
            if timer.action is not None:
                timer.action()
        self._run_queue(self._posted)
        self._run_queue(self._soon)
        for key, events in ready:
            if key.fd == self._wakes.fileno():
                with suppress(BlockingIOError):
                    self._wakes.recv(4096)
            elif (callback := self._callbacks.get(key.fd)) is not None:
                callback(_readiness(events))
        while self._sends:
            self._sends.popleft()()

    def _wait_s(self) -> float | None:
        if self._posted or self._soon or self._is_stopping:
            return 0
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(self._timers[0][0] - self._read_time_ms(), 0) / 1000

    @staticmethod
    def _run_queue(queue: deque[Action]) -> None:
        # An action that adds another one to the queue does not run it in this turn.
        for _ in range(len(queue)):
            queue.popleft()()


def _events(interest: int) -> int:
    return (selectors.EVENT_READ if interest & READABLE else 0) | (
        selectors.EVENT_WRITE if interest & WRITABLE else 0
    )


def _readiness(events: int) -> int:
    return (READABLE if events & selectors.EVENT_READ else 0) | (
        WRITABLE if events & selectors.EVENT_WRITE else 0
    )
