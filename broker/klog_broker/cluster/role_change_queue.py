"""The queue of the controller's requests to this broker, which are carried out one by one.

Requests of an earlier controller, and requests with an older broker epoch than this broker's, are
rejected. A request with a broker epoch that this broker does not know yet closes its connection,
and the controller sends the request again.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pyspark_klog.errors import ErrorCode

UNKNOWN_EPOCH_TEXT = (
    "this broker does not know its own epoch yet, and accepts no controller requests"
)
_NEVER = (-1, -1)


class QueuedRequest(NamedTuple):
    """A controller's request. The queue calls one of `carry_out`, `refuse` and `close`, once."""

    controller_epoch: int
    broker_epoch: int
    connection_number: int
    """The number of the connection on which the request came; a later connection has a greater
    number."""
    carry_out: Callable[[Callable[[], None]], None]
    """Carries the request out, and calls the callback that it gets once the request is answered, or
    its connection is closed instead."""
    refuse: Callable[[ErrorCode], None]
    close: Callable[[str], None]
    """Closes the connection on which the request came, so that the controller sends the request
    again."""


class ControllerRequestQueue:
    """The queue of the controller's requests to this broker; called only in the event loop's
    thread.

    `broker_epoch` returns this broker's epoch, -1 while the broker is not registered. The epochs of
    a request are checked when its turn comes, because a newer controller may have sent requests
    meanwhile, and this broker may have registered again.
    """

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self.controller_epoch = 0
        """The highest controller epoch of all accepted requests."""
        self.on_full_metadata: list[Callable[[], None]] = []
        """Callbacks that are called once, after the next full UpdateMetadata request (of type FULL,
        with all topics), and then removed."""
        self._broker_epoch = broker_epoch
        self._full_metadata_in = _NEVER
        self._connection_number = -1
        self._waiting: deque[QueuedRequest] = deque()
        self._is_busy = False
        self._is_going_on = False

    def is_outdated(self, controller_epoch: int, broker_epoch: int) -> bool:
        """Whether a request with these epochs is rejected, now and at any later time."""
        return controller_epoch < self.controller_epoch or broker_epoch < self._broker_epoch()

    def is_ahead(self, broker_epoch: int) -> bool:
        """Whether a request names a later broker epoch than the one that this broker knows."""
        return 0 <= self._broker_epoch() < broker_epoch

    def put(self, request: QueuedRequest) -> None:
        """Carry a request out after all earlier ones. If its epochs are outdated by then, reject
        it; if they are unknown or its connection was replaced, close its connection."""
        self._waiting.append(request)
        self._begin_waiting()

    def note_full_metadata(self, controller_epoch: int, broker_epoch: int) -> None:
        """Record that a full UpdateMetadata request (of type FULL, with all topics) with these
        epochs was carried out."""
        self._full_metadata_in = (controller_epoch, broker_epoch)
        waiting, self.on_full_metadata = self.on_full_metadata, []
        for each in waiting:
            each()

    @property
    def has_had_full_metadata(self) -> bool:
        """Whether this broker has carried out a full UpdateMetadata request since it started."""
        return self._full_metadata_in != _NEVER

    @property
    def has_full_metadata(self) -> bool:
        """Whether this broker has carried out a full UpdateMetadata request of the newest
        controller that it knows, in its present broker epoch.

        If so, the metadata image (this broker's snapshot of topics and brokers) has all topics that
        the controller can read in ZooKeeper.
        """
        return self._full_metadata_in == (self.controller_epoch, self._broker_epoch())

    def _begin_waiting(self) -> None:
        if self._is_going_on:
            return  # A request was answered at once: the `while` loop below begins the next one.
        self._is_going_on = True
        try:
            while self._waiting and not self._is_busy:
                self._begin_request(self._waiting.popleft())
        finally:
            self._is_going_on = False

    def _begin_request(self, request: QueuedRequest) -> None:
        own = self._broker_epoch()
        if own < 0 or request.broker_epoch > own:
            request.close(UNKNOWN_EPOCH_TEXT)
        elif request.broker_epoch < own:
            request.refuse(ErrorCode.STALE_BROKER_EPOCH)
        elif request.controller_epoch < self.controller_epoch:
            request.refuse(ErrorCode.STALE_CONTROLLER_EPOCH)
        elif (
            request.controller_epoch == self.controller_epoch
            and request.connection_number < self._connection_number
        ):
            # The controller has since replaced the connection of this request by a later one, on
            # which it repeats each request that got no response.
            request.close("the controller has already sent requests over a newer connection")
        else:
            self.controller_epoch = request.controller_epoch
            self._connection_number = request.connection_number
            self._is_busy = True
            request.carry_out(self._on_answered)

    def _on_answered(self) -> None:
        self._is_busy = False
        self._begin_waiting()
