"""An HTTP listener: accepts connections and limits their number."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from klog_broker.monitoring.connection import HttpConnection
from klog_broker.monitoring.http_reader import HttpRequest
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import READABLE
from klog_broker.runtime.net.sockets import ListeningSocket, Network
from klog_broker.runtime.system.rate_limit import RateLimit

_log = logging.getLogger("klog.metrics")

MAX_CONNECTIONS = 32
"""The most open HTTP connections; further connections get status 503 and are closed."""

JSON = "application/json"
PLAIN = "text/plain; charset=utf-8"

_ACCEPTS_PER_TURN = 8
_ACCEPT_PAUSE_MS = 1000
_BACKLOG = 16
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class HttpListener:
    """A listening socket and its HTTP connections. Only the loop's thread may call the methods."""

    def __init__(self, loop: Loop, answer: Callable[[HttpRequest, HttpConnection], None]) -> None:
        """``answer`` is called for each request, and calls the connection's ``send``."""
        self._loop = loop
        self._answer = answer
        self._listening: ListeningSocket | None = None
        self._connections: dict[HttpConnection, None] = {}
        self._refusals = RateLimit()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def listen(self, network: Network, host: str, port: int) -> ListeningSocket:
        """Open a listening socket and accept its connections. Raises OSError if that fails."""
        listening = network.listen(host, port, _BACKLOG)
        _log.info("serving metrics host=%s port=%d", host or "0.0.0.0", listening.address()[1])
        self.attach(listening)
        return listening

    def attach(self, listening: ListeningSocket) -> None:
        """Accept the connections of a listening socket."""
        self._listening = listening
        self._loop.register(listening.fileno(), READABLE, lambda _: self._accept(listening))

    def detach(self) -> ListeningSocket | None:
        """Close all connections. Return the listening socket, which stays open."""
        listening = self._listening
        if listening is not None:
            self._loop.unregister(listening.fileno())
            self._listening = None
        for connection in list(self._connections):
            connection.close()
        return listening

    def close(self) -> None:
        """Close the listening socket and all connections."""
        listening = self.detach()
        if listening is not None:
            listening.close()

    def _accept(self, listening: ListeningSocket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                stream = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._warn(f"could not accept a connection: {error}")
                self._pause_accepting(listening)
                return
            if len(self._connections) >= MAX_CONNECTIONS:
                self._warn(f"closing a new connection: {MAX_CONNECTIONS} are open, the limit")
                with suppress(OSError):
                    stream.send([_TOO_MANY])
                stream.close()
                continue
            connection = HttpConnection(self._loop, stream, self._answer, self._connections.pop)
            self._connections[connection] = None

    def _pause_accepting(self, listening: ListeningSocket) -> None:
        """Pause the listener after a failed accept: without a free descriptor, for example, the
        listener would be ready in every event-loop turn, and each accept would fail."""
        self._loop.modify(listening.fileno(), 0)

        def go_on() -> None:
            if self._listening is listening:
                self._loop.modify(listening.fileno(), READABLE)

        self._loop.call_later(_ACCEPT_PAUSE_MS, go_on)

    def _warn(self, text: str) -> None:
        if self._refusals.allows(self._loop.now_ms()):
            _log.warning("%s%s", text, self._refusals.pop_suppressed_note())
