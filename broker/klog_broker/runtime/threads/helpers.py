"""Threads for the calls that block: fsync, read-ahead of cold pages, deleting of files.

What runs there is system calls, kernels and codecs that release the GIL, never Python work for each
record: one CPU-bound Python thread beside the loop starves it. Their outcome comes back to the
loop's thread through its queue.
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
    """Runs blocking work beside the loop. A simulation runs it in the loop, when its seed says."""

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Runs ``work`` in a helper, then ``on_done(result, error)`` in the loop's thread.

        An error means that there is no result. Works are begun in order.
        """

    def close(self) -> None:
        """Lets what was submitted finish, then ends the threads. Blocks.

        What is submitted later is dropped: the broker stops, as it might at any other moment.
        """


class HelperThreads:
    """A few threads, started when first needed and at most ``threads``.

    ``niceness`` lets others go before them, this process's loop too, where there is too little CPU
    (Linux only: elsewhere a thread has no priority of its own).
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
            except BaseException as error:  # for on_done, and not for the thread
                # No variable of this frame may keep the error: the error's traceback has the frame,
                # and this cycle would hold the files of the work until a garbage collection.
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
            # While the thread waits it must not hold the work's files or its result.
            del run


class HelpersOfAStart:
    """Works here and now until it has `helpers` to give the work to: nobody waits at the start."""

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
