"""What a handler gets besides the request and its services: who asks, and where the response goes.

A handler returns its response, or returns None and answers later through ``context.reply``: exactly
once, by ``send``, ``skip`` or ``close``. Until then a request that waits lies in the purgatory.
A response that can become long is a generator of steps (``AnswerSteps``), which the dispatcher
takes in slices.
A request's records are views of the receive buffer, valid until the turn's append phase ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.headers import RequestHeader
from pyspark_klog.protocol.message import Response


class Reply(Protocol):
    """The place of one answer in its connection's order. Used exactly once."""

    @property
    def is_open(self) -> bool:
        """False once the connection is gone: nobody waits for this answer any more."""

    def send(self, response: Response) -> None:
        """Answers. The response leaves once all earlier responses of the connection have left."""

    def send_parts(self, parts: list[Any]) -> None:
        """As :meth:`send`, with the parts of the response's whole frame."""

    def leave_now(self) -> None:
        """What was sent leaves before all that this turn sends otherwise, if nothing of the
        connection has to leave before. Not while the request is begun."""

    def send_in_slices(self, steps: AnswerSteps) -> None:
        """Takes the steps, with other work in between, and answers with the response that they end
        with, if there is one. If the connection closes, the remaining steps are not taken."""

    def skip(self) -> None:
        """The client expects no answer (Produce with acks=0)."""

    def close(self, reason: str) -> None:
        """Closes the connection, where no answer could tell the client of an error. Earlier answers
        still leave."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Calls back if the connection closes before this request is answered."""

    def hold(self) -> bool:
        """No more requests of the connection are parsed before this one is answered. Returns
        whether this request's bytes stay valid until then; if not, they are gone after this
        turn."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request's circumstances. Services are bound to the handler (``BrokerApi.bind``)."""

    header: RequestHeader
    client_address: str
    """The client's IP address, as text."""
    connection_id: str
    """Unique in the broker's life: ``local-remote-number``, for logs and group members."""
    listener: str
    """The name of the listener that the client came through."""
    principal: KafkaPrincipal
    """Who asks; ANONYMOUS without authentication."""
    reply: Reply

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The client's name for itself; empty if it gives none."""
        return self.header.client_id or ""


AnswerSteps = Generator[int, None, Response | None]
"""A response that is made in steps, each yielding its cost in elements
(runtime/event_loop/slices.py). For responses that grow with the request or with the broker's topics
and groups."""

Handle = Callable[[Any, RequestContext], Response | AnswerSteps | None]
"""(request, context) -> the response, at once or in steps; None if the response comes later through
``context.reply``."""

ErrorResponse = Callable[[Any, ErrorCode], Response | None]
"""(request, code) -> a response with ``code`` in all its error fields. None closes the connection:
the client expects no answer (Produce with acks=0)."""
