"""One HTTP connection: a request, its response, then the next request.

Timeouts limit how long a slow client may take to send a request's head, to receive the response,
and to wait between requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from klog_broker.monitoring.http_reader import BadRequest, HttpReader, HttpRequest
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.net.poller import READABLE, WRITABLE
from klog_broker.runtime.net.sockets import StreamSocket

HEAD_MS = 10_000
"""Timeout from the first byte of an HTTP request, or from the end of the response to the request
before it if that is later, to the end of the request's head, in milliseconds."""

ANSWER_MS = 30_000
"""Timeout from the head of an HTTP request to the end of sending the response, in milliseconds."""

IDLE_MS = 90_000
"""Timeout between two HTTP requests on a connection, and before the first one, in milliseconds.
Prometheus sends a request every 15 or 60 seconds on the same connection."""

RECEIVE_BYTES = 4096
"""The most bytes received from an HTTP connection in one event-loop turn."""

SEND_BYTES = 32 * 1024
"""Once so many bytes were sent on an HTTP connection in one event-loop turn, the rest waits for the
next turn: a scrape of thousands of partitions is half a megabyte, and the broker serves Kafka
requests between the parts of the response."""

_PARTS_PER_SEND = 4
_PLAIN = "text/plain; charset=utf-8"
_BAD = HttpRequest(False, "", False)


class HttpConnection:
    """An HTTP connection, open from accept to ``close``. Loop thread only."""

    def __init__(
        self,
        loop: Loop,
        stream: StreamSocket,
        answer: Callable[[HttpRequest, HttpConnection], None],
        on_closed: Callable[[HttpConnection], object],
    ) -> None:
        self.is_open = True
        self._loop = loop
        self._stream = stream
        self._answer = answer
        self._on_closed = on_closed
        self._reader = HttpReader()
        self._buffer = bytearray(RECEIVE_BYTES)
        self._request: HttpRequest | None = None
        """The request that is being answered; None between requests."""
        self._unsent: deque[bytes | memoryview] = deque()
        self._interest = READABLE
        self._timer: Timer | None = None
        loop.register(stream.fileno(), READABLE, self._on_ready)
        self._wait(IDLE_MS)

    def close(self) -> None:
        """Close the connection; unsent bytes are lost."""
        if not self.is_open:
            return
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._loop.unregister(self._stream.fileno())
        self._stream.close()
        self._unsent.clear()
        self._on_closed(self)

    def send(self, status: int, content_type: str, body: Sequence[bytes]) -> None:
        """Send the response to the request that is being answered."""
        request = self._request
        if request is None:
            raise RuntimeError("send was called while no request was being answered")
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"Content-Type: {content_type}",
            f"Content-Length: {sum(map(len, body))}",
            f"Connection: {'keep-alive' if request.keeps_alive else 'close'}",
        ]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        self._unsent.append("\r\n".join((*lines, "", "")).encode())
        if not request.is_head:
            self._unsent.extend(body)
        self._loop.call_at_send(self._flush)

    # -- receiving requests -------------------------------------------------------------------

    def _on_ready(self, events: int) -> None:
        if events & WRITABLE:
            self._loop.call_at_send(self._flush)
        elif events & READABLE and self._request is None:
            self._receive()
        elif not events & READABLE:
            self.close()  # neither readable nor writable: the connection has failed

    def _receive(self) -> None:
        try:
            count = self._stream.recv_into(memoryview(self._buffer))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return
        had_begun = self._reader.has_begun
        self._reader.feed(memoryview(self._buffer)[:count])
        self._next()
        if self.is_open and self._request is None and not had_begun:
            self._wait(HEAD_MS)

    def _next(self) -> None:
        """Answer the next request, if its head is complete."""
        found = self._reader.next()
        if found is None:
            return
        self._wait(ANSWER_MS)
        if isinstance(found, BadRequest):
            self._request = _BAD
            self.send(found.status, _PLAIN, [f"{found.reason}\n".encode()])
        else:
            self._request = found
            self._answer(found, self)
        self._update_interest()

    # -- sending responses --------------------------------------------------------------------

    def _flush(self) -> None:
        sent_bytes = 0
        unsent = self._unsent
        while self.is_open and unsent and sent_bytes < SEND_BYTES:
            some: list[Any] = [unsent[at] for at in range(min(len(unsent), _PARTS_PER_SEND))]
            try:
                count = self._stream.send(some)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.close()
                return
            sent_bytes += count
            self._advance(count)
            if count < sum(map(len, some)):
                break
        if not self.is_open:
            return
        if not unsent and self._request is not None:
            self._answered(self._request)
        else:
            self._update_interest()

    def _advance(self, count: int) -> None:
        unsent = self._unsent
        while count:
            first = unsent.popleft()
            if count < len(first):
                unsent.appendleft(memoryview(first)[count:])
                return
            count -= len(first)

    def _answered(self, request: HttpRequest) -> None:
        self._request = None
        if not request.keeps_alive:
            self.close()
            return
        self._wait(HEAD_MS if self._reader.has_begun else IDLE_MS)
        self._update_interest()
        # Serve the client's next request in the next event-loop turn, so that a client with many
        # requests does not delay the broker.
        self._loop.call_soon(self._read_next_request)

    def _read_next_request(self) -> None:
        if self.is_open and self._request is None:
            self._next()

    def _update_interest(self) -> None:
        if not self.is_open:
            return
        interest = READABLE if self._request is None else WRITABLE if self._unsent else 0
        if interest != self._interest:
            self._interest = interest
            self._loop.modify(self._stream.fileno(), interest)

    def _wait(self, limit_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(limit_ms, self.close)
