"""From a frame to its handler: one row an API, and ApiVersions is derived from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from klog_broker.dispatch.api_handler import MAX_REQUEST_ELEMENTS, ApiHandler
from klog_broker.dispatch.authorizer import DENIED_CODES, Authorizer
from klog_broker.dispatch.cached_requests import Prepared
from klog_broker.dispatch.encoded_response import EncodedReply, first_steps, thinned
from klog_broker.dispatch.request_context import AnswerSteps, RequestContext
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.dispatch.response_slot import ReplySlot
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
"""A request up to this size is decoded without counting: it has no room for more elements than
are handled at once."""

UNCOUNTED_DATA_BYTES = 128 * 1024
"""The same for Produce and Fetch, which have decoders of their own and longer elements."""

_DECODED_ELEMENTS_A_STEP = 4
"""Decoding so many partitions takes about as long as an element of `Slices` stands for."""

_DATA_APIS = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))


class ConnectionInfo(Protocol):
    """What the network tells of a connection."""

    @property
    def client_address(self) -> str: ...

    @property
    def connection_id(self) -> str: ...

    @property
    def listener(self) -> str: ...

    @property
    def principal(self) -> KafkaPrincipal: ...

    @property
    def prepared(self) -> dict[int, Prepared]:
        """By API key, what may serve the connection's next request. Only the dispatcher puts
        anything in."""

    rules_version: int
    """The version of the rules under which the requests in ``prepared`` were allowed. Only the
    dispatcher changes it."""

    def forget_prepared(self) -> None:
        """Empties ``prepared``."""


class Dispatcher:
    """The rows of one broker, and the way from a frame through them to its reply slot."""

    def __init__(
        self,
        runtime: RequestRuntime,
        handlers: Iterable[ApiHandler],
        is_brokers_listener: Callable[[str], bool],
        authorizer: Authorizer | None = None,
    ) -> None:
        """``is_brokers_listener``: whether other brokers connect to the listener of this name.
        ``authorizer`` is None if every client may do everything."""
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
        """The keys of the APIs of which a request may follow while another one waits."""
        return frozenset(key for key, row in self._handlers.items() if row.api.lets_next_parse)

    def handle_frame(self, frame: memoryview, slot: ReplySlot, connection: ConnectionInfo) -> bool:
        """Serve a request, a frame without its size. Returns whether the frame's bytes are needed
        no longer. They are not when the request was known by its bytes; a decoded request may have
        views of them until the turn ends."""
        if self._authorizer is not None:
            self._forget_old_decisions(connection, self._authorizer.version)
        # The lower byte of the API key is enough: what is found compares the whole frame.
        found = connection.prepared.get(frame[1])
        if found is not None:
            try:
                if found.serve(frame, slot):
                    return True
            except Exception as error:
                connection.forget_prepared()
                self._runtime.bugs.report(type(found).__name__, error)
                if slot.is_filled:
                    return True
                # Nothing was answered: the handler serves the request.
        self._decode(frame, slot, connection)
        return False

    @staticmethod
    def _forget_old_decisions(connection: ConnectionInfo, version: int) -> None:
        """Cached requests were allowed under the rules of their time: after a change of the rules
        the next request of each API is decoded and checked."""
        if connection.rules_version != version:
            connection.forget_prepared()
            connection.rules_version = version

    def _decode(self, frame: memoryview, slot: ReplySlot, connection: ConnectionInfo) -> None:
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
                # ApiVersions alone is answered in any version (KIP-511).
                header = header._replace(api_version=0)
                context = self._context(header, slot, connection)
                context.reply.send(self._all_ranges())
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
                        # The turn's end frees the memory of the frame: the steps need a copy.
                        steps = self._decode_later(handler, context, bytes(frame), position)
                        context.reply.send_in_slices(steps)
                        return
                    most = MAX_REQUEST_ELEMENTS
                request, _ = decode_message(message_class, version, frame, position, most)
                if header.api_key not in _DATA_APIS:
                    context = self._context(header, slot, connection)
                    steps = self._handle_later(handler, request, context)
                    steps = self._guarded(handler, request, context, steps)
                    context.reply.send_in_slices(steps)
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
        if handler.prepare is not None and len(frame) <= handler.api.prepared_bytes:
            found = handler.prepare(bytes(frame), request, context)
            if found is not None:
                connection.prepared[header.api_key] = found

    def _decode_later(
        self, handler: ApiHandler, context: RequestContext, frame: bytes, position: int
    ) -> AnswerSteps:
        """Decode a request of another broker in slices, and hand it to its handler: the whole of a
        topic with 10,000 partitions comes in one request."""
        header = context.header
        message_class = registry.request_class(header.api_key)
        decoding = decode_in_steps(
            message_class, header.api_version, frame, position, handler.api.max_elements
        )
        try:
            request, _ = yield from thinned(decoding, _DECODED_ELEMENTS_A_STEP)
        except MalformedRequest as error:
            self._runtime.count("requests-malformed")
            context.reply.close(str(error))
            return None
        steps = self._handle_later(handler, request, context)
        return (yield from self._guarded(handler, request, context, steps))

    def _all_ranges(self) -> Response:
        """Error 35 with what is served, so that the client can ask again in a version it finds."""
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in sorted(self._ranges.items())
            ],
        )

    def handle(self, handler: ApiHandler, request: Request, context: RequestContext) -> None:
        """Runs a handler; whatever it raises is answered."""
        try:
            answer = handler.handle(request, context)
            if answer is None:
                return
            if not isinstance(answer, Response):
                steps = answer
                is_over, answer = first_steps(steps)
                if not is_over:
                    steps = self._guarded(handler, request, context, steps)
                    context.reply.send_in_slices(steps)
                if answer is None:
                    return
            context.reply.send(answer)
        except BrokerError as error:
            _send_error(handler, request, context, error)
        except Exception as error:
            self._answer_bug(handler, request, context, error)

    def _denied(
        self, handler: ApiHandler, request: Request, context: RequestContext
    ) -> BrokerError | None:
        """The error if the client may not send this request at all. Handlers check the access to
        single resources of a request."""
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

    def _handle_later(
        self, handler: ApiHandler, request: Request, context: RequestContext
    ) -> AnswerSteps:
        """Decoding a long request has taken its share of this turn."""
        yield SLICE_ELEMENTS
        denied = self._denied(handler, request, context)
        if denied is not None:
            raise denied
        answer = handler.handle(request, context)
        if answer is None or isinstance(answer, Response):
            return answer
        return (yield from answer)

    def _guarded(
        self, handler: ApiHandler, request: Request, context: RequestContext, steps: AnswerSteps
    ) -> AnswerSteps:
        """As ``handle`` does, in slices."""
        try:
            return (yield from steps)
        except BrokerError as error:
            _send_error(handler, request, context, error)
        except Exception as error:
            self._answer_bug(handler, request, context, error)
        return None

    def _answer_bug(
        self, handler: ApiHandler, request: Request, context: RequestContext, error: Exception
    ) -> None:
        """The handler is wrong, not the request."""
        self._runtime.bugs.report(handler.api.api_key.name, error)
        reply = context.reply
        if not (isinstance(reply, EncodedReply) and reply.is_used):
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
            connection.principal,
            EncodedReply(slot, header, self._runtime),
        )


def _send_error(
    handler: ApiHandler, request: Request, context: RequestContext, error: BrokerError
) -> None:
    response = handler.api.error_response(request, error.code)
    if response is None:
        context.reply.close(str(error))
    else:
        context.reply.send(response)
