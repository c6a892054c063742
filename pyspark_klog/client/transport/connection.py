"""One connection to one broker as a state machine: no socket, no clock.

A driver, which owns the socket, reports events (`connected`, `received`, `lost`, `on_deadline`) and
asks what to do next
(`to_send`, `receive_buffer`, `next_deadline_ms`). A connection first asks for the broker's versions
(ApiVersions), and authenticates if it has a SASL mechanism; then `send` accepts requests, whose
responses come in order. A broker may limit the time of a SASL session: `authentication_due` says
when to call `authenticate` again (KIP-368).
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar, cast

from pyspark_klog._version import __version__
from pyspark_klog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    ReplyUnreadable,
    RequestTimedOut,
)
from pyspark_klog.client.transport.api_versions import BrokerVersions
from pyspark_klog.client.transport.frames import ResponseFrames
from pyspark_klog.client.transport.sasl_exchange import (
    HANDSHAKE_VERSION,
    REAUTHENTICATE_AT,
    Mechanism,
    SaslExchange,
)
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pyspark_klog.protocol.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pyspark_klog.protocol.apis.sasl_handshake import SaslHandshakeResponse
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request_parts
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

R = TypeVar("R", bound=Response)

MAX_RESPONSE_BYTES = 1 << 30
MAX_STRANGERS_RESPONSE_BYTES = 1 << 20
"""Most bytes of a response before the connection is ready, while it is unknown whether the
program at the other end is a broker."""
_LAST_CORRELATION_ID = 2**31 - 1
_API_VERSIONS_VERSION = 4
"""The version of ApiVersions that this client sends first. Version 5 adds only the ids of the
cluster and broker that a client expects (KIP-1242). This client does not send these ids, and
brokers before Kafka 4.4 refuse version 5, which costs a round trip.
"""


class ClientConnectionState(Enum):
    """The state of a connection. Only SASL needs AUTHENTICATING, which may also follow READY;
    CLOSED may follow any state."""

    CONNECTING = "connecting"
    NEGOTIATING = "asking for versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


@dataclass(slots=True)
class Call(Generic[R]):
    """A request that was queued or sent, with its response or its error once it is done."""

    api_key: ApiKey
    version: int
    correlation_id: int
    deadline_ms: int
    response: R | None = None
    error: KlogError | None = None
    expects_response: bool = field(default=True)

    @property
    def is_done(self) -> bool:
        return self.response is not None or self.error is not None

    def result(self) -> R:
        """Return the response; raises the call's error if the call failed, and RuntimeError before
        the call is done."""
        if self.error is not None:
            raise self.error
        if self.response is None:
            raise RuntimeError("the call is not done yet")
        return self.response


class Connection:
    """The state of Kafka's protocol on one connection to ``peer`` (an address, for messages).

    ``mechanism`` authenticates this client with SASL; None if SASL is not used.
    """

    def __init__(
        self,
        peer: str,
        *,
        client_id: str,
        request_timeout_ms: int,
        max_response_bytes: int,
        mechanism: Mechanism | None = None,
    ) -> None:
        self.peer = peer
        self.state = ClientConnectionState.CONNECTING
        self.error: KlogError | None = None
        self.versions: BrokerVersions | None = None
        self._chosen: dict[tuple[ApiKey, int, int | None], int] = {}
        """The cached results of the method `version`, by its arguments."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._max_response_bytes = max_response_bytes
        self._frames = ResponseFrames(min(max_response_bytes, MAX_STRANGERS_RESPONSE_BYTES))
        self._calls: deque[Call[Response]] = deque()
        self._out: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._unanswered: deque[tuple[int, Call[Response], Response]] = deque()
        """Calls that expect no response (Produce with acks=0), as (value of ``sent_bytes`` from
        which on the call is done, the call, its empty response)."""
        self._next_correlation_id = 0
        self._has_answered = False
        self._uses_sasl = mechanism is not None
        self._mechanism = mechanism
        self._exchange: SaslExchange | None = None
        self._exchange_call: Call[Response] | None = None
        self._exchange_began_ms = 0
        self._authentication_due_ms: int | None = None

    # --- events that the driver of the socket reports --------------------------------------------
    def connected(self, now_ms: int) -> None:
        """Ask the broker for its API versions (ApiVersions), now that the socket is connected."""
        self.state = ClientConnectionState.NEGOTIATING
        self._ask_for_versions(_API_VERSIONS_VERSION, now_ms)

    def received(self, count: int) -> None:
        """Handle ``count`` bytes in `receive_buffer`; 0: the peer has closed the connection."""
        if self.state is ClientConnectionState.CLOSED:
            return
        if count == 0:
            self.lost(ConnectionFailed(f"{self.peer} closed the connection{self._closed_while()}"))
            return
        self.received_bytes += count
        try:
            for frame in self._whole_frames(count):
                self._take_response(frame)
        except KlogError as error:
            self.lost(error)

    def lost(self, error: KlogError) -> None:
        """End the connection; every request without a response fails with ``error``."""
        if self.state is ClientConnectionState.CLOSED:
            return
        self.state = ClientConnectionState.CLOSED
        self.error = error
        self._out.clear()
        for call in (*self._calls, *(call for _, call, _ in self._unanswered)):
            call.error = error
        self._calls.clear()
        self._unanswered.clear()

    def on_deadline(self, now_ms: int) -> None:
        """End the connection if the response to the oldest request is late: a broker answers in
        order, so the other responses can only come after it."""
        due = self.next_deadline_ms()
        if due is not None and now_ms >= due:
            name = self._calls[0].api_key.name
            self.lost(RequestTimedOut(f"{self.peer} did not answer {name} in time"))

    # --- what the driver sends and receives ------------------------------------------------------
    def to_send(self) -> memoryview | None:
        """The next bytes for the socket, None if there are none; `sent` reports how many of them
        were sent."""
        return self._out[0] if self._out else None

    def sent(self, count: int) -> None:
        """Remove ``count`` bytes, which the socket has sent, from those of `to_send`."""
        self.sent_bytes += count
        first = self._out[0]
        if count == len(first):
            self._out.popleft()
        else:
            self._out[0] = first[count:]
        while self._unanswered and self._unanswered[0][0] <= self.sent_bytes:
            _, call, response = self._unanswered.popleft()
            call.response = response

    def receive_buffer(self) -> memoryview:
        """The memory for the next received bytes."""
        return self._frames.buffer()

    def next_deadline_ms(self) -> int | None:
        """When to call `on_deadline`, unless a response comes before; None if no request waits for
        a response."""
        return self._calls[0].deadline_ms if self._calls else None

    # --- authentication --------------------------------------------------------------------------
    def authentication_due(self, now_ms: int) -> bool:
        """Whether the SASL session ends soon; if so, `authenticate` comes before other requests."""
        due_ms = self._authentication_due_ms
        return due_ms is not None and now_ms >= due_ms and self.state is ClientConnectionState.READY

    def authenticate(self, mechanism: Mechanism, now_ms: int) -> None:
        """Begin an authentication. No request may be sent until the connection is ready again.

        :raises AuthenticationFailed: if the broker lacks SASL
        :raises UnsupportedByBroker: if the broker lacks version 1 of SaslHandshake
        """
        if self.versions is not None and ApiKey.SASL_HANDSHAKE not in self.versions.ranges:
            raise AuthenticationFailed(
                f"{self.peer} is a broker without SASL: set security.protocol to PLAINTEXT, or to "
                "SSL if its listener has TLS"
            )
        version = self.version(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, HANDSHAKE_VERSION)
        self.state = ClientConnectionState.AUTHENTICATING
        self._authentication_due_ms = None
        self._exchange = SaslExchange(mechanism, self.peer)
        self._exchange_began_ms = now_ms
        request = self._exchange.handshake_request()
        call = self._queue(request, SaslHandshakeResponse, version, now_ms)
        self._exchange_call = cast("Call[Response]", call)

    # --- sending requests ------------------------------------------------------------------------
    @property
    def in_flight(self) -> int:
        """The number of requests that were queued or sent and wait for a response."""
        return len(self._calls)

    def version(self, api_key: ApiKey, low: int = 0, high: int | None = None) -> int:
        """The newest version of an API, from ``low`` to ``high``, that klog and the broker speak.

        :raises UnsupportedByBroker: if there is no such version
        """
        wanted = (api_key, low, high)
        chosen = self._chosen.get(wanted)
        if chosen is None:
            if self.versions is None:
                raise RuntimeError("the broker has not sent its API versions yet")
            chosen = self._chosen[wanted] = self.versions.choose(api_key, low, high, self.peer)
        return chosen

    def send(
        self,
        message: Request,
        response_class: type[R],
        version: int,
        now_ms: int,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> Call[R]:
        """Queue a request. ``timeout_ms``, the wait of a long poll, is added to request.timeout.ms.

        A call that expects no response is done, with an empty one, once all its bytes were sent.
        """
        if self.state is ClientConnectionState.CLOSED:
            raise self.error or ConnectionFailed(f"the connection to {self.peer} is closed")
        if self.state is not ClientConnectionState.READY:
            raise RuntimeError(f"the connection to {self.peer} is {self.state.value}, not ready")
        return self._queue(
            message,
            response_class,
            version,
            now_ms,
            timeout_ms=timeout_ms,
            expects_response=expects_response,
        )

    # --- queueing requests, and handling responses ------------------------------------------------
    def _queue(
        self,
        message: Request,
        response_class: type[R],
        version: int,
        now_ms: int,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> Call[R]:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _LAST_CORRELATION_ID
        api_key = response_class.api_key
        deadline_ms = now_ms + self._request_timeout_ms + (timeout_ms or 0)
        header = RequestHeader(
            api_key=api_key,
            api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        for part in encode_request_parts(header, message):
            assert not isinstance(part, FileRegion)
            if len(part):
                self._out.append(memoryview(part))
                self._queued_bytes += len(part)
        call: Call[R] = Call(api_key, version, correlation_id, deadline_ms)
        if expects_response:
            self._calls.append(cast("Call[Response]", call))
        else:
            call.expects_response = False
            end = (self._queued_bytes, cast("Call[Response]", call), response_class())
            self._unanswered.append(end)
        return call

    def _whole_frames(self, count: int) -> list[memoryview]:
        try:
            return self._frames.received(count)
        except ReplyUnreadable as error:
            raise ReplyUnreadable(f"{self.peer}: {error}") from None

    def _closed_while(self) -> str:
        """The text appended to the error message "the broker closed the connection": in which state
        or at which request the broker closed it, and the likely cause, as far as they are known."""
        if self.state is not ClientConnectionState.READY:
            hint = (
                ": has this listener TLS?"
                if self.state is ClientConnectionState.NEGOTIATING
                else ""
            )
            return f" while {self.state.value}{hint}"
        if self._has_answered or self._uses_sasl or not self._calls:
            return ""
        # A listener with SASL answers ApiVersions without authentication, and closes the connection
        # at any other request. So SASL is the likely cause if the first other request fails. A klog
        # broker that has just started closes a connection that asks for all topics if the
        # controller has not sent them in time.
        name = self._calls[0].api_key.name
        cause = "has this listener SASL, or has the broker just started?"
        return f" at the first request, {name}: {cause}"

    def _ask_for_versions(self, version: int, now_ms: int) -> None:
        request = ApiVersionsRequest()
        if version >= 3:
            request.client_software_name = "pyspark-klog"
            request.client_software_version = __version__
        self._queue(request, ApiVersionsResponse, version, now_ms)

    def _take_response(self, frame: memoryview) -> None:
        if not self._calls:
            raise ReplyUnreadable(f"{self.peer} sent a reply although no request was waiting")
        call = self._calls[0]
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != call.correlation_id:
            raise ReplyUnreadable(
                f"{self.peer} answered request {correlation_id}; expected {call.correlation_id}, "
                "replies come in order"
            )
        if self.state is ClientConnectionState.NEGOTIATING:
            self._calls.popleft()
            self._take_versions(frame, call)
            return
        try:
            response = decode_response(frame, call.api_key, call.version)
        except KlogError as error:
            text = f"the reply of {self.peer} to {call.api_key.name} v{call.version} is unreadable"
            raise ReplyUnreadable(f"{text}: {error}") from error
        self._calls.popleft()
        call.response = response
        self._has_answered = True
        if call is self._exchange_call:
            self._continue_authentication(response)

    def _continue_authentication(self, response: Response) -> None:
        """Handle a response of the SASL exchange, and send the exchange's next request, if any. All
        requests of the exchange together have the timeout of one request."""
        exchange = self._exchange
        assert exchange is not None
        request: SaslAuthenticateRequest | None
        if isinstance(response, SaslHandshakeResponse):
            request = exchange.on_handshake(response)
        else:
            assert isinstance(response, SaslAuthenticateResponse)
            request = exchange.on_authenticate(response)
        if request is not None:
            version = self.version(ApiKey.SASL_AUTHENTICATE)
            call = self._queue(request, SaslAuthenticateResponse, version, self._exchange_began_ms)
            self._exchange_call = cast("Call[Response]", call)
            return
        self._exchange = self._exchange_call = None
        if exchange.session_lifetime_ms > 0:
            # The broker counts the session's lifetime from the end of the SASL exchange. This
            # client counts from the exchange's start, so that its count never ends later.
            usable_ms = int(exchange.session_lifetime_ms * REAUTHENTICATE_AT)
            self._authentication_due_ms = self._exchange_began_ms + usable_ms
        self._become_ready()

    def _become_ready(self) -> None:
        self.state = ClientConnectionState.READY
        self._frames.max_frame_bytes = self._max_response_bytes

    def _take_versions(self, frame: memoryview, call: Call[Response]) -> None:
        """Handle the response to ApiVersions. A broker that lacks the requested version responds
        with UNSUPPORTED_VERSION (35), since Kafka 2.4 together with its own versions of
        ApiVersions. In this case ask again in the highest of these versions, or in version 0."""
        response = decode_response(frame, ApiKey.API_VERSIONS, call.version)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and call.version > 0:
            own = [row for row in response.api_keys if row.api_key == ApiKey.API_VERSIONS]
            highest = min(own[0].max_version, call.version - 1) if own else 0
            self._ask_for_versions(max(highest, 0), call.deadline_ms - self._request_timeout_ms)
            return
        if response.error_code:
            raise ClientError(
                f"{self.peer} refused ApiVersions with error {response.error_code}; "
                "expected a Kafka broker from 0.10.1 on"
            )
        self.versions = BrokerVersions.of(response)
        self._chosen.clear()
        if self._mechanism is not None:
            mechanism, self._mechanism = self._mechanism, None
            self.authenticate(mechanism, call.deadline_ms - self._request_timeout_ms)
            return
        self._become_ready()
