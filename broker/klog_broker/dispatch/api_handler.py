"""The declaration of an API (`BrokerApi`), and its handler in one broker (`ApiHandler`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from klog_broker.dispatch.access import Access
from klog_broker.dispatch.cached_requests import CACHED_REQUEST_BYTES, CachedRequest, CacheRequest
from klog_broker.dispatch.request_context import (
    ErrorResponse,
    Handle,
    RequestContext,
    ResponseSteps,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response

S = TypeVar("S", contravariant=True)

MAX_REQUEST_ELEMENTS = 30_000
"""The most elements of all arrays and tagged fields of one request together. A client's request for
all partitions of 10,000 topics with one partition each has 20,000 elements, which take about 10 ms
to decode."""


def top_level_error(api_key: ApiKey) -> ErrorResponse:
    """Return the function that makes an API's error response (``BrokerApi.error_response``), for an
    API whose response has a top-level ``error_code``."""

    def make(_: Any, code: ErrorCode) -> Response:
        response: Any = registry.response_class(api_key)()
        response.error_code = int(code)
        if "error_message" in response.__fields__:
            response.error_message = code.message
        answer: Response = response
        return answer

    return make


class ServedApi(NamedTuple):
    """The range of versions of an API, as ApiVersions reports it."""

    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerApi(Generic[S]):
    """An API that a broker with the services ``S`` can serve, declared at the end of a module in
    ``api/``.

    ``handle`` may raise BrokerError, which ``error_response`` turns into a response. Any other
    exception is reported as a bug (`BugReports`), and the client gets UNKNOWN_SERVER_ERROR unless
    ``handle`` has already answered.
    """

    api_key: ApiKey
    handle: Callable[[S, Any, RequestContext], Response | ResponseSteps | None]
    error_response: ErrorResponse
    access: tuple[Access, ...]
    """The operations that a client must be allowed for the API; which of them a request needs
    depends on its fields. If the dispatcher denies several, the first decides the error code."""
    max_version: int | None = None
    """The newest served version; None means the newest version that pyspark_klog.protocol.registry
    lists for the API."""
    min_version: int | None = None
    allows_pipelining: bool = False
    """Whether further requests of this API on a connection are parsed before the response to an
    earlier one is ready; only for Produce. While a request of another API has no response yet,
    no further requests of its connection are parsed."""
    cache_request: Callable[[S, bytes, Any, RequestContext], CachedRequest | None] | None = None
    """Makes a cached request: an object that serves the connection's next request of this API
    without decoding it, if the next request differs only in the correlation id and in the fields
    that this API's repeated requests change (the fetch offsets of Fetch, for example)."""
    max_elements: int = MAX_REQUEST_ELEMENTS
    """The most elements of all arrays and tagged fields of one request; a request with more is
    malformed (the dispatcher does not count the elements of small requests). Only brokers, on the
    inter-broker listener, may send more than MAX_REQUEST_ELEMENTS; such a request is decoded in
    several event-loop turns."""
    cached_request_max_bytes: int = CACHED_REQUEST_BYTES
    """The longest frame for which `cache_request` is called. The limit bounds the memory that
    cached requests take for each connection."""

    @property
    def served(self) -> ServedApi:
        """The range of served versions of the API. Raises ValueError if
        pyspark_klog.protocol.registry lacks one of these versions."""
        known = registry.find_api(self.api_key)
        first = known.min_version if self.min_version is None else self.min_version
        last = known.max_version if self.max_version is None else self.max_version
        if not known.min_version <= first <= last <= known.max_version:
            raise ValueError(f"{self.api_key.name} cannot be served in versions {first} to {last}")
        return ServedApi(self.api_key, first, last)

    def bind(self, services: S) -> ApiHandler:
        """Return the handler of this API in one broker: ``handle`` with ``services``, the objects
        of the broker (such as its log manager) that it uses."""
        cache_request = (
            None if self.cache_request is None else partial(self.cache_request, services)
        )
        return ApiHandler(self, partial(self.handle, services), cache_request)


class ApiHandler(NamedTuple):
    """The handler of an API in one broker: the API's functions, bound to the objects of the broker
    that they use (such as its log manager)."""

    api: BrokerApi[Any]
    handle: Handle
    cache_request: CacheRequest | None


def bind(apis: Iterable[BrokerApi[S]], services: S) -> tuple[ApiHandler, ...]:
    """Bind each API to ``services``, the objects of the broker (such as its log manager) that the
    API's ``handle`` uses, and return the resulting handlers."""
    return tuple(each.bind(services) for each in apis)
