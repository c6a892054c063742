"""From a frame to its handler: one row an API, and ApiVersions is derived from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from klog_broker.handlers.bugs import BugReports
from klog_broker.handlers.context import BrokerServices, ErrorResponse, Handle, RequestContext
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.codec import decode_message
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_parts,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


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


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """An API that the broker serves. ``handlers/<api>.py`` ends with its ``HANDLER``.

    ``handle`` may raise BrokerError (answered through ``error_response``); any other exception is a
    bug: UNKNOWN_SERVER_ERROR, one traceback, a counter.
    """

    api_key: ApiKey
    handle: Handle
    error_response: ErrorResponse
    max_version: int | None = None
    """The newest version served, if it is not the registry's."""
    min_version: int | None = None
    lets_next_parse: bool = False
    """While its answer is outstanding, further requests of this same API may be parsed (Produce
    alone). Any other parked request stops the parsing of its connection."""


class ServedApi(NamedTuple):
    """A line of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


class ReplySlot(Protocol):
    """A place in a connection's queue of replies (network/connection.py has it)."""

    @property
    def is_open(self) -> bool: ...

    def complete(self, parts: list[Any]) -> None:
        """Fills the place: byte strings and file regions, which together are one whole frame."""

    def skip(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def when_closed(self, callback: Callable[[], None]) -> None: ...

    def hold(self) -> bool: ...


class ConnectionInfo(Protocol):
    """What the network tells of a connection."""

    @property
    def client_address(self) -> str: ...

    @property
    def connection_id(self) -> str: ...

    @property
    def listener(self) -> str: ...


class Dispatcher:
    """The rows of one broker, and the way from a frame through them to its reply slot."""

    def __init__(self, broker: BrokerServices, handlers: Iterable[ApiHandler] = ()) -> None:
        self._broker = broker
        self._handlers: dict[int, ApiHandler] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        for handler in handlers:
            self.register(handler)

    def register(self, handler: ApiHandler) -> None:
        """Serves one more API; ApiVersions names it from now on."""
        if handler.api_key in self._handlers:
            raise ValueError(f"{handler.api_key.name} has a handler already")
        api = registry.api(handler.api_key)
        first = api.min_version if handler.min_version is None else handler.min_version
        last = api.max_version if handler.max_version is None else handler.max_version
        if not api.min_version <= first <= last <= api.max_version:
            raise ValueError(f"{handler.api_key.name} cannot be served from {first} to {last}")
        self._handlers[handler.api_key] = handler
        self._ranges[handler.api_key] = (first, last)
        self._broker.served = tuple(
            ServedApi(key, *self._ranges[key]) for key in sorted(self._handlers)
        )

    @property
    def pipelined_apis(self) -> frozenset[int]:
        """The keys of the APIs whose requests may follow one of theirs that waits."""
        return frozenset(key for key, row in self._handlers.items() if row.lets_next_parse)

    def handle_frame(self, frame: memoryview, slot: ReplySlot, connection: ConnectionInfo) -> None:
        """Decodes a request (a frame without its size) and hands it to its handler."""
        try:
            header, position = decode_request_header(frame)
            handler = self._handlers.get(header.api_key)
            if handler is None:
                slot.close(f"API key {header.api_key} is not served")
                return
            version = header.api_version
            first, last = self._ranges[header.api_key]
            if not first <= version <= last:
                if header.api_key != ApiKey.API_VERSIONS:
                    name = handler.api_key.name
                    slot.close(f"{name} is served from {first} to {last}, not as {version}")
                    return
                # The one question that is answered in whatever version it comes (KIP-511).
                header = header._replace(api_version=0)
                context = self._context(header, slot, connection)
                context.reply.send(self._all_ranges())
                return
            request, _ = decode_message(
                registry.request_class(header.api_key), version, frame, position
            )
        except MalformedRequest as error:
            self._broker.count("requests-malformed")
            slot.close(str(error))
            return
        self.handle(handler, request, self._context(header, slot, connection))

    def _all_ranges(self) -> Response:
        """Error 35 with what is served, so that the client can ask again in a version it finds."""
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, first, last in self._broker.served
            ],
        )

    def handle(self, handler: ApiHandler, request: Request, context: RequestContext) -> None:
        """Runs a handler; whatever it raises is answered."""
        try:
            response = handler.handle(request, context)
            if response is not None:
                context.reply.send(response)
        except BrokerError as error:
            _send_error(handler, request, context, error)
        except Exception as error:
            self._answer_bug(handler, request, context, error)

    def _answer_bug(
        self, handler: ApiHandler, request: Request, context: RequestContext, error: Exception
    ) -> None:
        """The handler is wrong, not the request."""
        self._broker.bugs.report(handler.api_key.name, error)
        reply = context.reply
        if not (isinstance(reply, _Reply) and reply.is_used):
            unknown = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
            _send_error(handler, request, context, unknown)

    def _context(
        self, header: RequestHeader, slot: ReplySlot, connection: ConnectionInfo
    ) -> RequestContext:
        return RequestContext(
            header,
            connection.client_address,
            connection.connection_id,
            connection.listener,
            _Reply(slot, header, self._broker.bugs),
            self._broker,
        )


def _send_error(
    handler: ApiHandler, request: Request, context: RequestContext, error: BrokerError
) -> None:
    response = handler.error_response(request, error.code)
    if response is None:
        context.reply.close(str(error))
    else:
        context.reply.send(response)


class _Reply:
    """Encodes an answer into its slot."""

    __slots__ = ("_bugs", "_header", "_slot", "is_used")

    def __init__(self, slot: ReplySlot, header: RequestHeader, bugs: BugReports) -> None:
        self._slot = slot
        self._header = header
        self._bugs = bugs
        self.is_used = False

    @property
    def is_open(self) -> bool:
        return self._slot.is_open

    def send(self, response: Response) -> None:
        header = self._header
        self.is_used = True
        parts: list[Any] = []
        if self._slot.is_open:
            try:
                parts = encode_response_parts(header.correlation_id, response, header.api_version)
            except Exception as error:
                # Often out of the purgatory, where nobody is left to catch it.
                self._bugs.report(f"{type(response).__name__} v{header.api_version}", error)
                self._slot.close("an internal error: the answer cannot be encoded")
                return
        self._slot.complete(parts)

    def skip(self) -> None:
        self.is_used = True
        self._slot.skip()

    def close(self, reason: str) -> None:
        self.is_used = True
        self._slot.close(reason)

    def when_closed(self, callback: Callable[[], None]) -> None:
        self._slot.when_closed(callback)

    def hold(self) -> bool:
        return self._slot.hold()
