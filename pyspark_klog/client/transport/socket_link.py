"""Moves the bytes of one connection over its non-blocking socket."""

import contextlib
import selectors
import socket

from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection


class Link:
    """A connection to a broker with its socket, used by one thread."""

    def __init__(
        self,
        address: Address,
        connection: Connection,
        sock: socket.socket,
        selector: selectors.BaseSelector,
    ) -> None:
        self.address = address
        self.connection = connection
        self.last_used_ms = 0
        self._socket = sock
        self._selector = selector
        self._interest = selectors.EVENT_READ
        selector.register(sock, self._interest, self)

    @property
    def is_open(self) -> bool:
        return self.connection.state is not ClientConnectionState.CLOSED

    def send_pending(self) -> None:
        """Send the bytes that the socket accepts now, and watch for when it accepts the rest."""
        connection = self.connection
        try:
            while (data := connection.to_send()) is not None:
                connection.sent(self._socket.send(data))
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
            return
        self._set_interest(connection.to_send() is not None)

    def receive_available(self) -> None:
        """Receive bytes and pass them to the connection, until the socket has no more bytes or the
        connection is closed."""
        connection = self.connection
        try:
            while connection.state is not ClientConnectionState.CLOSED:
                with connection.receive_buffer() as buffer:
                    room = len(buffer)
                    count = self._socket.recv_into(buffer)
                connection.received(count)
                if count < room:
                    return
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)

    def close(self, reason: str = "the client closed it") -> None:
        """Close the socket; calls that wait for a response fail with ConnectionFailed."""
        self.connection.lost(ConnectionFailed(f"connection to {self.address}: {reason}"))
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._selector.unregister(self._socket)
        self._socket.close()

    def _fail(self, error: OSError) -> None:
        if (
            isinstance(error, ConnectionResetError)
            and self.connection.state is ClientConnectionState.NEGOTIATING
        ):
            # The broker has reset the connection: `received` with 0 bytes ends it with an error
            # that names the likely cause.
            self.connection.received(0)
            return
        text = error.strerror or str(error)
        self.connection.lost(ConnectionFailed(f"connection to {self.address} was lost: {text}"))

    def _set_interest(self, also_write: bool) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if also_write else 0)
        if wanted != self._interest and self.is_open:
            self._interest = wanted
            self._selector.modify(self._socket, wanted, self)
