"""The interface of the broker's network for its connections; server.py implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from klog_broker.network.memory import ReceiveMemory
from klog_broker.network.outbox import OutboxHost
from klog_broker.network.responses import QueuedResponse
from klog_broker.network.single_requests import SingleRequests, SingleResponse

# Stands for the class Connection: this module cannot import connection.py, which imports this
# module.
C = TypeVar("C", contravariant=True)


class Host(OutboxHost, Protocol[C]):
    """The methods of the broker's network that its connections use."""

    @property
    def memory(self) -> ReceiveMemory: ...

    @property
    def max_request_bytes(self) -> int: ...

    @property
    def is_planning(self) -> bool: ...

    @property
    def single_requests(self) -> SingleRequests: ...

    def handle_frame(
        self, frame: memoryview, slot: QueuedResponse | SingleResponse, connection: C, /
    ) -> bool:
        """Serve one request, a frame without its size; put the response into ``slot`` (the place
        for the response), now or later. Raises nothing.

        Returns whether the frame's bytes may be reused now; if not, they must stay valid until the
        event-loop turn ends.
        """

    def offer_to_plan(self, connection: C, first_frame_bytes: int, received_bytes: int) -> bool:
        """Offer received bytes that begin with a Produce request to this event-loop turn's produce
        plan, which serves the Produce requests of many connections together.

        Returns whether the plan takes them.
        """

    @property
    def join_plan(self) -> Callable[[C], bool]:
        """Offers a readable connection to the event-loop turn's produce plan, which receives for
        many connections in one call, and serves their Produce requests together.

        The callable returns whether the plan receives from the connection.
        """

    def bulk_share_bytes(self) -> int:
        """Return how many bytes to receive at most in this event-loop turn from one connection that
        sends in bulk: BULK_RECEIVE_BYTES shared among the turn's ready connections, but at least
        RECEIVE_BYTES."""

    def touch(self, connection: C) -> None:
        """Record that bytes were received or sent, so that the connection is not idle."""

    def refuse(self, connection: C, reason: str) -> None:
        """Close the connection because of an error in its requests; log the reason at a limited
        rate."""

    def on_closed(self, connection: C, reason: str) -> None:
        """Remove a connection that has closed itself from the open connections."""
