"""Dispatches request frames to the handlers of their APIs, after checks of version and access."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from klog_broker.dispatch.api_handler import MAX_REQUEST_ELEMENTS, ApiHandler
from klog_broker.dispatch.authorizer import DENIED_CODES, Authorizer
from klog_broker.dispatch.cached_requests import CachedRequest
from klog_broker.dispatch.encoded_response import EncodedResponse, first_steps, thinned
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.dispatch.response_slot import ResponseSlot
from klog_broker.runtime.event_loop.slices import SLICE_ELEMENTS
from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.codec import decode_in_steps, decode_message
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request_header,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

UNCOUNTED_BYTES = 8 * 1024
"""A request up to this size is decoded without counting its elements: it is too small to have more
than MAX_REQUEST_ELEMENTS, the most elements of a request that is decoded in one event-loop turn."""

UNCOUNTED_DATA_BYTES = 128 * 1024
"""The size up to which a Produce or Fetch request is decoded without counting its array elements.
The limit is higher than UNCOUNTED_BYTES, the limit for other APIs, because the decoders of these
two APIs are faster, and their elements longer."""

_DECODED_ELEMENTS_A_STEP = 4
"""How many array elements of a request are decoded in about 5 us, one unit of cost of `Slices`
(which runs the decoding of a large request in several event-loop turns)."""

_DATA_APIS = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))


class ConnectionInfo(Protocol):
    """The properties of a connection that the dispatcher uses."""

    @property
    def client_address(self) -> str: ...

    @property
    def connection_id(self) -> str: ...

    @property
    def listener(self) -> str: ...

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def cached_requests(self) -> dict[int, CachedRequest]:
        """The connection's cached requests by API key: objects that serve repeated requests without
        decoding. Only the dispatcher adds any."""

    rules_version: int
    """The version of the authorizer's rules that allowed the requests in ``cached_requests``. Only
    the dispatcher changes it."""

    def forget_cached_requests(self) -> None:
        """Empty ``cached_requests``."""


class Dispatcher:
    """Decodes the request frames of one broker, and calls the handlers."""

    def __init__(
        self,
        runtime: RequestRuntime,
        handlers: Iterable[ApiHandler],
        is_brokers_listener: Callable[[str], bool],
        authorizer: Authorizer | None = None,
    ) -> None:
        """``is_brokers_listener`` returns whether a name is that of the inter-broker listener.

        ``authorizer`` is None if every client may do everything.
        """
        self._authorizer = authorizer
        self._runtime = runtime
        self._is_brokers_listener = is_brokers_listener
        self._handlers: dict[int, ApiHandler] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        for handler in handlers:
            api_key, first, last = handler.api.served
            if api_key in self._handlers:
                raise ValueError(f"{handler.api.api_key.name} has a handler already")
            self._handlers[api_key] = handler
            self._ranges[api_key] = (first, last)

    def serves(self, api_key: int, version: int) -> bool:
        """Whether requests of this API and version are served."""
        first, last = self._ranges.get(api_key, (0, -1))
        return first <= version <= last

    @property
    def pipelined_apis(self) -> frozenset[int]:
        """The keys of the APIs that allow several outstanding requests of one connection."""
        return frozenset(key for key, row in self._handlers.items() if row.api.allows_pipelining)

    def handle_frame(
        self, frame: memoryview, slot: ResponseSlot, connection: ConnectionInfo
    ) -> bool:
        """Serve the request in ``frame`` (without its size); return whether the frame's memory may
        be reused now.

        The memory may be reused if a cached request (an object that serves repeated requests
        without decoding) has served the frame. A decoded request may have views of the memory at
        least until the event-loop turn ends.
        """
        if self._authorizer is not None:
            self._forget_old_decisions(connection, self._authorizer.version)
        # Look the cached request up by the lower byte of the API key only. A match of another API
        # does no harm, because a cached request compares both bytes of the key.
        found = connection.cached_requests.get(frame[1])
        if found is not None:
            try:
                if found.serve(frame, slot):
                    return True
            except Exception as error:
                connection.forget_cached_requests()
                self._runtime.bugs.report(type(found).__name__, error)
                if slot.is_filled:
                    return True
                # The cached request failed before it answered: decode the request, and call its
                # handler.
        self._decode(frame, slot, connection)
        return False

    @staticmethod
    def _forget_old_decisions(connection: ConnectionInfo, version: int) -> None:
        """Drop a connection's cached requests (objects that serve repeated requests without
        decoding) if the authorizer's rules have changed since the requests were allowed.

        The next request of each API is then decoded and checked under the new rules.
        """
        if connection.rules_version != version:
            connection.forget_cached_requests()
            connection.rules_version = version

    def _decode(self, frame: memoryview, slot: ResponseSlot, connection: ConnectionInfo) -> None:
        """Decode a request and hand it to its handler."""
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
                    name = handler.api.api_key.name
                    slot.close(f"{name} is served from {first} to {last}, not as {version}")
                    return
                # Only ApiVersions gets a response in an unsupported version (KIP-511).
                header = header._replace(api_version=0)
                context = self._context(header, slot, connection)
                context.response_sink.send(self._all_ranges())
                return
            message_class = registry.request_class(header.api_key)
            if len(frame) <= UNCOUNTED_BYTES or (
                len(frame) <= UNCOUNTED_DATA_BYTES and header.api_key in _DATA_APIS
            ):
                request, _ = decode_message(message_class, version, frame, position)
            else:
                most = handler.api.max_elements
                if most > MAX_REQUEST_ELEMENTS:
                    if self._is_brokers_listener(connection.listener):
                        context = self._context(header, slot, connection)
                        # The decoding continues in later event-loop turns, but the frame's memory
                        # is reused at the end of this turn: decode a copy.
                        steps = self._decode_later(handler, context, bytes(frame), position)
                        context.response_sink.send_in_slices(steps)
                        return
                    most = MAX_REQUEST_ELEMENTS
                request, _ = decode_message(message_class, version, frame, position, most)
                if header.api_key not in _DATA_APIS:
                    context = self._context(header, slot, connection)
                    steps = self._handle_in_later_slice(handler, request, context)
                    steps = self._with_error_response(handler, request, context, steps)
                    context.response_sink.send_in_slices(steps)
                    return
        except MalformedRequest as error:
            self._runtime.count("requests-malformed")
            slot.close(str(error))
            return
        context = self._context(header, slot, connection)
        denied = self._denied(handler, request, context)
        if denied is not None:
            _send_error(handler, request, context, denied)
            return
        self.handle(handler, request, context)
        if handler.cache_request is not None and len(frame) <= handler.api.cached_request_max_bytes:
            found = handler.cache_request(bytes(frame), request, context)
            if found is not None:
                connection.cached_requests[header.api_key] = found

    def _decode_later(
        self, handler: ApiHandler, context: RequestContext, frame: bytes, position: int
    ) -> ResponseSteps:
        """Decode a large request of another broker in several event-loop turns; call its handler.

        For example, a controller sends a topic with 10,000 partitions in one request.
        """
        header = context.header
        message_class = registry.request_class(header.api_key)
        decoding = decode_in_steps(
            message_class, header.api_version, frame, position, handler.api.max_elements
        )
        try:
            request, _ = yield from thinned(decoding, _DECODED_ELEMENTS_A_STEP)
        except MalformedRequest as error:
            self._runtime.count("requests-malformed")
            context.response_sink.close(str(error))
            return None
        steps = self._handle_in_later_slice(handler, request, context)
        return (yield from self._with_error_response(handler, request, context, steps))

    def _all_ranges(self) -> Response:
        """The ApiVersions response with UNSUPPORTED_VERSION and all served ranges of versions, by
        which the client chooses a version."""
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in sorted(self._ranges.items())
            ],
        )

    def handle(self, handler: ApiHandler, request: Request, context: RequestContext) -> None:
        """Call a handler and send its response. An exception becomes an error response, or closes
        the connection if the API has no error response for the request."""
        try:
            answer = handler.handle(request, context)
            if answer is None:
                return
            if not isinstance(answer, Response):
                steps = answer
                is_over, answer, _ = first_steps(steps)
                if not is_over:
                    steps = self._with_error_response(handler, request, context, steps)
                    context.response_sink.send_in_slices(steps)
                if answer is None:
                    return
            context.response_sink.send(answer)
        except BrokerError as error:
            _send_error(handler, request, context, error)
        except Exception as error:
            self._report_bug(handler, request, context, error)

    def _denied(
        self, handler: ApiHandler, request: Request, context: RequestContext
    ) -> BrokerError | None:
        """The error if the client may not send this request at all; None if the client may send it.

        The handlers themselves check all access that only parts of a request need (to each of its
        topics, for example).
        """
        authorizer = self._authorizer
        if authorizer is None:
            return None
        for operation, resource_type, name_in in handler.api.access:
            name = None if name_in is None else name_in(request)
            if name is not None and not authorizer.is_allowed(
                context.principal, context.client_address, operation, resource_type, name
            ):
                return BrokerError(DENIED_CODES[resource_type])
        return None

    def _handle_in_later_slice(
        self, handler: ApiHandler, request: Request, context: RequestContext
    ) -> ResponseSteps:
        """Call the handler in a later event-loop turn: decoding the large request has already taken
        as long as long work may take in one turn."""
        yield SLICE_ELEMENTS
        denied = self._denied(handler, request, context)
        if denied is not None:
            raise denied
        answer = handler.handle(request, context)
        if answer is None or isinstance(answer, Response):
            return answer
        return (yield from answer)

    def _with_error_response(
        self, handler: ApiHandler, request: Request, context: RequestContext, steps: ResponseSteps
    ) -> ResponseSteps:
        """Run the steps that make a response. A BrokerError becomes an error response with its
        code; any other exception is reported as a bug, and becomes UNKNOWN_SERVER_ERROR."""
        try:
            return (yield from steps)
        except BrokerError as error:
            _send_error(handler, request, context, error)
        except Exception as error:
            self._report_bug(handler, request, context, error)
        return None

    def _report_bug(
        self, handler: ApiHandler, request: Request, context: RequestContext, error: Exception
    ) -> None:
        """Report a bug of the handler, and answer UNKNOWN_SERVER_ERROR unless the handler has
        already answered."""
        self._runtime.bugs.report(handler.api.api_key.name, error)
        response_sink = context.response_sink
        if not (isinstance(response_sink, EncodedResponse) and response_sink.is_used):
            unknown = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
            _send_error(handler, request, context, unknown)

    def _context(
        self, header: RequestHeader, slot: ResponseSlot, connection: ConnectionInfo
    ) -> RequestContext:
        return RequestContext(
            header,
            connection.client_address,
            connection.connection_id,
            connection.listener,
            connection.principal,
            EncodedResponse(slot, header, self._runtime),
        )


def _send_error(
    handler: ApiHandler, request: Request, context: RequestContext, error: BrokerError
) -> None:
    response = handler.api.error_response(request, error.code)
    if response is None:
        context.response_sink.close(str(error))
    else:
        context.response_sink.send(response)
