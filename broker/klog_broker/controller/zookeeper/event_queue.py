"""The queue of a controller's events: requests from brokers, and work that the controller adds.

The controller adds, for example, what follows from a broker's response to a controller request. An
interrupted event goes back to the front of the queue; if everything is read from ZooKeeper again,
only requests stay in the queue. A request that finds unexpected
data in ZooKeeper each time is given up after some attempts, because it would block the queue.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from klog_broker.controller.zookeeper.errors import WriteDenied
from klog_broker.controller.zookeeper.znode_writer import EventContext
from klog_broker.metadata.zookeeper.conversation import Steps
from klog_broker.metrics.controller import ControllerCounts
from pyspark_klog.errors import ErrorCode

_log = logging.getLogger("klog.controller")

TRIES = 3
"""A request is given up when it has made the controller read all of ZooKeeper this many times."""


@dataclass(slots=True, eq=False)
class ControllerEvent:
    """An event, carried out by `run`.

    `name` is the kind of the event in the metrics. `run` is called again if the registered brokers
    change during the event, and, for a request only, after the controller has read everything from
    ZooKeeper again. `refuse` answers a request that is not carried out with an error code; None
    means that the event is no request.
    """

    name: str
    run: Callable[[EventContext], Steps[None]]
    refuse: Callable[[ErrorCode], None] | None = None
    failures: int = 0
    queued_ms: int = 0


class EventQueue:
    """The events of a controller, first in, first out; one of them may be in progress."""

    def __init__(self, counts: ControllerCounts, now_ms: Callable[[], int]) -> None:
        """``now_ms`` is the monotonic clock, in ms."""
        self._counts = counts
        self._now_ms = now_ms
        self._waiting: deque[ControllerEvent] = deque()
        self._current: ControllerEvent | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: ControllerEvent) -> None:
        """Add an event at the end of the queue."""
        event.queued_ms = self._now_ms()
        self._waiting.append(event)

    def carry_out_next(self, work: EventContext) -> Steps[None]:
        """Carry out the first event of the queue.

        A request whose read or write the access list of a znode forbids is refused, because reading
        everything from ZooKeeper again would not help.
        """
        event = self._current = self._waiting.popleft()
        began_ms = self._now_ms()
        try:
            yield from event.run(work)
        except WriteDenied:
            if event.refuse is None:
                raise
            self._current = None
            event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._current = None
            waited_ms = began_ms - event.queued_ms
            self._counts.add_event(event.name, waited_ms, self._now_ms() - began_ms)

    def requeue_current(self) -> None:
        """Put the interrupted event, if any, back at the front of the queue."""
        event, self._current = self._current, None
        if event is not None:
            self._waiting.appendleft(event)

    def count_failure(self, why: Exception) -> None:
        """Count a failure of the event in progress; refuse a request after TRIES failures."""
        event = self._current
        if event is None or event.refuse is None:
            return
        event.failures += 1
        if event.failures >= TRIES:
            _log.error("gave up a broker's request after %d attempts: %s", TRIES, why)
            self._current = None
            event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def keep_requests(self) -> None:
        """Drop all events except requests, because everything was read from ZooKeeper again.

        The work of the dropped events is done again from the new state.
        """
        self._waiting = deque(each for each in self._waiting if each.refuse is not None)

    def refuse_all(self, code: ErrorCode) -> None:
        """Empty the queue, and answer all of its requests with the error `code`."""
        self.requeue_current()
        events, self._waiting = self._waiting, deque()
        for event in events:
            if event.refuse is not None:
                event.refuse(code)
