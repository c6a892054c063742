"""Cached requests: a connection's repeated requests, recognised by their bytes, without decoding.

After the handler has served a decoded request, its API can make an object from this request
(``BrokerApi.cache_request``). This object can serve the connection's next request of the API if it
differs only in the correlation id and in fields that the API chooses, such as fetch offsets. The
dispatcher stores the object with the connection, one for each API, and passes it the next frame
before decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ResponseSlot
from pyspark_klog.protocol.headers import encode_response
from pyspark_klog.protocol.message import Response

CACHED_REQUEST_BYTES = 1024
"""The longest frame of a cached request, unless its API declares ``cached_request_max_bytes``."""

CORRELATION_ID = slice(4, 8)
"""The position of the correlation id in a request's frame, after API key and version."""


class CachedRequest(Protocol):
    """Serves later requests of its connection without decoding, if they differ from the cached
    request only in the correlation id and in fields that the API chooses, such as fetch offsets."""

    def serve(self, frame: memoryview, slot: ResponseSlot) -> bool:
        """Serve a frame (without its size) that differs from the cached request's frame only in the
        correlation id and in the fields that the API lets change, such as fetch offsets; the
        response may come later. Returns False if other bytes differ, or if the handler has to serve
        the frame (to answer with an error, for example).

        The frame's bytes are reused after the return, so nothing may keep a view of them. If this
        method raises before it has answered, the dispatcher decodes the frame and calls the API's
        handler.
        """


CacheRequest = Callable[[bytes, Any, RequestContext], CachedRequest | None]
"""(frame, request, context) -> a cached request, which serves the connection's later frames that
differ from ``frame`` only in the correlation id and a few fields that the API chooses; or None.
Called after the handler has been called for ``request``."""


class EncodedFrame:
    """The encoded frame of a response without its correlation id."""

    __slots__ = ("rest", "size")

    def __init__(self, response: Response, api_version: int) -> None:
        frame = encode_response(0, response, api_version)
        self.size, self.rest = frame[:4], frame[8:]

    def to(self, correlation_id: bytes | memoryview) -> bytes:
        """Return the whole frame with the four bytes of a request's correlation id."""
        return b"".join((self.size, correlation_id, self.rest))
