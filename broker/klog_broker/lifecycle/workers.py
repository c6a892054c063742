"""The threads of a broker beside its loop."""

from collections.abc import Callable
from typing import NamedTuple

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers, HelperThreads
from klog_broker.runtime.threads.parallel_work import LoopsThreads, SideBySide, one_after_another

# Threads for fsync, read-ahead and deleting: so many that a slow disk does not delay another one.
_HELPER_THREADS = 8
_CLEANER_NICENESS = 10


class Workers(NamedTuple):
    """Who does what blocks."""

    helpers: Helpers
    of_cleaner: Helpers
    """What nobody waits for comes after the loop and its flushes where there is too little CPU."""
    side_by_side: SideBySide
    """For the start and the end, when all logs are to be gone through."""

    def close(self) -> None:
        """Lets them finish what was begun. Blocks."""
        self.of_cleaner.close()
        self.helpers.close()


def workers_of(
    loop: Loop, make_helpers: Callable[[Loop], Helpers] | None, side_by_side: SideBySide | None
) -> Workers:
    """Threads, or what is given instead: who gives helpers of his own has no threads."""
    if make_helpers is not None:
        helpers = make_helpers(loop)
        return Workers(helpers, helpers, side_by_side or one_after_another)
    return Workers(
        HelperThreads(loop, _HELPER_THREADS, "klog-helper"),
        HelperThreads(loop, _HELPER_THREADS, "klog-cleaner", niceness=_CLEANER_NICENESS),
        side_by_side or LoopsThreads(loop, "klog-loading"),
    )
