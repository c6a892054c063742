"""Answers HTTP requests for the metrics and the health of a broker."""

from __future__ import annotations

from klog_broker.monitoring.connection import HttpConnection
from klog_broker.monitoring.health import health
from klog_broker.monitoring.http_listener import JSON, PLAIN, HttpListener
from klog_broker.monitoring.http_reader import HttpRequest
from klog_broker.monitoring.scrapes import SLICE_ELEMENTS, Parts, Scrapes
from klog_broker.monitoring.sources import Sources
from klog_broker.monitoring.text import CONTENT_TYPE
from klog_broker.runtime.event_loop.slices import Slices, Steps

_BUG = b"A bug in the broker; its log has the traceback.\n"


class MetricsServer:
    """The HTTP server of one broker. Loop thread only. A bug in the metrics is reported and
    answered with 500, and does not stop the broker."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._scrapes = Scrapes(sources)
        self._slices = Slices(sources.services.loop, SLICE_ELEMENTS)
        self.listener = HttpListener(sources.services.loop, self.answer)

    def close(self) -> None:
        """Close the HTTP listener and all connections."""
        self._scrapes.is_closed = True
        self.listener.close()

    def answer(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer an HTTP request: at once, or when the text of the metrics is rendered."""
        try:
            self._answer(request, connection)
        except Exception as error:
            self._sources.services.requests.bugs.report(f"GET {request.path}", error)
            connection.send(500, PLAIN, [_BUG])

    def _answer(self, request: HttpRequest, connection: HttpConnection) -> None:
        if request.path == "/metrics":
            self._scrapes.get_text(lambda parts: self._send_metrics(connection, parts))
        elif request.path in ("/health", "/ready"):
            steps = self._answer_probe(connection, request.path)
            self._slices.run(steps, lambda: connection.is_open)
        else:
            text = b"Not found; the paths are /metrics, /health and /ready.\n"
            connection.send(404, PLAIN, [text])

    def _answer_probe(self, connection: HttpConnection, path: str) -> Steps:
        try:
            found = yield from health(self._sources)
        except Exception as error:
            self._sources.services.requests.bugs.report(f"GET {path}", error)
            connection.send(500, PLAIN, [_BUG])
            return
        is_well = found.is_ready or path == "/health"
        connection.send(200 if is_well else 503, JSON, [found.body])

    @staticmethod
    def _send_metrics(connection: HttpConnection, parts: Parts | None) -> None:
        if not connection.is_open:
            return
        if parts is None:
            connection.send(500, PLAIN, [_BUG])
        else:
            connection.send(200, CONTENT_TYPE, parts)
