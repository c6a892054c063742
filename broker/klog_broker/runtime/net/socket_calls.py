"""The interface whose methods each receive from many sockets, or send to many sockets."""

from collections.abc import Sequence
from typing import Protocol

MAX_SOCKETS = 1024
"""The largest number of sockets that one call of `SocketCalls` serves."""

ARENA_FULL = -2
"""The result of `SocketCalls.receive` for a socket that was not read, because too few bytes of the
arena (the buffer for received bytes) were free."""


class SocketCalls(Protocol):
    """Each method receives from, or sends to, up to MAX_SOCKETS plain (non-TLS) streams."""

    def receive(
        self, descriptors: Sequence[int], start: int, share_bytes: int, least_bytes: int
    ) -> list[int]:
        """Receive once from each socket, up to ``share_bytes``, into the arena (the buffer for
        received bytes that ``Network.socket_calls`` was given).

        The received bytes lie one after another in the arena, from ``start`` on. Returns the number
        of bytes for each socket: 0 at the end of the stream, ARENA_FULL if fewer than
        ``least_bytes`` of the arena were left, -1 if the receive failed (the socket had no bytes,
        or an error).
        """

    def send(
        self, descriptors: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        """Send once to each socket its part of the buffer of responses that
        ``Network.socket_calls`` was given. The part begins at the socket's element of ``starts``
        and has the size in ``sizes``.

        Returns for each socket how many bytes were sent, or -1 if the send failed.
        """
