"""The socket of one connection, with or without TLS, and the selector that waits for several."""

import contextlib
import selectors
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_klog.client.addresses import Address
from pyspark_klog.client.connection import Connection, State
from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.settings import ClientSettings

if TYPE_CHECKING:
    from pyspark_klog.client.security.driver import Security

IDLE_PROBE_MS = 1_000
"""A connection that was unused for longer is looked at before a request is put on it."""


class Link:
    """A connection with its socket, used by one thread."""

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
        return self.connection.state is not State.CLOSED

    def send_pending(self) -> None:
        """Send what the socket takes now, and wait for room if there is more."""
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
        """Receive until the socket has no more."""
        connection = self.connection
        try:
            while connection.state is not State.CLOSED:
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
        """Close the socket; calls that wait end with ConnectionFailed."""
        self.connection.lost(ConnectionFailed(f"connection to {self.address}: {reason}"))
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._selector.unregister(self._socket)
        self._socket.close()

    def _fail(self, error: OSError) -> None:
        if isinstance(error, ConnectionResetError) and self.connection.state is State.NEGOTIATING:
            self.connection.received(0)  # which says what a close at that point may mean
            return
        text = error.strerror or str(error)
        self.connection.lost(ConnectionFailed(f"connection to {self.address} was lost: {text}"))

    def _set_interest(self, also_write: bool) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if also_write else 0)
        if wanted != self._interest and self.is_open:
            self._interest = wanted
            self._selector.modify(self._socket, wanted, self)


def connect(
    address: Address,
    settings: ClientSettings,
    selector: selectors.BaseSelector,
    now_ms: Callable[[], int],
    max_reply_bytes: int,
    deadline_ms: int,
    security: "Security | None" = None,
) -> Link:
    """A link whose socket is connected and whose connection asks for the versions.

    Every address of the host's name is tried, each for as long as the setting says and the
    deadline allows. TLS's handshake is done when this returns, SASL's
    begins once the versions are known.
    :raises ConnectionFailed: naming the address and why
    :raises ClientError: if it can't be secured as ``security`` asks for
    """
    mechanism = security.mechanism() if security else None
    setup_ms = settings.number("socket.connection.setup.timeout.ms")
    timeout_ms = max(min(setup_ms, deadline_ms - now_ms()), 1)
    try:
        sock = socket.create_connection(address, timeout=timeout_ms / 1000)
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConnectionFailed(f"could not connect to {address}: {text}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, option in (
        ("receive.buffer.bytes", socket.SO_RCVBUF),
        ("send.buffer.bytes", socket.SO_SNDBUF),
    ):
        if settings.number(name) > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, settings.number(name))
    if security is not None:
        sock = security.wrap(sock, address.host, str(address))
    sock.setblocking(False)
    connection = Connection(
        str(address),
        client_id=settings.text("client.id"),
        request_timeout_ms=settings.number("request.timeout.ms"),
        max_reply_bytes=max_reply_bytes,
        mechanism=mechanism,
    )
    make_link = Link if security is None else security.link
    link = make_link(address, connection, sock, selector)
    connection.connected(now_ms())
    link.send_pending()
    return link
