"""What the network knows of a turn's produce plan: klog_broker.produce makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from klog_broker.network.connection import Connection


class Plans(Protocol):
    """Where connections that begin with Produce are planned together."""

    @property
    def is_planning(self) -> bool:
        """Whether connections are planned: not before the kernel is loaded."""

    def offer(self, connection: Connection, first_frame_bytes: int, received_bytes: int) -> bool:
        """Whether the connection, which has received Produce, waits for the turn's plan.

        Then it does not parse before its ``planned`` is called.
        """

    def join(self, connection: Connection) -> bool:
        """Whether the connection, which can be read, is received from and planned with others.

        Then its ``receive``, ``put_off`` or ``take_over`` is called in the turn's next phase, or
        none of them if all that it sent was planned and answered. Only for plain streams of which
        a plan has served the last request.
        """
