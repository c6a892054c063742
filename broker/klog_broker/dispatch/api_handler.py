"""An API as its module declares it, and the handler that it becomes with a broker's services."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from klog_broker.dispatch.access import Access
from klog_broker.dispatch.cached_requests import PREPARED_BYTES, Prepare, Prepared
from klog_broker.dispatch.request_context import (
    AnswerSteps,
    ErrorResponse,
    Handle,
    RequestContext,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response

S = TypeVar("S", contravariant=True)

MAX_REQUEST_ELEMENTS = 30_000
"""Elements of all arrays and tagged fields of one request together. Clients of a broker with 10,000
topics of a partition each need 20,000; decoding as many takes some 10 ms."""


def top_level_error(api_key: ApiKey) -> ErrorResponse:
    """For an API whose response has one ``error_code`` of its own and needs nothing else."""

    def make(_: Any, code: ErrorCode) -> Response:
        response: Any = registry.response_class(api_key)()
        response.error_code = int(code)
        if "error_message" in response.__fields__:
            response.error_message = code.message
        answer: Response = response
        return answer

    return make


class ServedApi(NamedTuple):
    """A line of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerApi(Generic[S]):
    """An API that a broker with the services ``S`` can serve. ``api/<api>.py`` ends with its
    ``API``.

    ``handle`` may raise BrokerError (answered through ``error_response``); any other exception is a
    bug: UNKNOWN_SERVER_ERROR, one traceback, a counter.
    """

    api_key: ApiKey
    handle: Callable[[S, Any, RequestContext], Response | AnswerSteps | None]
    error_response: ErrorResponse
    access: tuple[Access, ...]
    """The operations that a client must be allowed for the API. The order has no meaning: which of
    the operations a request needs depends on its fields."""
    max_version: int | None = None
    """The newest version served, if it is not the registry's."""
    min_version: int | None = None
    lets_next_parse: bool = False
    """While its response is outstanding, further requests of this same API may be parsed (Produce
    alone). Any other parked request stops the parsing of its connection."""
    prepare: Callable[[S, bytes, Any, RequestContext], Prepared | None] | None = None
    """Makes an object that serves the connection's next request, if that is like this one."""
    max_elements: int = MAX_REQUEST_ELEMENTS
    """A request of more elements is malformed. Only other brokers, on the listener that is for
    them, send more than MAX_REQUEST_ELEMENTS: the dispatcher decodes these requests in slices."""
    prepared_bytes: int = PREPARED_BYTES
    """Longer frames are not prepared for: this bounds the memory of a connection."""

    @property
    def served(self) -> ServedApi:
        """The versions. ValueError if the registry does not have them."""
        known = registry.api(self.api_key)
        first = known.min_version if self.min_version is None else self.min_version
        last = known.max_version if self.max_version is None else self.max_version
        if not known.min_version <= first <= last <= known.max_version:
            raise ValueError(f"{self.api_key.name} cannot be served from {first} to {last}")
        return ServedApi(self.api_key, first, last)

    def bind(self, services: S) -> ApiHandler:
        """The handler of a broker with these services."""
        prepare = None if self.prepare is None else partial(self.prepare, services)
        return ApiHandler(self, partial(self.handle, services), prepare)


class ApiHandler(NamedTuple):
    """An API with the services of one broker."""

    api: BrokerApi[Any]
    handle: Handle
    prepare: Prepare | None


def bind(apis: Iterable[BrokerApi[S]], services: S) -> tuple[ApiHandler, ...]:
    """The handlers of a family of APIs, which work with the same services."""
    return tuple(each.bind(services) for each in apis)
