"""Orders of controllers: one request after the other, and none of a controller or a life that is
over."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pyspark_klog.errors import ErrorCode

UNKNOWN_LIFE = "this broker does not know its own epoch, and takes no orders"
_NEVER = (-1, -1)


class OrderRequest(NamedTuple):
    """What a controller has sent. Exactly one of the three is called, once."""

    controller_epoch: int
    broker_epoch: int
    connection_number: int
    """Later connections to this broker have greater numbers."""
    begin: Callable[[Callable[[], None]], None]
    """Carry it out, and call back once it is answered."""
    refuse: Callable[[ErrorCode], None]
    close: Callable[[str], None]
    """End the connection: the controller will send the request again."""


class OrderQueue:
    """For the loop's thread. `broker_epoch` is this broker's, -1 while it is not registered.

    All is checked when a request is begun. While it waited for others a newer controller may have
    given orders, and the broker may have begun another life.
    """

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self.controller_epoch = 0
        """That of the newest controller that has given an order."""
        self.on_told_all: list[Callable[[], None]] = []
        """Each is called once, when all was told again, and forgotten."""
        self._broker_epoch = broker_epoch
        self._told_all_in = _NEVER
        self._connection_number = -1
        self._waiting: deque[OrderRequest] = deque()
        self._is_busy = False
        self._is_going_on = False

    def is_over(self, controller_epoch: int, broker_epoch: int) -> bool:
        """Whether an order of these epochs is refused, now and whenever its turn comes."""
        return controller_epoch < self.controller_epoch or broker_epoch < self._broker_epoch()

    def is_early(self, broker_epoch: int) -> bool:
        """Whether an order is for a later life than that which this broker knows of itself."""
        return 0 <= self._broker_epoch() < broker_epoch

    def put(self, request: OrderRequest) -> None:
        """Carry it out after all earlier ones, unless it may not be."""
        self._waiting.append(request)
        self._go_on()

    def told_all(self, controller_epoch: int, broker_epoch: int) -> None:
        """An order of these epochs has told of all partitions there are."""
        self._told_all_in = (controller_epoch, broker_epoch)
        waiting, self.on_told_all = self.on_told_all, []
        for each in waiting:
            each()

    @property
    def was_told_all(self) -> bool:
        """Whether this broker was ever told of all partitions."""
        return self._told_all_in != _NEVER

    @property
    def knows_all(self) -> bool:
        """Whether the newest controller has told this life of the broker of all partitions: one
        that the image does not show is deleted then."""
        return self._told_all_in == (self.controller_epoch, self._broker_epoch())

    def _go_on(self) -> None:
        if self._is_going_on:
            return  # `begin` answered at once: the while loop that called it goes on.
        self._is_going_on = True
        try:
            while self._waiting and not self._is_busy:
                self._begin(self._waiting.popleft())
        finally:
            self._is_going_on = False

    def _begin(self, request: OrderRequest) -> None:
        own = self._broker_epoch()
        if own < 0 or request.broker_epoch > own:
            request.close(UNKNOWN_LIFE)
        elif request.broker_epoch < own:
            request.refuse(ErrorCode.STALE_BROKER_EPOCH)
        elif request.controller_epoch < self.controller_epoch:
            request.refuse(ErrorCode.STALE_CONTROLLER_EPOCH)
        elif (
            request.controller_epoch == self.controller_epoch
            and request.connection_number < self._connection_number
        ):
            # It was sent before the controller gave that connection up, and came late.
            request.close("the controller has given orders by a later connection")
        else:
            self.controller_epoch = request.controller_epoch
            self._connection_number = request.connection_number
            self._is_busy = True
            request.begin(self._done)

    def _done(self) -> None:
        self._is_busy = False
        self._go_on()
