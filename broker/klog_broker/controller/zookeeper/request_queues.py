"""The orders that wait for each broker: one queue a broker, one request on its way. Pure.

A broker gets its orders in the order in which they were put, each until it has answered, because it
may not have had the one before: a connection that is lost is made anew, and the same request sent
again. Orders are for one life of a broker. In another life it gets others, and knows none of these.

A broker may be registered for long and not answer (it stands still, or only ZooKeeper reaches it),
while topics come and go. If what waits for it gets too large all of that is dropped but the first,
which may be on its way, and all that follows, until it has answered: then it is *behind*, and is to
be told everything anew.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from klog_broker.controller.zookeeper.request_batch import BrokerOrder
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId


@dataclass(slots=True)
class _Queue:
    broker_epoch: int
    waiting: deque[BrokerOrder] = field(default_factory=deque)
    is_sent: bool = False
    """Whether the first one that waits is on its way."""
    size: int = 0
    """That of all that wait."""
    is_dropped: bool = False
    """Whether something was dropped, and so is all that comes."""


class OrderQueues:
    """See the module."""

    def __init__(self) -> None:
        self._queues: dict[BrokerId, _Queue] = {}
        self._behind: dict[BrokerId, None] = {}

    def begin(self, broker_id: BrokerId, broker_epoch: int) -> None:
        """A life of a broker begins; what waits for an earlier one is dropped."""
        known = self._queues.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            self._queues[broker_id] = _Queue(broker_epoch)
            self._behind.pop(broker_id, None)

    def end(self, broker_id: BrokerId) -> None:
        """A broker is gone, with all that waits for it."""
        self._queues.pop(broker_id, None)
        self._behind.pop(broker_id, None)

    def clear(self) -> None:
        """This broker is the controller no longer: nothing more is sent."""
        self._queues.clear()
        self._behind.clear()

    @property
    def behind(self) -> tuple[BrokerId, ...]:
        """The brokers that answer again, and for whom orders were dropped; until `catch_up`."""
        return tuple(self._behind)

    def catch_up(self, broker_id: BrokerId) -> None:
        """A broker that is behind is told everything from now on."""
        del self._behind[broker_id]
        self._queues[broker_id].is_dropped = False

    def takes(self, broker_id: BrokerId) -> bool:
        """Whether orders for a broker are not dropped, as far as is known before they are put."""
        queue = self._queues.get(broker_id)
        return queue is not None and not queue.is_dropped

    def put(self, orders: Iterable[BrokerOrder], at_most: int) -> list[BrokerId]:
        """Orders behind those that wait, of a broker `at_most` of that size together: that must be
        more than to be told everything takes. Those for other lives are dropped. The brokers that
        can be sent something now."""
        ready: dict[BrokerId, None] = {}
        for order in orders:
            queue = self._queues.get(order.broker_id)
            if queue is None or queue.broker_epoch != order.broker_epoch or queue.is_dropped:
                continue
            queue.waiting.append(order)
            queue.size += order.size
            if queue.size > at_most and len(queue.waiting) > 1:
                _drop(queue)
            if not queue.is_sent:
                ready[order.broker_id] = None
        return list(ready)

    def next_size(self, broker_id: BrokerId) -> int:
        """The size of the order that `send` would return; 0 if nothing can be sent."""
        queue = self._queues.get(broker_id)
        if queue is None or queue.is_sent or not queue.waiting:
            return 0
        return queue.waiting[0].size

    def send(self, broker_id: BrokerId) -> BrokerOrder | None:
        """The next order for a broker, which is on its way now; None if nothing can be sent."""
        queue = self._queues.get(broker_id)
        if queue is None or queue.is_sent or not queue.waiting:
            return None
        queue.is_sent = True
        return queue.waiting[0]

    def answered(self, order: BrokerOrder) -> None:
        """A broker has answered: the next order may be sent."""
        queue = self._sent(order)
        if queue is not None:
            queue.size -= queue.waiting.popleft().size
            queue.is_sent = False
            if queue.is_dropped:
                self._behind[order.broker_id] = None

    def lost(self, order: BrokerOrder) -> None:
        """Nobody knows whether an order has arrived: it is to be sent again."""
        queue = self._sent(order)
        if queue is not None:
            queue.is_sent = False

    def _sent(self, order: BrokerOrder) -> _Queue | None:
        """The queue that an order was sent from; None if the broker's life is over."""
        queue = self._queues.get(order.broker_id)
        if queue is None or queue.broker_epoch != order.broker_epoch:
            return None
        if not queue.is_sent or queue.waiting[0] is not order:
            raise InvariantViolation(
                f"an order for broker {order.broker_id} is answered, but was not on its way"
            )
        return queue


def _drop(queue: _Queue) -> None:
    first = queue.waiting[0]
    queue.waiting = deque((first,))
    queue.size = first.size
    queue.is_dropped = True
