"""Sends the controller's orders to brokers: one at a time to each, and again until it answers."""

import logging
from collections.abc import Callable, Container, Iterable

from klog_broker.controller.zookeeper.request_batch import BrokerOrder, Order
from klog_broker.controller.zookeeper.request_queues import OrderQueues
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from pyspark_klog.protocol.apis.stop_replica import StopReplicaResponse
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataResponse

_log = logging.getLogger("klog.controller")

RETRY_MS = 100

LARGE_ORDER = 1_000
"""Encoding an order of this size takes a good part of a turn: a turn sends at most one of them."""

Answer = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

Send = Callable[[BrokerRegistration, Order, Callable[[Answer | None], None]], None]
"""Sends a broker an order. The callable is called once, in the loop, later: with its answer, or
with None if nobody knows whether the order has arrived; then it has arrived by now, or never will
(a connection is ended before the next one is made). A broker that does not know its own epoch, not
yet or not any more, cannot tell whether an order is for this life: it takes none; None, too."""


class _Life:
    """A broker from its registration on."""

    def __init__(self, registration: BrokerRegistration, broker_epoch: int) -> None:
        self.registration = registration
        self.broker_epoch = broker_epoch


class OrderSender:
    """See the module. `on_answer` is called with each answer of a broker that is still alive."""

    def __init__(
        self, loop: Loop, send: Send, on_answer: Callable[[BrokerOrder, Answer], None]
    ) -> None:
        self._loop = loop
        self._send = send
        self._on_answer = on_answer
        self._queues = OrderQueues()
        self._lives: dict[BrokerId, _Life] = {}
        self._large_turn = -1
        """The turn of the loop that last sent a large order."""

    def begin(self, registration: BrokerRegistration, broker_epoch: int) -> None:
        """A broker is registered; in a new epoch what waits for its earlier life is dropped."""
        broker_id = registration.broker_id
        known = self._lives.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            known.registration = registration
            return
        self._lives[broker_id] = _Life(registration, broker_epoch)
        self._queues.begin(broker_id, broker_epoch)

    def end(self, broker_id: BrokerId) -> None:
        """A broker is gone, with all that waits for it."""
        self._lives.pop(broker_id, None)
        self._queues.end(broker_id)

    def retain(self, brokers: Container[BrokerId]) -> None:
        """All others are gone."""
        for broker_id in [each for each in self._lives if each not in brokers]:
            self.end(broker_id)

    def clear(self) -> None:
        """This broker is the controller no longer: nothing more is sent."""
        self._lives.clear()
        self._queues.clear()

    @property
    def behind(self) -> tuple[BrokerId, ...]:
        """The brokers that answer again, and are to be told everything anew (OrderQueues)."""
        return self._queues.behind

    def catch_up(self, broker_id: BrokerId) -> None:
        """From now on a broker that is behind is told everything."""
        self._queues.catch_up(broker_id)

    def takes(self, broker_id: BrokerId) -> bool:
        """See OrderQueues."""
        return self._queues.takes(broker_id)

    def put(self, orders: Iterable[BrokerOrder], at_most: int) -> None:
        """Send these after those that wait. If that is more than `at_most` for a broker all is
        dropped: it will be behind (OrderQueues)."""
        were = [each for each in self._lives if self._queues.takes(each)]
        for broker_id in self._queues.put(orders, at_most):
            self._send_next(broker_id)
        for broker_id in were:
            if not self._queues.takes(broker_id):
                _log.warning(
                    "broker_id=%d does not answer, and more orders wait for it than %d partitions"
                    " take: they are dropped, and it is told everything when it answers",
                    broker_id,
                    at_most,
                )

    def _send_next(self, broker_id: BrokerId) -> None:
        life = self._lives[broker_id]

        def again() -> None:
            if self._lives.get(broker_id) is life:
                self._send_next(broker_id)

        if self._queues.next_size(broker_id) >= LARGE_ORDER:
            if self._large_turn == self._loop.turn:
                self._loop.call_soon(again)
                return
            self._large_turn = self._loop.turn
        order = self._queues.send(broker_id)
        if order is None:
            return

        def answered(answer: Answer | None) -> None:
            # A life that is over has another queue, even one of the same epoch.
            if self._lives.get(broker_id) is not life:
                return
            if answer is None:
                self._queues.lost(order)
                self._loop.call_later(RETRY_MS, again)
                return
            self._queues.answered(order)
            self._name_refusal(order, answer)
            self._on_answer(order, answer)
            again()

        self._send(life.registration, order.request, answered)

    def _name_refusal(self, order: BrokerOrder, answer: Answer) -> None:
        if answer.error_code != ErrorCode.NONE:
            _log.warning(
                "broker_id=%d refuses %s of controller epoch %d with error %d: it is in another"
                " life, or has another controller; this is settled by what ZooKeeper says next",
                order.broker_id,
                type(order.request).__name__,
                order.request.controller_epoch,
                answer.error_code,
            )
