"""The HTTP listener: accepts connections, limits their number, and answers requests."""

from __future__ import annotations

import logging
from contextlib import suppress

from klog_broker.monitoring.connection import HttpConnection
from klog_broker.monitoring.health import health
from klog_broker.monitoring.http_reader import HttpRequest
from klog_broker.monitoring.scrapes import SLICE_ELEMENTS, Parts, Scrapes
from klog_broker.monitoring.sources import Sources
from klog_broker.monitoring.text import CONTENT_TYPE
from klog_broker.runtime.event_loop.slices import Slices, Steps
from klog_broker.runtime.net.poller import READABLE
from klog_broker.runtime.net.sockets import ListeningSocket, Network
from klog_broker.runtime.system.rate_limit import RateLimit

_log = logging.getLogger("klog.metrics")

MAX_CONNECTIONS = 32
"""The most open HTTP connections; further connections get status 503 and are closed."""

_ACCEPTS_PER_TURN = 8
_ACCEPT_PAUSE_MS = 1000
_BACKLOG = 16
_JSON = "application/json"
_PLAIN = "text/plain; charset=utf-8"
_BUG = b"A bug in the broker; its log has the traceback.\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class MetricsServer:
    """The HTTP server of one broker. Loop thread only. A bug in the metrics is reported and
    answered with 500, and does not stop the broker."""

    def __init__(self, sources: Sources, network: Network) -> None:
        self._sources = sources
        self._network = network
        self._loop = sources.services.loop
        self._scrapes = Scrapes(sources)
        self._slices = Slices(self._loop, SLICE_ELEMENTS)
        self._listening: ListeningSocket | None = None
        self._connections: dict[HttpConnection, None] = {}
        self._refusals = RateLimit()

    def listen(self, host: str, port: int) -> int:
        """Open the HTTP listener and return its port. Raises OSError if that fails."""
        listening = self._listening = self._network.listen(host, port, _BACKLOG)
        self._loop.register(listening.fileno(), READABLE, lambda _: self._accept(listening))
        taken = listening.address()[1]
        _log.info("serving metrics host=%s port=%d", host or "0.0.0.0", taken)
        return taken

    def close(self) -> None:
        """Close the HTTP listener and all connections."""
        self._scrapes.is_closed = True
        if self._listening is not None:
            self._loop.unregister(self._listening.fileno())
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.close()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # -- accepting connections ----------------------------------------------------------------

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
            connection = HttpConnection(self._loop, stream, self.answer, self._connections.pop)
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

    # -- answering requests -------------------------------------------------------------------

    def answer(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer an HTTP request: at once, or when the text of the metrics is rendered."""
        try:
            self._answer(request, connection)
        except Exception as error:
            self._sources.services.requests.bugs.report(f"GET {request.path}", error)
            connection.send(500, _PLAIN, [_BUG])

    def _answer(self, request: HttpRequest, connection: HttpConnection) -> None:
        if request.path == "/metrics":
            self._scrapes.get_text(lambda parts: self._send_metrics(connection, parts))
        elif request.path in ("/health", "/ready"):
            steps = self._answer_probe(connection, request.path)
            self._slices.run(steps, lambda: connection.is_open)
        else:
            text = b"Not found; the paths are /metrics, /health and /ready.\n"
            connection.send(404, _PLAIN, [text])

    def _answer_probe(self, connection: HttpConnection, path: str) -> Steps:
        try:
            found = yield from health(self._sources)
        except Exception as error:
            self._sources.services.requests.bugs.report(f"GET {path}", error)
            connection.send(500, _PLAIN, [_BUG])
            return
        is_well = found.is_ready or path == "/health"
        connection.send(200 if is_well else 503, _JSON, [found.body])

    @staticmethod
    def _send_metrics(connection: HttpConnection, parts: Parts | None) -> None:
        if not connection.is_open:
            return
        if parts is None:
            connection.send(500, _PLAIN, [_BUG])
        else:
            connection.send(200, CONTENT_TYPE, parts)
