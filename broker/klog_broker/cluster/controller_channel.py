"""The connection on which this broker sends requests to the controller.

The requests go to the controller's inter-broker listener, even while this broker is the controller
itself.
"""

from collections.abc import Callable
from typing import TypeVar

from klog_broker.metadata.image import MetadataImage
from klog_broker.runtime.peers import Connect
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.client.transport.pending_request import Build
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.message import Response

R = TypeVar("R", bound=Response)


class ControllerConnection:
    """One connection to the controller that the metadata image names, for use in the event loop's
    thread only."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        listener: str,
        connect: Connect,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`listener` is the name of the inter-broker listener."""
        self._image = image
        self._listener = listener
        self._connect = connect
        self._call_soon = call_soon
        self._connection: EventedConnection | None = None
        self._address: tuple[str, int] | None = None
        self._is_closed = False

    def send(
        self,
        response_class: type[R],
        build: Build,
        done: Callable[[R | None], None],
        timeout_ms: int,
    ) -> None:
        """Send a request once to the present controller. `build` makes the request for an API
        version.

        `done` is called once, in the loop's thread but not within this call: with the response,
        which may be NOT_CONTROLLER, or with None. The argument is None if no controller is known or
        reachable, if the controller changed, or if it did not answer within `timeout_ms`; then the
        controller may or may not have carried the request out.
        """
        self.reconnect_if_moved()
        connection = self._connection
        if connection is None:
            self._call_soon(lambda: done(None))
            return

        def on_response(response: R | None, _error: KlogError | None) -> None:
            done(response)

        connection.send(response_class, build, on_response, timeout_ms)

    def reconnect_if_moved(self) -> None:
        """Replace the connection if the controller's address in the metadata image has changed;
        only close it if the image names no controller.

        The callbacks (`done`) of requests that are outstanding on the old connection get None.
        """
        address = None if self._is_closed else self._controller_address()
        if address == self._address:
            return
        before, self._connection = self._connection, None
        self._address = address
        if address is not None:
            self._connection = self._connect(*address)
        if before is not None:
            # `send` calls this method, and closing the old connection calls the callbacks of its
            # outstanding requests. Close it later, so that no callback runs inside a call of
            # `send`.
            self._call_soon(lambda: before.close("another broker is the controller now"))

    def close(self) -> None:
        """Close the connection. The callbacks of outstanding requests are called with None now;
        those of requests that are sent later are called with None asynchronously."""
        self._is_closed = True
        connection, self._connection, self._address = self._connection, None, None
        if connection is not None:
            connection.close("this broker stops")

    def _controller_address(self) -> tuple[str, int] | None:
        image = self._image()
        broker = image.brokers.get(image.controller_id)
        endpoint = broker and broker.endpoint(self._listener)
        return (endpoint.host, endpoint.port) if endpoint else None
