"""The connections by which a controller's orders reach brokers: one for each life of a broker."""

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.controller.order_batch import Order
from klog_broker.controller.order_sender import Answer
from klog_broker.metadata.image import BrokerRegistration
from pyspark_klog.client.evented import EventedConnection
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol import registry


class Connect(Protocol):
    """Makes a connection that connects when a request needs it (`Peers.connect`)."""

    def __call__(self, host: str, port: int, /, *, max_in_flight: int) -> EventedConnection: ...


class OrderLinks:
    """For the loop's thread. `send` is an order sender's Send."""

    def __init__(
        self,
        listener: str,
        connect: Connect,
        call_soon: Callable[[Callable[[], None]], None],
        timeout_ms: int,
    ) -> None:
        """`listener` is that of the brokers among themselves. Whoever does not answer in
        `timeout_ms` is asked again, by another connection."""
        self._listener = listener
        self._connect = connect
        self._call_soon = call_soon
        self._timeout_ms = timeout_ms
        self._links: dict[BrokerId, _Link] = {}

    def send(
        self, registration: BrokerRegistration, order: Order, done: Callable[[Answer | None], None]
    ) -> None:
        """See Send. What failed has ended its connection, unless it never left."""
        link = self._link(registration, order.broker_epoch)
        if link is None:
            self._call_soon(lambda: done(None))
            return
        link.send(order, done, self._timeout_ms)

    def close(self) -> None:
        """End all connections: this broker gives no orders any more."""
        links, self._links = self._links, {}
        for link in links.values():
            link.connection.close("this broker is the controller no more")

    def _link(self, registration: BrokerRegistration, broker_epoch: int) -> "_Link | None":
        """A life of its own for each: what was sent to the last one must not be waited for."""
        broker_id = registration.broker_id
        endpoint = registration.endpoint(self._listener)
        key = None if endpoint is None else (endpoint.host, endpoint.port, broker_epoch)
        link = self._links.get(broker_id)
        if link is not None and link.key != key:
            del self._links[broker_id]
            link.connection.close("the broker has registered anew")
            link = None
        if link is None and endpoint is not None and key is not None:
            connection = self._connect(endpoint.host, endpoint.port, max_in_flight=1)
            link = self._links[broker_id] = _Link(key, connection)
        return link


class _Link:
    def __init__(self, key: tuple[str, int, int], connection: EventedConnection) -> None:
        self.key = key
        self.connection = connection

    def send(self, order: Order, done: Callable[[Answer | None], None], timeout_ms: int) -> None:
        def answered(reply: Any, _error: KlogError | None) -> None:
            done(reply)

        reply_class = registry.response_class(order.api_key)
        self.connection.send(reply_class, lambda _: order, answered, timeout_ms)
