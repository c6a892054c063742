"""A frame that is too large for the arena, while it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog_broker.network.bounds import LARGE_RECEIVE_BYTES, RECEIVE_BYTES
from klog_broker.network.sockets import StreamSocket

if TYPE_CHECKING:
    from klog_broker.network.server import Server


class LargeFrame:
    """A frame of which a part is here, in a buffer that grows with what has really arrived.

    Growing by doubling keeps what one peer can make the broker take to twice what it has sent.
    """

    __slots__ = ("_buffer", "_frame_bytes", "_have", "_server")

    def __init__(self, server: Server, frame_bytes: int, begun: bytearray) -> None:
        self._server = server
        self._frame_bytes = frame_bytes
        self._have = len(begun)
        at_first = max(len(begun), min(frame_bytes, 4 * RECEIVE_BYTES))
        self._buffer = server.buffers.take(at_first)
        self._buffer[: len(begun)] = begun

    @property
    def is_complete(self) -> bool:
        return self._have == self._frame_bytes

    def frame(self) -> memoryview:
        """The whole frame without its size."""
        return memoryview(self._buffer)[4 : self._frame_bytes]

    def receive(self, stream: StreamSocket) -> int:
        """Receives once, up to the frame's end. Returns the bytes received, 0 at the end."""
        if self._have == len(self._buffer):
            larger = self._server.buffers.take(min(self._frame_bytes, 2 * self._have))
            larger[: self._have] = self._buffer
            self._server.buffers.give_back(self._buffer)
            self._buffer = larger
        end = min(self._frame_bytes, len(self._buffer), self._have + LARGE_RECEIVE_BYTES)
        with memoryview(self._buffer) as view:
            count = stream.recv_into(view[self._have : end])
        self._have += count
        return count

    def give_back(self) -> None:
        """The frame is dealt with."""
        self._server.buffers.give_back(self._buffer)
        self._buffer = bytearray()
        self._server.on_memory_returned()
