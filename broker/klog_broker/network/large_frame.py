"""A frame that is too large for the arena, while it arrives."""

from __future__ import annotations

from klog_broker.network.bounds import LARGE_RECEIVE_BYTES
from klog_broker.network.memory import ReceiveMemory
from klog_broker.runtime.net.sockets import StreamSocket

# Smaller buffers are not worth a call of their own.
_LEAST_BYTES = 4096


class LargeFrame:
    """A frame of which a part is here, in a buffer that grows with what has really arrived.

    Growing by doubling keeps what one peer can make the broker take to twice what it has sent, and
    copies of a whole frame no more than its bytes once.
    """

    __slots__ = ("_buffer", "_frame_bytes", "_have", "_memory")

    def __init__(self, memory: ReceiveMemory, frame_bytes: int, begun: bytearray) -> None:
        self._memory = memory
        self._frame_bytes = frame_bytes
        self._have = len(begun)
        self._buffer = memory.buffers.take(max(len(begun), _LEAST_BYTES))
        self._buffer[: len(begun)] = begun

    @property
    def is_complete(self) -> bool:
        return self._have == self._frame_bytes

    def frame(self) -> memoryview:
        """The whole frame without its size."""
        return memoryview(self._buffer)[4 : self._frame_bytes]

    def receive(self, stream: StreamSocket) -> int:
        """Receives up to the frame's end, or a turn's share of it: as often as what there was room
        for has come. Returns the bytes received, 0 at the end."""
        received = 0
        while True:
            if self._have == len(self._buffer):
                self._grow()
            left = LARGE_RECEIVE_BYTES - received
            end = min(self._frame_bytes, len(self._buffer), self._have + left)
            room = end - self._have
            try:
                with memoryview(self._buffer) as view:
                    count = stream.recv_into(view[self._have : end])
            except (BlockingIOError, InterruptedError):
                if not received:
                    raise
                return received
            self._have += count
            received += count
            if count < room or received == LARGE_RECEIVE_BYTES or self.is_complete:
                return received

    def _grow(self) -> None:
        larger = self._memory.buffers.take(min(self._frame_bytes, 2 * self._have))
        larger[: self._have] = self._buffer
        self._memory.buffers.give_back(self._buffer)
        self._buffer = larger

    def give_back(self) -> None:
        """The frame is dealt with."""
        buffer, self._buffer = self._buffer, bytearray()
        self._memory.give_back(buffer)
