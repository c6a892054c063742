"""Helper threads for calls that block: fsync, reading pages ahead into the page cache, deleting of
files.

Helper threads mostly run system calls, compiled functions and codecs that release the GIL, because
one CPU-bound Python thread starves the loop. The validation of batches, which may run Python code
for each record, uses short_switch_interval (event_loop/switching.py). The loop's thread receives
each outcome through the loop's queue of posted callbacks.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from klog_broker.runtime.event_loop.loop import Loop

T = TypeVar("T")


class Helpers(Protocol):
    """Runs blocking work asynchronously, in helper threads.

    A simulation in the tests runs the work in the loop's thread, at moments that its random numbers
    decide.
    """

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run ``work`` in a helper, then ``on_done(result, error)`` in the loop's thread.

        If ``work`` raises, ``on_done`` receives None and the exception. Calls of ``work`` begin in
        the order in which they were submitted.
        """

    def close(self) -> None:
        """Finish all submitted work, then end the threads. Blocks.

        Work that is submitted after ``close`` is dropped: the broker is stopping, and a crash at
        this moment would drop the work as well.
        """


class HelperThreads:
    """Up to ``threads`` helper threads, each started when work finds no idle thread.

    On Linux, a positive ``niceness`` lowers the priority of the threads: if CPU is short, other
    threads, such as the loop, run first. Other systems have no priority for single threads.
    """

    def __init__(self, loop: Loop, threads: int, name: str, *, niceness: int = 0) -> None:
        self._loop = loop
        self._limit = threads
        self._name = name
        self._niceness = niceness
        self._threads: list[threading.Thread] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._closed = False

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # on_done handles the error; the thread goes on
                # No variable of this frame may keep the error: the error's traceback refers to the
                # frame, and the cycle would keep the work's files until a garbage collection.
                self._loop.post(partial(on_done, None, error))
            else:
                self._loop.post(partial(on_done, result, None))

        with self._changed:
            if self._closed:
                return
            self._waiting.append(run)
            if self._idle < len(self._waiting) and len(self._threads) < self._limit:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        if self._niceness and sys.platform == "linux":
            thread_id = threading.get_native_id()
            priority = os.getpriority(os.PRIO_PROCESS, thread_id)
            os.setpriority(os.PRIO_PROCESS, thread_id, priority + self._niceness)
        while True:
            with self._changed:
                self._idle += 1
                while not self._waiting and not self._closed:
                    self._changed.wait()
                self._idle -= 1
                if not self._waiting:
                    return
                run = self._waiting.popleft()
            run()
            # Drop the reference: a waiting thread must not keep the work's files or its result.
            del run


class StartUpHelpers:
    """Helpers for the broker's start-up: runs work in the caller's thread until `helpers` is set,
    and passes later work to `helpers`.

    During start-up the loop serves no requests yet, so blocking its thread delays no client.
    """

    def __init__(self) -> None:
        self.helpers: Helpers | None = None

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        if self.helpers is not None:
            self.helpers.submit(work, on_done)
            return
        try:
            result = work()
        except Exception as error:
            on_done(None, error)
        else:
            on_done(result, None)

    def close(self) -> None:
        if self.helpers is not None:
            self.helpers.close()
