"""The interface through which the network offers Produce requests to the event-loop turn's produce
plan.

A produce plan serves the plain (such as uncompressed) Produce requests of many connections
together, with the compiled kernel; the ordinary Produce handler serves other requests one by one.
klog_broker.produce implements the interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from klog_broker.network.connection import Connection


class Plans(Protocol):
    """Serves the plain (such as uncompressed) Produce requests of many connections together, with
    the compiled kernel, usually once in an event-loop turn (the turn's produce plan)."""

    @property
    def is_planning(self) -> bool:
        """Whether connections may be offered to the event-loop turn's produce plan: False until the
        compiled kernel, which makes the plans, is loaded."""

    def offer_received(
        self, connection: Connection, first_frame_bytes: int, received_bytes: int
    ) -> bool:
        """Offer a connection that has received Produce requests to the event-loop turn's produce
        plan, in which the compiled kernel serves many connections together; return whether the plan
        takes the connection.

        If so, the connection must not parse its received bytes before the plan calls its
        ``on_planned``.
        """

    def offer_readable(self, connection: Connection) -> bool:
        """Offer a readable connection to the event-loop turn's produce plan, in which the compiled
        kernel serves many connections together; return whether the plan receives from the
        connection and serves its Produce requests.

        If the plan does, it calls the connection's ``receive`` (the connection receives by itself),
        ``put_off`` (it receives in the next turn) or ``continue_after_plan`` (it handles the bytes
        and responses that are left) in the append phase of the same event-loop turn, or none of
        these if it has served and answered all requests that it received from the connection. Only
        a plain (non-TLS) connection that a plan has served, and that has sent no request of another
        API since, may be offered.
        """
