"""An event loop in a thread of its own."""

import logging
import threading

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import default_poller
from klog_broker.runtime.system.clock import Clock

_log = logging.getLogger("klog.app")


class LoopThread:
    """Runs an event loop in a daemon thread from `start` to `stop`."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.loop = Loop(clock, default_poller())
        """The loop. While the thread runs, other threads may only call ``post`` and ``stop``."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. An exception from a callback is logged and ends the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Wait until the loop has ended its turn and the thread has ended."""
        self.loop.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.loop.run()
        except Exception:
            _log.critical("the thread %s failed: this is a bug", self._thread.name, exc_info=True)
