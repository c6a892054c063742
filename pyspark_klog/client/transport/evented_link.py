"""Moves the bytes of one connection over its stream, in an event loop and without waiting."""

from collections.abc import Callable

from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection
from pyspark_klog.client.transport.event_loop import READABLE, WRITABLE, EventLoop, LoopStream
from pyspark_klog.client.transport.preparation import SecureStream
from pyspark_klog.errors import KlogError

RECEIVE_BYTES = 1 << 20
"""Most bytes to receive from one connection before the loop handles other descriptors."""


class EventedLink:
    """A connection to a broker with its stream, which is still connecting.

    ``secure`` is the stream if it is one over TLS. ``on_ready`` is called with the readiness of the
    stream. After each call of `receive` and `send_pending` the caller has to look at the error of
    the connection.
    """

    def __init__(
        self,
        address: Address,
        connection: Connection,
        stream: LoopStream,
        secure: SecureStream | None,
        loop: EventLoop,
        on_ready: Callable[[int], None],
    ) -> None:
        self.connection = connection
        self._address = address
        self._stream = stream
        self._secure = secure
        self._loop = loop
        self._on_ready = on_ready
        self._is_closed = False
        self._interest = WRITABLE
        loop.register(stream.fileno(), WRITABLE, on_ready)

    @property
    def is_connecting(self) -> bool:
        """Whether the stream is not connected yet."""
        return self.connection.state is ClientConnectionState.CONNECTING

    def connect_error(self) -> OSError | None:
        """Return the error with which connecting has failed, or None."""
        return self._stream.connect_error()

    def receive(self) -> None:
        """Receive the bytes that have arrived, up to `RECEIVE_BYTES`."""
        connection, stream = self.connection, self._stream
        left = RECEIVE_BYTES
        try:
            while left > 0 and connection.state is not ClientConnectionState.CLOSED:
                with connection.receive_buffer() as whole, whole[:left] as buffer:
                    room = len(buffer)
                    count = stream.recv_into(buffer)
                if count == 0 and (found := self._tls_error(ConnectionResetError())):
                    connection.lost(found)
                connection.received(count)
                if count < room:
                    break
                left -= count
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
        if self._secure is not None and connection.error is None and self._secure.has_received:
            self._loop.call_soon(self._receive_more)

    def _receive_more(self) -> None:
        if not self._is_closed:
            self._on_ready(READABLE)

    def send_pending(self) -> None:
        """Send the bytes that the stream accepts now, and the rest once it is writable again."""
        connection, stream, secure = self.connection, self._stream, self._secure
        try:
            if secure is not None:
                secure.flush()
            while (data := connection.to_send()) is not None:
                connection.sent(stream.send([data]))
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
        if connection.error is not None:
            return
        has_to_send = connection.to_send() is not None
        if secure is not None:
            wanted = secure.interest(has_to_send=has_to_send)
        else:
            wanted = READABLE | (WRITABLE if has_to_send else 0)
        if wanted != self._interest:
            self._interest = wanted
            self._loop.modify(stream.fileno(), wanted)

    def close(self, error: KlogError) -> None:
        """Close the stream; requests without a response fail with ``error``."""
        self._is_closed = True
        self.connection.lost(error)
        self._loop.unregister(self._stream.fileno())
        self._stream.close()

    def _fail(self, error: OSError) -> None:
        connection = self.connection
        if (found := self._tls_error(error)) is not None:
            connection.lost(found)
            return
        if (
            isinstance(error, ConnectionResetError)
            and connection.state is ClientConnectionState.NEGOTIATING
        ):
            connection.received(0)  # ends the connection with an error that names the likely cause
            return
        text = error.strerror or str(error)
        connection.lost(ConnectionFailed(f"connection to {self._address} was lost: {text}"))

    def _tls_error(self, error: OSError) -> KlogError | None:
        return None if self._secure is None else self._secure.error(error, self.connection.state)
