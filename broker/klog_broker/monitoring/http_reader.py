"""Parses the heads of HTTP/1.1 requests: GET and HEAD, without bodies.

The parser is as strict as RFC 9112 allows. An unusual request is refused, and the connection is
closed after the response, so that client and broker cannot disagree about where a request ends. A
parser of this size needs no library (docs/decisions/0037).
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_HEAD_BYTES = 8192
"""The most bytes of a request line with its headers; a longer head is refused."""

_END = b"\r\n\r\n"
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
# Each byte matches in one way only, so that the pattern never backtracks over a long head.
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\x20-\x7e\t\x80-\xff]*)")


class HttpRequest(NamedTuple):
    """A valid GET or HEAD request, which the server can answer."""

    is_head: bool
    path: str
    """The path, without the query after a question mark."""
    keeps_alive: bool
    """Whether another request may follow on the connection."""


class BadRequest(NamedTuple):
    """Bytes that are not a valid request; no bytes after them are read."""

    status: int
    reason: str


class HttpReader:
    """The unparsed bytes of one connection.

    The caller calls ``feed`` again only after ``next`` has returned None. The reader then holds at
    most MAX_HEAD_BYTES plus the bytes of one ``feed``.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._is_over = False
        self.has_begun = False
        """Whether any bytes have come since the last request, even an empty line."""

    def feed(self, data: bytes | memoryview) -> None:
        """Add bytes received on the connection, which `next` parses."""
        if not self._is_over:
            self._bytes += data
            self.has_begun = True

    def next(self) -> HttpRequest | BadRequest | None:
        """Return the next request, or None while it is incomplete. After a bad request or one that
        does not keep the connection alive, return only None."""
        held = self._bytes
        while held.startswith(b"\r\n"):
            # An empty line before a request is ignored.
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
        return BadRequest(400, "not a request line")
    method, target, major, minor = line.groups()
    if major != b"1":
        return BadRequest(505, "only HTTP/1 is supported")
    headers: dict[bytes, bytes] = {}
    for each in lines:
        header = _HEADER.fullmatch(each)
        if header is None:
            return BadRequest(400, "a malformed header")
        name, value = header[1].lower(), header[2].strip(b" \t")
        if name in headers and name in (b"host", b"content-length", b"transfer-encoding"):
            return BadRequest(400, "a repeated header")
        # Repeated headers of other names are joined to one comma-separated value.
        headers[name] = headers[name] + b"," + value if name in headers else value
    if minor != b"0" and b"host" not in headers:
        return BadRequest(400, "the Host header is missing")
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        return BadRequest(413, "a request body is not allowed")
    if method not in (b"GET", b"HEAD"):
        return BadRequest(405, "only GET and HEAD are allowed")
    if not target.startswith(b"/"):
        return BadRequest(400, "the request target is not a path")
    path = target.partition(b"?")[0].decode("ascii")
    return HttpRequest(method == b"HEAD", path, _keeps_alive(minor, headers))


def _keeps_alive(minor: bytes, headers: dict[bytes, bytes]) -> bool:
    options = [each.strip() for each in headers.get(b"connection", b"").lower().split(b",")]
    if b"close" in options:
        return False
    return minor != b"0" or b"keep-alive" in options
