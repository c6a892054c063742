"""The evented driver: a connection to one broker, for code that runs in an event loop.

The driver never waits and has no thread: the loop calls it when a descriptor is ready or a timer
expires. Loop and streams are Protocols (`event_loop`), random numbers come from an argument. TLS
and SASL come from a function that prepares each attempt to connect (`preparation`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from pyspark_klog.client.errors import ConnectionFailed, RequestTimedOut
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.connection import (
    MAX_RESPONSE_BYTES,
    ClientConnectionState,
    Connection,
)
from pyspark_klog.client.transport.event_loop import (
    BROKEN,
    READABLE,
    WRITABLE,
    Connector,
    EventLoop,
    LoopStream,
    LoopTimer,
)
from pyspark_klog.client.transport.evented_link import EventedLink
from pyspark_klog.client.transport.pending_request import Build, OnDone, PendingRequest
from pyspark_klog.client.transport.preparation import Prepare, Prepared
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.message import Response

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventedSettings:
    """The settings of an `EventedConnection`; the defaults of times and of ``max_in_flight`` are
    those of Kafka's clients."""

    client_id: str
    from_address: str | None = None
    """The local IP address of the connection; None leaves the choice to the system."""
    setup_timeout_ms: int = 10_000
    """The longest time for connecting and the response to ApiVersions, together."""
    reconnect: Backoff = field(default_factory=lambda: Backoff(50, 1_000))
    """The wait from the end of one connection to the start of the next."""
    max_in_flight: int = 5
    """The most requests that wait for a response on the connection; further requests are queued."""
    max_response_bytes: int = MAX_RESPONSE_BYTES


class EventedConnection:
    """A connection to one broker, made when a request needs it and made again after a loss.

    The callback of each `send` is called exactly once, in the order of sending, by the loop or by
    `close`: never within `send` or another callback. Callbacks may call `send` and `close`. If the
    connection can't be made or is lost, or a request times out, the connection is closed, and all
    unanswered and queued requests fail with the same error. So if the caller then sends a failed
    request again, no request that it sent after the failed one has succeeded meanwhile. All methods
    must be called in the loop's thread. ``random`` returns [0, 1), for the waits between
    connections.
    """

    def __init__(
        self,
        address: Address,
        settings: EventedSettings,
        *,
        loop: EventLoop,
        connector: Connector,
        random: Callable[[], float],
        prepare: Prepare | None = None,
    ) -> None:
        """Without ``prepare`` the address must be an IP address, and there is neither TLS nor
        SASL."""
        self.address = address
        self._settings = settings
        self._loop = loop
        self._connector = connector
        self._random = random
        self._closed: ConnectionFailed | None = None
        self._link: EventedLink | None = None
        self._prepare = prepare
        self._is_preparing = False
        self._preparations = 0
        """The number of preparations that were begun or given up."""
        self._setup_deadline_ms = 0
        self._failures = 0
        self._last_error: KlogError | None = None
        self._connect_at_ms = 0
        self._next_number = 0
        self._started: deque[PendingRequest] = deque()
        """Requests that were sent or have failed; all of them are older than the requests in
        `_waiting`, which are queued and were not sent yet."""
        self._waiting: deque[PendingRequest] = deque()
        self._is_answering = False
        self._is_called_soon = False
        self._is_sent_soon = False
        self._timer: LoopTimer | None = None
        self._timer_ms = 0

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called; check it before you repeat a failed request."""
        return self._closed is not None

    @property
    def unanswered(self) -> int:
        """The number of requests whose callbacks have not been called yet."""
        return len(self._started) + len(self._waiting)

    def send(
        self,
        response_class: type[R],
        build: Build,
        on_done: OnDone[R],
        timeout_ms: int,
        *,
        low: int = 0,
        high: int | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request in the newest version, from ``low`` to ``high``, that klog and the broker
        support.

        ``timeout_ms`` counts from now and includes connecting and queueing. A request that
        ``expects_response`` is False for (Produce with acks=0) is done, with an empty response,
        once all its bytes were sent. Errors that
        ``on_done`` gets: ConnectionFailed (also after `close`), RequestTimedOut, ReplyUnreadable,
        other kinds of ClientError, and errors of encoding the request. Only UnsupportedByBroker and
        the errors of encoding leave the connection open.
        """
        deadline_ms = self._loop.now_ms() + timeout_ms
        pending = PendingRequest(
            self._next_number,
            build,
            response_class,
            on_done,
            deadline_ms,
            (low, high),
            expects_response,
        )
        self._next_number += 1
        if self._closed is not None:
            pending.error = self._closed
            self._started.append(pending)
        else:
            self._waiting.append(pending)
            self._wake_by(deadline_ms)
        if self._closed is None:
            if not self._is_sent_soon:
                self._is_sent_soon = True
                self._loop.call_at_send(self._on_send)
        elif not self._is_answering:
            self._call_soon()

    def close(self, reason: str = "the client closed it") -> None:
        """End the connection for good. Unanswered requests fail with ConnectionFailed before
        `close` returns or, if a callback called `close`, right after that callback."""
        if self._closed is not None:
            return
        self._closed = ConnectionFailed(f"connection to {self.address}: {reason}")
        self._end(self._closed)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_answering:
            self._run_turn()

    # --- callbacks of finished requests, and sending of queued requests --------------------------
    def _run_turn(self) -> None:
        """Call the callbacks of finished requests, then send queued requests. Called after every
        event: the socket is ready, the timer has expired, `close` was called, or a request has
        finished outside these events (`_call_soon`)."""
        self._answer()
        self._start()

    def _on_send(self) -> None:
        self._is_sent_soon = False
        if self._closed is None:
            self._start()

    def _start(self) -> None:
        if self._link is None:
            self._connect_if_due()
        elif not self._link.is_connecting:
            self._start_waiting(self._link.connection)
            self._link.send_pending()
            self._check(self._link)
        if self._started and self._started[0].is_done:
            self._call_soon()

    def _answer(self) -> None:
        """Call the callbacks of finished requests, in order. If a callback sends a request, that
        request's callback is called only by a later call of this method: otherwise a caller that
        repeats a failing request at once would block the loop."""
        end = self._next_number
        started = self._started
        self._is_answering = True
        try:
            while started and started[0].is_done and started[0].number < end:
                pending = started.popleft()
                if pending.call is not None and pending.call.response is not None:
                    self._failures = 0
                pending.call_back()
        finally:
            self._is_answering = False

    def _start_waiting(self, connection: Connection) -> None:
        if self._prepare is not None and connection.authentication_due(self._loop.now_ms()):
            if self._waiting and not self._is_preparing:
                self._begin_preparation(self._prepare)
            return
        while (
            self._waiting
            and connection.state is ClientConnectionState.READY
            and connection.in_flight < self._settings.max_in_flight
        ):
            pending = self._waiting.popleft()
            self._started.append(pending)
            try:
                version = connection.version(pending.response_class.api_key, *pending.versions)
                # The timeout of the request counts from the call of `send`, and this class checks
                # it (`_overdue`). The deadline that `connection` counts from now is not used.
                pending.call = connection.send(
                    pending.build(version),
                    pending.response_class,
                    version,
                    self._loop.now_ms(),
                    expects_response=pending.expects_response,
                )
            except KlogError as error:
                pending.error = error

    def _call_soon(self) -> None:
        if not self._is_called_soon:
            self._is_called_soon = True
            self._loop.call_soon(self._on_soon)

    def _on_soon(self) -> None:
        self._is_called_soon = False
        self._run_turn()

    # --- connecting, receiving and sending -------------------------------------------------------
    def _connect_if_due(self) -> None:
        now_ms = self._loop.now_ms()
        if not self._waiting:
            return
        if now_ms < self._connect_at_ms:
            self._wake_by(self._connect_at_ms)
            return
        if self._prepare is None:
            self._connect(Prepared(self.address.host))
        elif not self._is_preparing:
            self._begin_preparation(self._prepare)

    def _begin_preparation(self, prepare: Prepare) -> None:
        self._is_preparing = True
        self._preparations += 1
        self._setup_deadline_ms = self._loop.now_ms() + self._settings.setup_timeout_ms
        self._wake_by(self._setup_deadline_ms)
        prepare(self.address, partial(self._on_prepared, self._preparations))

    def _on_prepared(self, number: int, found: Prepared | KlogError) -> None:
        if number != self._preparations:
            return  # this preparation was given up, because it took too long for example
        self._is_preparing = False
        if isinstance(found, KlogError):
            self._lost(found)
        elif self._link is None:
            self._connect(found)
        else:
            self._authenticate_again(self._link.connection, found)
        self._run_turn()

    def _connect(self, prepared: Prepared) -> None:
        settings = self._settings
        try:
            stream: LoopStream = self._connector.connect(
                prepared.host, self.address.port, settings.from_address
            )
        except (OSError, ValueError) as error:
            self._lost(self._could_not_connect(error))
            return
        secure = None
        if prepared.secure is not None:
            try:
                stream = secure = prepared.secure(stream)
            except KlogError as error:
                stream.close()
                self._lost(error)
                return
        connection = Connection(
            str(self.address),
            client_id=settings.client_id,
            request_timeout_ms=settings.setup_timeout_ms,
            max_response_bytes=settings.max_response_bytes,
            mechanism=prepared.mechanism,
        )
        self._setup_deadline_ms = self._loop.now_ms() + settings.setup_timeout_ms
        self._wake_by(self._setup_deadline_ms)
        self._link = EventedLink(
            self.address, connection, stream, secure, self._loop, self._on_ready
        )

    def _authenticate_again(self, connection: Connection, prepared: Prepared) -> None:
        """Begin to authenticate again (KIP-368): the broker ends the SASL session soon."""
        assert prepared.mechanism is not None
        now_ms = self._loop.now_ms()
        self._setup_deadline_ms = now_ms + self._settings.setup_timeout_ms
        self._wake_by(self._setup_deadline_ms)
        try:
            connection.authenticate(prepared.mechanism, now_ms)
        except KlogError as error:
            self._lost(error)

    def _on_ready(self, events: int) -> None:
        link = self._link
        if link is None:
            return
        if not link.is_connecting:
            if events & (READABLE | BROKEN):
                self._receive(link)
        elif events & WRITABLE:
            error = link.connect_error()
            if error is not None:
                self._lost(self._could_not_connect(error))
            else:
                link.connection.connected(self._loop.now_ms())
        self._run_turn()

    def _receive(self, link: EventedLink) -> None:
        link.receive()
        self._check(link)

    def _check(self, link: EventedLink) -> None:
        if link.connection.error is not None:
            self._lost(link.connection.error)

    def _could_not_connect(self, error: OSError | ValueError) -> ConnectionFailed:
        text = getattr(error, "strerror", None) or str(error)
        return ConnectionFailed(f"could not connect to {self.address}: {text}")

    # --- closing and timeouts --------------------------------------------------------------------
    def _lost(self, error: KlogError) -> None:
        """Close a failed connection. The next connection is made after a wait, which grows with the
        number of failures in a row, up to a limit. The response to a request resets this number; a
        new connection does not."""
        self._failures += 1
        wait_ms = self._settings.reconnect.wait_ms(self._failures, self._random)
        self._connect_at_ms = self._loop.now_ms() + wait_ms
        self._last_error = error
        self._end(error)

    def _end(self, error: KlogError) -> None:
        """Close the stream, if there is one, and fail all unanswered and queued requests with
        ``error``."""
        link, self._link = self._link, None
        self._is_preparing = False
        self._preparations += 1
        if link is not None:
            link.close(error)
        self._started += self._waiting
        self._waiting.clear()
        for pending in self._started:
            if not pending.is_done:
                pending.error = error

    def _wake_by(self, at_ms: int) -> None:
        """Start the timer that calls `_on_time`, so that it expires at ``at_ms`` or earlier."""
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._loop.call_at(at_ms, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._link is not None and not self._link.is_connecting:
            # Receive before looking for overdue requests: a request whose response came while the
            # loop ran other code is not overdue.
            self._receive(self._link)
        overdue = self._overdue(self._loop.now_ms())
        if overdue is not None and (self._link is not None or self._is_preparing):
            self._lost(overdue)
        elif overdue is not None:
            self._end(overdue)
        self._run_turn()
        self._wake_for_the_next()

    def _wake_for_the_next(self) -> None:
        due_ms = [
            pending.deadline_ms
            for pending in (*self._started, *self._waiting)
            if not pending.is_done
        ]
        connection = None if self._link is None else self._link.connection
        is_ready = connection is not None and connection.state is ClientConnectionState.READY
        if self._is_preparing or (connection is not None and not is_ready):
            due_ms.append(self._setup_deadline_ms)
        elif self._link is None and self._waiting:
            due_ms.append(self._connect_at_ms)
        if due_ms:
            self._wake_by(min(due_ms))

    def _overdue(self, now_ms: int) -> KlogError | None:
        """The error if connecting or a request has taken too long; None if nothing is overdue."""
        connection = None if self._link is None else self._link.connection
        if self._is_preparing and now_ms >= self._setup_deadline_ms:
            return ConnectionFailed(
                f"could not connect to {self.address}: its address, or what TLS and SASL need, was "
                f"not known within {self._settings.setup_timeout_ms} ms"
            )
        if connection is not None and now_ms >= self._setup_deadline_ms:
            if connection.state is ClientConnectionState.AUTHENTICATING:
                return RequestTimedOut(f"{self.address} did not end the SASL exchange in time")
            if connection.state is ClientConnectionState.NEGOTIATING:
                return RequestTimedOut(f"{self.address} did not answer API_VERSIONS in time")
            if connection.state is ClientConnectionState.CONNECTING:
                waited = f"no answer within {self._settings.setup_timeout_ms} ms"
                return ConnectionFailed(f"could not connect to {self.address}: {waited}")
        for pending in (*self._started, *self._waiting):
            if now_ms < pending.deadline_ms or pending.is_done:
                continue
            if pending.call is not None:
                return RequestTimedOut(f"{self.address} did not answer {pending.name} in time")
            if connection is None:
                why = str(self._last_error or "there was no connection yet")
            else:
                why = f"the connection is {connection.state.value}"
            return RequestTimedOut(
                f"{pending.name} could not be sent to {self.address} in time: {why}"
            )
        return None
