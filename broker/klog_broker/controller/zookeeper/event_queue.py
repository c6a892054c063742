"""What a controller has still to do, in its order: what brokers ask for, and what follows from what
they answer.

An event that was interrupted is begun again, and those behind it wait. So one that always finds
ZooKeeper otherwise than it must be is given up: nothing else would ever be carried out.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from klog_broker.controller.zookeeper.errors import WriteDenied
from klog_broker.controller.zookeeper.znode_writer import Work
from klog_broker.metadata.zookeeper.conversation import Steps
from pyspark_klog.errors import ErrorCode

_log = logging.getLogger("klog.controller")

TRIES = 3
"""So often everything is read anew for one event."""


@dataclass(slots=True, eq=False)
class Event:
    """`run` may be begun again. `refuse` answers a request that is not carried out."""

    run: Callable[[Work], Steps[None]]
    refuse: Callable[[ErrorCode], None] | None = None
    failures: int = 0


class EventQueue:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque()
        self._current: Event | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> None:
        """Carry it out after all that wait."""
        self._waiting.append(event)

    def carry_out_next(self, work: Work) -> Steps[None]:
        """Carry out the first that waits. A request that an access list forbids is refused: to read
        everything anew would not help."""
        event = self._current = self._waiting.popleft()
        try:
            yield from event.run(work)
        except WriteDenied:
            if event.refuse is None:
                raise
            self._current = None
            event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._current = None

    def put_back(self) -> None:
        """The event that was interrupted is still to be carried out."""
        event, self._current = self._current, None
        if event is not None:
            self._waiting.appendleft(event)

    def fail(self, why: Exception) -> None:
        """The event that was interrupted has found ZooKeeper otherwise than it must be."""
        event = self._current
        if event is None or event.refuse is None:
            return
        event.failures += 1
        if event.failures >= TRIES:
            _log.error("a request is given up, which was tried %d times: %s", TRIES, why)
            self._current = None
            event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def keep_requests(self) -> None:
        """All is read anew, of which all else follows once more."""
        self._waiting = deque(each for each in self._waiting if each.refuse is not None)

    def refuse_all(self, code: ErrorCode) -> None:
        """Nothing of this is carried out here."""
        self.put_back()
        events, self._waiting = self._waiting, deque()
        for event in events:
            if event.refuse is not None:
                event.refuse(code)
