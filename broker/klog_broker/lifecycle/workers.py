"""The worker threads of a broker, besides the thread of its event loop."""

from collections.abc import Callable
from typing import NamedTuple

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers, HelperThreads
from klog_broker.runtime.threads.parallel_work import (
    ParallelWork,
    ThreadedParallelWork,
    run_in_order,
)

# The number of helper threads for blocking work, such as fsync, read-ahead and deleting. There are
# several threads, so that a slow disk does not delay the work on other disks.
_HELPER_THREADS = 8
_CLEANER_NICENESS = 10


class Workers(NamedTuple):
    """Thread pools for blocking work."""

    helpers: Helpers
    cleaner_helpers: Helpers
    """The helper threads of the log cleaner. On Linux they have lower CPU priority than the event
    loop's thread and the other helper threads."""
    parallel_work: ParallelWork
    """Runs the loading of logs (start-up) and their closing (shutdown), usually in parallel
    threads; :func:`run_in_order` has no threads."""

    def close(self) -> None:
        """Wait until all work that the helper threads were given is finished, and end them.
        Blocks."""
        self.cleaner_helpers.close()
        self.helpers.close()


def make_workers(
    loop: Loop, make_helpers: Callable[[Loop], Helpers] | None, parallel_work: ParallelWork | None
) -> Workers:
    """Create the worker threads, or use replacements for the thread pools.

    ``make_helpers`` replaces the helper threads, and ``parallel_work`` the threads that load and
    close logs. With ``make_helpers`` this function makes no threads, and without ``parallel_work``
    logs are then loaded in the caller's thread; simulations use this.
    """
    if make_helpers is not None:
        helpers = make_helpers(loop)
        return Workers(helpers, helpers, parallel_work or run_in_order)
    return Workers(
        HelperThreads(loop, _HELPER_THREADS, "klog-helper"),
        HelperThreads(loop, _HELPER_THREADS, "klog-cleaner", niceness=_CLEANER_NICENESS),
        parallel_work or ThreadedParallelWork(loop, "klog-loading"),
    )
