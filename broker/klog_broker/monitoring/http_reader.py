"""The heads of HTTP/1.1 requests, cut from a connection's bytes: GET and HEAD, without bodies.

As strict as RFC 9112 lets a server be: what is not plain is refused, and the connection is closed
behind the answer, so that nobody can disagree with the broker on where a request ends. Small enough
to be its own (docs/decisions/0037).
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_HEAD_BYTES = 8192
"""A request's line and headers. A longer one is refused."""

_END = b"\r\n\r\n"
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
# Each byte of a head fits these in one way only: else a long head could be tried in many.
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\x20-\x7e\t\x80-\xff]*)")


class HttpRequest(NamedTuple):
    """A request that can be answered."""

    is_head: bool
    path: str
    """Without what stands behind a question mark."""
    keeps_alive: bool
    """Whether another request may follow."""


class BadRequest(NamedTuple):
    """Bytes that are no such request: nothing behind them is read."""

    status: int
    reason: str


class HttpReader:
    """The bytes of one connection. Holds MAX_HEAD_BYTES and what one ``feed`` brings, as long as
    nothing is fed while ``next`` has a request."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._is_over = False
        self.has_begun = False
        """Whether bytes have come since the last request, be it an empty line."""

    def feed(self, data: bytes | memoryview) -> None:
        """Bytes have come."""
        if not self._is_over:
            self._bytes += data
            self.has_begun = True

    def next(self) -> HttpRequest | BadRequest | None:
        """The next request; None if it has not come whole. Nothing comes behind a bad one, and
        behind one that does not keep the connection alive."""
        held = self._bytes
        while held.startswith(b"\r\n"):
            # Empty lines before a request are no part of it.
            del held[:2]
        if self._is_over:
            return None
        end = held.find(_END, 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(held) < MAX_HEAD_BYTES:
                return None
            found: HttpRequest | BadRequest = BadRequest(431, f"more than {MAX_HEAD_BYTES} bytes")
        else:
            found = _parse(bytes(held[:end]))
            del held[: end + len(_END)]
        if isinstance(found, BadRequest) or not found.keeps_alive:
            self._is_over = True
            held.clear()
        self.has_begun = bool(held)
        return found


def _parse(head: bytes) -> HttpRequest | BadRequest:
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        return BadRequest(400, "no request line")
    method, target, major, minor = line.groups()
    if major != b"1":
        return BadRequest(505, "only HTTP/1 is spoken here")
    headers: dict[bytes, bytes] = {}
    for each in lines:
        header = _HEADER.fullmatch(each)
        if header is None:
            return BadRequest(400, "a header that is none")
        name, value = header[1].lower(), header[2].strip(b" \t")
        if name in headers and name in (b"host", b"content-length", b"transfer-encoding"):
            return BadRequest(400, "a header that is there twice")
        # Values of the others are one list.
        headers[name] = headers[name] + b"," + value if name in headers else value
    if minor != b"0" and b"host" not in headers:
        return BadRequest(400, "no Host")
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        return BadRequest(413, "a body, which no request here has")
    if method not in (b"GET", b"HEAD"):
        return BadRequest(405, "GET and HEAD alone are answered")
    if not target.startswith(b"/"):
        return BadRequest(400, "a target that is no path")
    path = target.partition(b"?")[0].decode("ascii")
    return HttpRequest(method == b"HEAD", path, _keeps_alive(minor, headers))


def _keeps_alive(minor: bytes, headers: dict[bytes, bytes]) -> bool:
    options = [each.strip() for each in headers.get(b"connection", b"").lower().split(b",")]
    if b"close" in options:
        return False
    return minor != b"0" or b"keep-alive" in options
