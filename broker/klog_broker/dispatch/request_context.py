"""The context of a request: its client, its connection, and the destination of its response.

A handler returns its response, or returns None and answers through ``context.response_sink``,
perhaps later: only once, by a method that sends a response, ``skip`` or ``close``. A response that
can become long is a generator of steps (``ResponseSteps``), which may run in several event-loop
turns. A request's records are views of the buffer into which they were received, valid until the
event-loop turn ends (see ``ResponseSink.hold``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.headers import RequestHeader
from pyspark_klog.protocol.message import Response


class ResponseSink(Protocol):
    """Takes the response to one request. Exactly one response, `skip` or `close` is permitted."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, so that a client may still wait for the response."""

    def send(self, response: Response) -> None:
        """Queue the response, which is sent after all earlier responses of the connection."""

    def send_parts(self, parts: list[Any]) -> None:
        """Queue the response, given as the parts of its whole encoded frame."""

    def send_early(self) -> None:
        """Write the response to the socket now, before the other responses of this event-loop turn.

        The response waits as usual while an earlier response of the connection is missing. Must
        not be called while the handler runs: the connection is then still parsing its requests, and
        a send that fails closes it.
        """

    def send_in_slices(self, steps: ResponseSteps) -> None:
        """Run the steps, in several event-loop turns if they take long, with other clients'
        requests in between, and queue the response that the steps return, if any. If the connection
        closes, the remaining steps are not run."""

    def skip(self) -> None:
        """End the request without a response: for Produce with acks=0, or for a closed
        connection."""

    def close(self, reason: str) -> None:
        """Close the connection after sending earlier responses, because no response can express
        the error."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` if the connection closes before this request is answered."""

    def hold(self) -> bool:
        """Parse no more requests of the connection before this one is answered.

        Returns whether this request's bytes stay valid until the answer, as they do for a large
        frame, which has a buffer of its own. The bytes of other requests lie in the receive buffer,
        and are valid only until the end of this event-loop turn.
        """


@dataclass(slots=True, eq=False)
class RequestContext:
    """The context of one request. The objects of the broker that handlers use (its services, such
    as the log manager) are not part of the context, because ``BrokerApi.bind`` binds them to the
    handler."""

    header: RequestHeader
    client_address: str
    """The client's IP address, as text."""
    connection_id: str
    """The connection's id, unique in this process: ``local-remote-number``. Log lines name it, and
    appends that wait for validation are queued by it. Later connections have greater numbers."""
    listener: str
    """The name of the listener that accepted the connection."""
    principal: KafkaPrincipal
    """The client's principal; ANONYMOUS without authentication."""
    response_sink: ResponseSink

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The client id in the request's header; empty if there is none."""
        return self.header.client_id or ""


ResponseSteps = Generator[int, None, Response | None]
"""A generator that makes a response in steps; each step yields its cost in elements, units of about
5 us (runtime/event_loop/slices.py). For responses that grow with the request, or with the number of
the broker's topics and groups."""

Handle = Callable[[Any, RequestContext], Response | ResponseSteps | None]
"""(request, context) -> the response, at once or in steps; None if the handler sends the response,
now or later, through ``context.response_sink``."""

ErrorResponse = Callable[[Any, ErrorCode], Response | None]
"""(request, code) -> a response with ``code`` in all its error fields; or None, which closes the
connection, because the client expects no response (Produce with acks=0)."""
