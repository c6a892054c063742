"""Requests that a connection sends again and again: recognised by their bytes, and not decoded
again.

A handler that has such requests prepares what it needs for the next one (``BrokerApi.prepare``);
the dispatcher keeps it with the connection, one for each API, and asks it before anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ReplySlot
from pyspark_klog.protocol.headers import encode_response
from pyspark_klog.protocol.message import Response

PREPARED_BYTES = 1024
"""No longer frame is prepared for, unless its API says otherwise (``prepared_bytes``)."""

CORRELATION_ID = slice(4, 8)
"""Where the correlation id lies in a request's frame, behind API key and version."""


class Prepared(Protocol):
    """A request that was served, as far as the next one needs it."""

    def serve(self, frame: memoryview, slot: ReplySlot) -> bool:
        """Serve a frame (without its size) that differs only in what may differ; the answer may
        come later. False, and nothing has happened, if the frame is another request.

        The frame's bytes are gone when this has returned: nothing may keep a view of them. If it
        raises, the handler serves the frame, unless the frame was answered before that.
        """


Prepare = Callable[[bytes, Any, RequestContext], Prepared | None]
"""(frame, request, context) -> what serves requests like this one; None if nothing does. Called
after the handler."""


class ReplyBytes:
    """The frame of an answer, but for its correlation id."""

    __slots__ = ("behind", "size")

    def __init__(self, response: Response, api_version: int) -> None:
        frame = encode_response(0, response, api_version)
        self.size, self.behind = frame[:4], frame[8:]

    def to(self, correlation_id: bytes | memoryview) -> bytes:
        """The whole frame, for the four bytes of a request's correlation id."""
        return b"".join((self.size, correlation_id, self.behind))
