"""Sends the controller's requests: to each broker one at a time, repeated until it answers."""

import logging
from collections.abc import Callable, Container, Iterable

from klog_broker.controller.zookeeper.request_batch import BrokerRequest, ControllerRequest
from klog_broker.controller.zookeeper.request_queues import RequestQueues
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from pyspark_klog.protocol.apis.stop_replica import StopReplicaResponse
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataResponse

_log = logging.getLogger("klog.controller")

RETRY_MS = 100

LARGE_REQUEST = 1_000
"""At most one request of this size or more is sent in an event-loop turn, because encoding it takes
a good part of the turn."""

BrokerResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

Send = Callable[
    [BrokerRegistration, ControllerRequest, Callable[[BrokerResponse | None], None]], None
]
"""Sends a request to a broker. The callback is called once, asynchronously in the event loop: with
the response, or with None if it is unknown whether the request has arrived. After None the request
can no longer arrive, because its connection is closed before the next one is opened. A broker that
does not know its own epoch rejects all requests without a response; the callback gets None, too."""


class _BrokerEpoch:
    """A registered broker with one broker epoch."""

    def __init__(self, registration: BrokerRegistration, broker_epoch: int) -> None:
        self.registration = registration
        self.broker_epoch = broker_epoch


class RequestSender:
    """Queues and sends requests. `on_answer` gets each response from a broker's present epoch."""

    def __init__(
        self, loop: Loop, send: Send, on_answer: Callable[[BrokerRequest, BrokerResponse], None]
    ) -> None:
        self._loop = loop
        self._send = send
        self._on_answer = on_answer
        self._queues = RequestQueues()
        self._lives: dict[BrokerId, _BrokerEpoch] = {}
        self._large_turn = -1
        """The event-loop turn that last sent a large request."""

    def begin(self, registration: BrokerRegistration, broker_epoch: int) -> None:
        """Add or update a registered broker; a new epoch drops the requests queued before."""
        broker_id = registration.broker_id
        known = self._lives.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            known.registration = registration
            return
        self._lives[broker_id] = _BrokerEpoch(registration, broker_epoch)
        self._queues.begin(broker_id, broker_epoch)

    def end(self, broker_id: BrokerId) -> None:
        """Remove a broker that is no longer registered, and drop its queued requests."""
        self._lives.pop(broker_id, None)
        self._queues.end(broker_id)

    def retain(self, brokers: Container[BrokerId]) -> None:
        """Remove all brokers that are not in `brokers`."""
        for broker_id in [each for each in self._lives if each not in brokers]:
            self.end(broker_id)

    def clear(self) -> None:
        """Remove all brokers and drop their requests, because this broker has resigned."""
        self._lives.clear()
        self._queues.clear()

    @property
    def behind(self) -> tuple[BrokerId, ...]:
        """The brokers that answer again after their requests were dropped; until `catch_up`."""
        return self._queues.behind

    def catch_up(self, broker_id: BrokerId) -> None:
        """Queue new requests again for a broker that is behind."""
        self._queues.catch_up(broker_id)

    def takes(self, broker_id: BrokerId) -> bool:
        """Whether new requests for a broker are queued, not dropped."""
        return self._queues.takes(broker_id)

    def put(self, orders: Iterable[BrokerRequest], at_most: int) -> None:
        """Queue requests, and send to each broker that has no request in flight.

        If the queue of a broker exceeds `at_most`, the queue is dropped, and the broker will be
        behind (RequestQueues).
        """
        were = [each for each in self._lives if self._queues.takes(each)]
        for broker_id in self._queues.put(orders, at_most):
            self._send_next(broker_id)
        for broker_id in were:
            if not self._queues.takes(broker_id):
                _log.warning(
                    "broker_id=%d does not answer: its queue exceeded %d partitions and was"
                    " dropped; the broker gets all metadata again as soon as it answers",
                    broker_id,
                    at_most,
                )

    def _send_next(self, broker_id: BrokerId) -> None:
        life = self._lives[broker_id]

        def again() -> None:
            if self._lives.get(broker_id) is life:
                self._send_next(broker_id)

        if self._queues.next_size(broker_id) >= LARGE_REQUEST:
            if self._large_turn == self._loop.turn:
                self._loop.call_soon(again)
                return
            self._large_turn = self._loop.turn
        order = self._queues.send(broker_id)
        if order is None:
            return

        def answered(answer: BrokerResponse | None) -> None:
            # The broker may have been removed and added since, even with the same epoch.
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

    def _name_refusal(self, order: BrokerRequest, answer: BrokerResponse) -> None:
        if answer.error_code != ErrorCode.NONE:
            _log.warning(
                "broker_id=%d rejects %s of controller epoch %d with error %d: the broker has"
                " registered again or knows another controller, and ZooKeeper reports this soon",
                order.broker_id,
                type(order.request).__name__,
                order.request.controller_epoch,
                answer.error_code,
            )
