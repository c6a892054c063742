"""Answers the probes of metrics.listener while a broker starts.

The broker's event loop does not run yet, because the start-up loads and recovers the logs in its
thread, which can take minutes after a kill. So an event loop in another thread serves the listener
until the broker can.
"""

from __future__ import annotations

import json

from klog_broker.monitoring.connection import HttpConnection
from klog_broker.monitoring.health import State
from klog_broker.monitoring.http_listener import JSON, PLAIN, HttpListener
from klog_broker.monitoring.http_reader import HttpRequest
from klog_broker.runtime.net.sockets import ListeningSocket, Network
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.loop_thread import LoopThread

_STARTING = json.dumps({"state": State.STARTING}).encode() + b"\n"
_NO_METRICS = b"The broker is starting and has no metrics yet.\n"


class StartUpProbes:
    """The HTTP listener of a starting broker: `/ready` answers 503 and `/health` 200."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._listener: HttpListener | None = None

    def start(self, network: Network, clock: Clock, host: str, port: int) -> None:
        """Open the listener and answer in a thread, until `end` or `close`. Raises OSError if the
        address cannot be opened."""
        thread = LoopThread("klog-start-up-probes", clock)
        listener = HttpListener(thread.loop, _answer)
        try:
            listener.listen(network, host, port)
        except OSError:
            thread.loop.close()
            raise
        self._thread, self._listener = thread, listener
        thread.start()

    def end(self) -> ListeningSocket | None:
        """Stop answering and close the connections. Return the listening socket, which stays open;
        None if there is none."""
        if self._thread is None or self._listener is None:
            return None
        self._thread.stop()
        listening = self._listener.detach()
        self._thread.loop.close()
        self._thread = self._listener = None
        return listening

    def close(self) -> None:
        """Stop answering and close the listener."""
        listening = self.end()
        if listening is not None:
            listening.close()


def _answer(request: HttpRequest, connection: HttpConnection) -> None:
    if request.path == "/metrics":
        connection.send(503, PLAIN, [_NO_METRICS])
    elif request.path in ("/health", "/ready"):
        connection.send(200 if request.path == "/health" else 503, JSON, [_STARTING])
    else:
        connection.send(404, PLAIN, [])
