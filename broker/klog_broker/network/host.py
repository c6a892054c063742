"""What a connection asks of the broker's network; server.py is it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from klog_broker.network.lone import LoneReply, LoneRequests
from klog_broker.network.memory import ReceiveMemory
from klog_broker.network.outbox import OutboxHost
from klog_broker.network.replies import QueuedReply

C = TypeVar("C", contravariant=True)  # the connection: that module imports this one


class Host(OutboxHost, Protocol[C]):
    """The network of one broker, for its connections."""

    @property
    def memory(self) -> ReceiveMemory: ...

    @property
    def max_request_bytes(self) -> int: ...

    @property
    def is_planning(self) -> bool: ...

    @property
    def lone(self) -> LoneRequests: ...

    def handle_frame(
        self, frame: memoryview, slot: QueuedReply | LoneReply, connection: C, /
    ) -> bool:
        """Takes one request, a frame without its size; fills the slot now or later. Returns
        whether the frame's bytes are needed no longer: else they stay until the turn ends. Raises
        nothing."""

    def offer_to_plan(self, connection: C, first_frame_bytes: int, received_bytes: int) -> bool:
        """Whether this turn's plan takes what the connection has received, Produce first."""

    @property
    def join_plan(self) -> Callable[[C], bool]:
        """Whether the plan receives from the connection, which can be read."""

    def bulk_share_bytes(self) -> int:
        """What a connection that sends in bulk may receive in this turn."""

    def touch(self, connection: C) -> None:
        """Bytes were received or sent: the connection is not idle."""

    def refuse(self, connection: C, reason: str) -> None:
        """Closes the connection for what its client did, with a line in the log now and then."""

    def on_closed(self, connection: C, reason: str) -> None:
        """The connection has closed itself."""
