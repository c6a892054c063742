"""Receiving from and sending to many sockets by one call, as its callers see it."""

from collections.abc import Sequence
from typing import Protocol

MAX_SOCKETS = 1024
"""The most sockets in one call."""

NO_ROOM = -2
"""No receive was tried, because the arena had no room."""


class SocketCalls(Protocol):
    """Receives and sends of many plain streams at once, MAX_SOCKETS at most."""

    def receive(
        self, descriptors: Sequence[int], start: int, share_bytes: int, least_bytes: int
    ) -> list[int]:
        """Receives once from each, up to ``share_bytes``, into the arena, one behind the other from
        ``start`` on. Returns the bytes of each; 0 at the end of a stream, negative where nothing
        was received: NO_ROOM if less than ``least_bytes`` of the arena were left, else -1."""

    def send(
        self, descriptors: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        """Sends a piece of the replies to each socket, once. Returns how many bytes each has taken,
        -1 for none."""
