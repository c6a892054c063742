"""What this broker asks the controller for: over the listener of the brokers among themselves, also
while it is the controller itself."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from klog_broker.metadata.image import MetadataImage
from pyspark_klog.client.transport.evented_connection import Build, EventedConnection
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.message import Response

R = TypeVar("R", bound=Response)


class Connect(Protocol):
    """Makes a connection that connects when a request needs it (`Peers.connect`)."""

    def __call__(self, host: str, port: int, /) -> EventedConnection: ...


class ToController:
    """One connection, to whoever the image says is the controller. For the loop's thread."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        listener: str,
        connect: Connect,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`listener` is that of the brokers among themselves."""
        self._image = image
        self._listener = listener
        self._connect = connect
        self._call_soon = call_soon
        self._connection: EventedConnection | None = None
        self._address: tuple[str, int] | None = None
        self._is_closed = False

    def send(
        self,
        reply_class: type[R],
        build: Build,
        done: Callable[[R | None], None],
        timeout_ms: int,
    ) -> None:
        """Ask the present controller, once. `done` is called once, later, in the loop: with its
        answer, of which NOT_CONTROLLER is one; with None if nobody knows what became of the
        request (no controller is known, it is not reached, it is another one by now, or did not
        answer in `timeout_ms`). `build` makes the request for a version, when it leaves."""
        self.look()
        connection = self._connection
        if connection is None:
            self._call_soon(lambda: done(None))
            return

        def answered(reply: R | None, _error: KlogError | None) -> None:
            done(reply)

        connection.send(reply_class, build, answered, timeout_ms)

    def look(self) -> None:
        """The image is another one: if the controller is, too, whoever waits for an answer of the
        one before is told that none will come."""
        address = None if self._is_closed else self._controller_address()
        if address == self._address:
            return
        before, self._connection = self._connection, None
        self._address = address
        if address is not None:
            self._connection = self._connect(*address)
        if before is not None:
            # Whoever waits hears of it later, not within somebody else's `send`.
            self._call_soon(lambda: before.close("the controller is another one"))

    def close(self) -> None:
        """End the connection: whoever waits is told now. Later requests are answered None."""
        self._is_closed = True
        connection, self._connection, self._address = self._connection, None, None
        if connection is not None:
            connection.close("the broker ends")

    def _controller_address(self) -> tuple[str, int] | None:
        image = self._image()
        broker = image.brokers.get(image.controller_id)
        endpoint = broker and broker.endpoint(self._listener)
        return (endpoint.host, endpoint.port) if endpoint else None
