"""A frame of RECEIVE_BYTES or more, while it arrives over several event-loop turns."""

from __future__ import annotations

from klog_broker.network.bounds import LARGE_RECEIVE_BYTES
from klog_broker.network.memory import ReceiveMemory
from klog_broker.runtime.net.sockets import StreamSocket

# The size in bytes of a large frame's smallest buffer: receiving into a smaller one is not worth a
# system call.
_LEAST_BYTES = 4096


class LargeFrame:
    """A partly received frame, in a buffer that grows with the bytes that have arrived.

    The buffer doubles, so that it has at most twice the bytes that the client has sent (or
    _LEAST_BYTES), and growing copies less than twice the frame's bytes in all.
    """

    __slots__ = ("_buffer", "_frame_bytes", "_have", "_memory")

    def __init__(self, memory: ReceiveMemory, frame_bytes: int, begun: bytearray) -> None:
        self._memory = memory
        self._frame_bytes = frame_bytes
        self._have = len(begun)
        self._buffer = memory.buffers.lend(max(len(begun), _LEAST_BYTES))
        self._buffer[: len(begun)] = begun

    @property
    def is_complete(self) -> bool:
        return self._have == self._frame_bytes

    def frame(self) -> memoryview:
        """The complete frame without its size field."""
        return memoryview(self._buffer)[4 : self._frame_bytes]

    def receive(self, stream: StreamSocket) -> int:
        """Receive up to the frame's end, but at most LARGE_RECEIVE_BYTES.

        Receives again as long as the socket fills the buffer. Returns the number of received bytes,
        0 at the end of the stream.
        """
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
        larger = self._memory.buffers.lend(min(self._frame_bytes, 2 * self._have))
        larger[: self._have] = self._buffer
        self._memory.buffers.return_buffer(self._buffer)
        self._buffer = larger

    def give_back(self) -> None:
        """Return the buffer to the pool of buffers for large frames, because the frame is no longer
        needed."""
        buffer, self._buffer = self._buffer, bytearray()
        self._memory.give_back(buffer)
