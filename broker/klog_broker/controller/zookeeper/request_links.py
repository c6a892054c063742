"""The connections that carry controller requests to brokers: one for each broker epoch."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from klog_broker.controller.zookeeper.request_batch import ControllerRequest
from klog_broker.controller.zookeeper.request_sender import BrokerResponse
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.runtime.peers import ConnectPipelined
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol import registry

_log = logging.getLogger("klog.controller")

_PATIENCE_MS = 2_000


class BrokerConnections:
    """The controller's connections to brokers, for the event loop's thread only. A RequestSender
    sends its requests with the method `send`."""

    def __init__(
        self,
        listener: str,
        connect: ConnectPipelined,
        call_soon: Callable[[Callable[[], None]], None],
        timeout_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        """`listener` is the name of the inter-broker listener.

        A request without a response within `timeout_ms` fails and closes its connection; the
        RequestSender then repeats the request on a new connection.
        """
        self._listener = listener
        self._connect = connect
        self._call_soon = call_soon
        self._timeout_ms = timeout_ms
        self._links: dict[BrokerId, _BrokerConnection] = {}
        self._unreached = _UnreachableBrokers(now_ms)

    def send(
        self,
        registration: BrokerRegistration,
        request: ControllerRequest,
        done: Callable[[BrokerResponse | None], None],
    ) -> None:
        """Send a request to a broker; `done` gets the response, or None if the request failed.

        After a failure the connection is closed, unless the request was never sent, because the
        broker has no inter-broker listener, or does not support the request.
        """
        link = self._link(registration, request.broker_epoch)
        if link is None:
            self._unreached.note_failure(
                registration.broker_id, f"has no listener {self._listener}"
            )
            self._call_soon(lambda: done(None))
            return

        def on_response(response: Any, error: KlogError | None) -> None:
            if error is None:
                self._unreached.note_response(registration.broker_id)
            elif not link.connection.is_closed:
                text = f"did not answer {type(request).__name__}: {error}"
                self._unreached.note_failure(registration.broker_id, text)
            done(response)

        response_class = registry.response_class(request.api_key)
        link.connection.send(response_class, lambda _: request, on_response, self._timeout_ms)

    def close(self) -> None:
        """Close all connections, because this broker is no longer the controller."""
        links, self._links = self._links, {}
        for link in links.values():
            link.connection.close("this broker is no longer the controller")

    def _link(
        self, registration: BrokerRegistration, broker_epoch: int
    ) -> "_BrokerConnection | None":
        """The connection to a broker in this broker epoch; None if the broker has no inter-broker
        listener.

        If the epoch or address is new, closes the old connection and opens a new one, so that no
        request waits for the response to a request that was sent to the old epoch or address.
        """
        broker_id = registration.broker_id
        endpoint = registration.endpoint(self._listener)
        key = None if endpoint is None else (endpoint.host, endpoint.port, broker_epoch)
        link = self._links.get(broker_id)
        if link is not None and link.key != key:
            del self._links[broker_id]
            link.connection.close("the broker has registered again")
            link = None
        if link is None and endpoint is not None and key is not None:
            connection = self._connect(endpoint.host, endpoint.port, max_in_flight=1)
            link = self._links[broker_id] = _BrokerConnection(key, connection)
        return link


class _BrokerConnection(NamedTuple):
    key: tuple[str, int, int]
    connection: EventedConnection


class _UnreachableBrokers:
    """Logs brokers to which controller requests still fail 2 seconds after the first failure.

    A shorter silence is normal: a broker that has just registered may not know its own epoch yet,
    and a broker that has just stopped may still be registered.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._since_ms: dict[BrokerId, int] = {}
        self._limit = RateLimit()

    def note_response(self, broker_id: BrokerId) -> None:
        if self._since_ms:
            self._since_ms.pop(broker_id, None)

    def note_failure(self, broker_id: BrokerId, how: str) -> None:
        now_ms = self._now_ms()
        lasts_ms = now_ms - self._since_ms.setdefault(broker_id, now_ms)
        if lasts_ms >= _PATIENCE_MS and self._limit.allows(now_ms):
            note = self._limit.pop_suppressed_note()
            _log.warning(
                "broker_id=%d has answered no controller request for %d ms: it %s%s",
                broker_id,
                lasts_ms,
                how,
                note,
            )
