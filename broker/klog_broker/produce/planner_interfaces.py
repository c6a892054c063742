"""The interface through which the produce planner uses connections.

The planner makes produce plans: the compiled kernel's list of appends for the plain Produce
requests of an event-loop turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from klog_broker.produce.delayed_responses import DelayedResponse


class PlannedConnection(Protocol):
    """The methods of a connection that are used by a produce plan, which serves the plain Produce
    requests of many connections together."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is still open. The appends of a produce plan can complete delayed
        requests, and a connection is closed if sending its response fails."""

    @property
    def descriptor(self) -> int:
        """The socket's descriptor, for calls that receive from or send to many sockets at once."""

    @property
    def principal_number(self) -> int:
        """A small number for the connection's principal, by which the produce kernel (compiled
        code) knows what the principal may write (security/principal_numbers.py)."""

    def plannable(self) -> tuple[int, int] | None:
        """Return start and end of the connection's unparsed bytes in the receive arena (the buffer
        for all connections). Return None if the produce plan may not serve them, for example
        because an earlier request that no plan has served is still unanswered, or too many
        responses are unsent."""

    def on_planned(self, taken_bytes: int, responses: Sequence[bytes | DelayedResponse]) -> None:
        """Continue after the event-loop turn's produce plan (the compiled kernel serves many
        connections together), to which the connection offered bytes that it had received: the plan
        has served the first ``taken_bytes`` of them. The connection sends ``responses``, and parses
        the other bytes."""

    def continue_after_plan(
        self, start: int, end: int, taken_bytes: int, responses: Sequence[bytes | DelayedResponse]
    ) -> None:
        """Continue after the event-loop turn's produce plan (the compiled kernel serves many
        connections together), which received bytes for the connection, and left bytes to parse or
        responses to send. The plan has served the first ``taken_bytes`` of the receive arena's
        bytes from ``start`` to ``end``. The connection sends ``responses``, and parses the other
        bytes."""

    def close(self, reason: str) -> None:
        """Close the connection."""


class Received(NamedTuple):
    """The bytes that one call of compiled code (``SocketCalls.receive``) has received for an
    event-loop turn's produce plan, from connections that joined the plan instead of receiving by
    themselves. A connection from which no bytes came is not in ``connections``."""

    connections: Sequence[PlannedConnection]
    bounds: Sequence[int]
    """The bytes of connection number ``i`` are in the receive arena, from ``bounds[i]`` up to
    ``bounds[i + 1]``."""


NOTHING_RECEIVED = Received((), (0,))
