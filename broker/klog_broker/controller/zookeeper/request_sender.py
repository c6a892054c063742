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
"""At most one request that names this many partitions and brokers, or more, is sent in an
event-loop turn, because encoding it takes a good part of the turn."""

BrokerResponse = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

Send = Callable[
    [BrokerRegistration, ControllerRequest, Callable[[BrokerResponse | None], None]], None
]
"""Sends a request to a broker. The callback is called once, asynchronously in the event loop: with
the response, or with None if no response came. After None the request can no longer arrive: it was
not sent, or its connection is closed before the next one is opened. A broker that does not know the
request's broker epoch yet closes the connection; the callback gets None, too."""


class _BrokerEpoch:
    """A registration of a broker, with the broker epoch that the broker got by it."""

    def __init__(self, registration: BrokerRegistration, broker_epoch: int) -> None:
        self.registration = registration
        self.broker_epoch = broker_epoch


class RequestSender:
    """Queues and sends requests. `on_response` gets each response from a broker's present epoch."""

    def __init__(
        self, loop: Loop, send: Send, on_response: Callable[[BrokerRequest, BrokerResponse], None]
    ) -> None:
        self._loop = loop
        self._send = send
        self._on_response = on_response
        self._queues = RequestQueues()
        self._broker_epochs: dict[BrokerId, _BrokerEpoch] = {}
        self._large_turn = -1
        """The number of the event-loop turn (`Loop.turn`) that last sent a large request."""

    def add_broker(self, registration: BrokerRegistration, broker_epoch: int) -> None:
        """Add or update a registered broker; a new broker epoch drops the requests queued
        before."""
        broker_id = registration.broker_id
        known = self._broker_epochs.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            known.registration = registration
            return
        self._broker_epochs[broker_id] = _BrokerEpoch(registration, broker_epoch)
        self._queues.add_broker(broker_id, broker_epoch)

    def remove_broker(self, broker_id: BrokerId) -> None:
        """Remove a broker that is no longer registered, and drop its queued requests."""
        self._broker_epochs.pop(broker_id, None)
        self._queues.remove_broker(broker_id)

    def retain_brokers(self, brokers: Container[BrokerId]) -> None:
        """Remove all brokers that are not in `brokers`."""
        for broker_id in [each for each in self._broker_epochs if each not in brokers]:
            self.remove_broker(broker_id)

    def clear(self) -> None:
        """Remove all brokers and drop their requests, because this broker is no longer the
        controller."""
        self._broker_epochs.clear()
        self._queues.clear()

    @property
    def behind(self) -> tuple[BrokerId, ...]:
        """The brokers that answer again after their requests were dropped. Their new requests are
        dropped, too, until `resume` is called."""
        return self._queues.behind

    def resume(self, broker_id: BrokerId) -> None:
        """Stop dropping new requests for a broker in `behind`: queue them from now on. The broker
        leaves `behind`."""
        self._queues.resume(broker_id)

    def accepts_requests(self, broker_id: BrokerId) -> bool:
        """Whether new requests for a broker are queued, not dropped."""
        return self._queues.accepts_requests(broker_id)

    def put(self, broker_requests: Iterable[BrokerRequest], at_most: int) -> None:
        """Queue requests, and send to each broker that has no request in flight.

        If the size of a broker's queue (about how many partitions and brokers its requests name)
        exceeds `at_most`, the queue is dropped except for its first request. As soon as the broker
        answers this request, it is in `behind`, and the controller sends it all metadata, and the
        roles (leader or follower) of its replicas, again.
        """
        were = [each for each in self._broker_epochs if self._queues.accepts_requests(each)]
        for broker_id in self._queues.put(broker_requests, at_most):
            self._send_next(broker_id)
        for broker_id in were:
            if not self._queues.accepts_requests(broker_id):
                _log.warning(
                    "broker_id=%d does not answer: its queued requests named more than %d"
                    " partitions and brokers, and were dropped; the broker gets all metadata again"
                    " as soon as it answers",
                    broker_id,
                    at_most,
                )

    def _send_next(self, broker_id: BrokerId) -> None:
        current_epoch = self._broker_epochs[broker_id]

        def again() -> None:
            if self._broker_epochs.get(broker_id) is current_epoch:
                self._send_next(broker_id)

        if self._queues.next_size(broker_id) >= LARGE_REQUEST:
            if self._large_turn == self._loop.turn:
                self._loop.call_soon(again)
                return
            self._large_turn = self._loop.turn
        broker_request = self._queues.next_request(broker_id)
        if broker_request is None:
            return

        def on_response(response: BrokerResponse | None) -> None:
            # Ignore the response if the broker was removed from `_broker_epochs` after the request
            # was sent, even if it was added again with the same broker epoch.
            if self._broker_epochs.get(broker_id) is not current_epoch:
                return
            if response is None:
                self._queues.requeue(broker_request)
                self._loop.call_later(RETRY_MS, again)
                return
            self._queues.remove_answered(broker_request)
            self._log_rejection(broker_request, response)
            self._on_response(broker_request, response)
            again()

        self._send(current_epoch.registration, broker_request.request, on_response)

    def _log_rejection(self, broker_request: BrokerRequest, response: BrokerResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            _log.warning(
                "broker_id=%d rejects %s of controller epoch %d with error %d: after error 77"
                " (STALE_BROKER_EPOCH) the broker has registered again, after error 11"
                " (STALE_CONTROLLER_EPOCH) it knows another controller, and this controller soon"
                " learns of either from ZooKeeper",
                broker_request.broker_id,
                type(broker_request.request).__name__,
                broker_request.request.controller_epoch,
                response.error_code,
            )
