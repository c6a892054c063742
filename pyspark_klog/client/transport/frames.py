"""Cuts a stream of bytes into responses (frames), each in memory of its own.

No I/O: the driver receives into `ResponseFrames.buffer`, and reports the number of bytes with
`ResponseFrames.received`. The beginning of each frame is received into a small buffer and copied
from there. The rest of a frame that is not yet complete is received directly into the frame's
memory. This memory, if it has at most FIRST_GROWTH_BYTES (8 MiB), is reused once no view of it is
left.
"""

from pyspark_klog.client.errors import ReplyUnreadable
from pyspark_klog.records.buffer_pool import BufferPool

_SIZE_BYTES = 4
_MIN_FRAME_BYTES = 4
"""The size of the smallest response, a correlation id."""
_TLS_ALERT = 0x1503
"""The first two bytes of the TLS alert with which a TLS listener refuses plaintext."""
SMALL_BYTES = 64 * 1024
FIRST_GROWTH_BYTES = 8 * 1024 * 1024
"""A frame larger than this begins with this much memory, which grows as bytes arrive: so a wrong
size in a frame does not allocate memory for bytes that never come. The memory of such a frame is
not reused."""
KEPT_FRAMES = 3
"""For how many frames a connection keeps memory for reuse: one that is being decoded, one that is
being received, and one whose last decoded records are still in use."""


class ResponseFrames:
    """The responses of one connection. No response may be larger than ``max_frame_bytes``."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._small = bytearray(SMALL_BYTES)
        self._small_end = 0
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._frame_end = 0
        self._memory = BufferPool(KEPT_FRAMES, FIRST_GROWTH_BYTES)

    def buffer(self) -> memoryview:
        """The memory for the next received bytes; never empty. Release this view before you call
        `received`."""
        if self._frame is None:
            return memoryview(self._small)[self._small_end :]
        if self._frame_end == len(self._frame):
            missing = self._frame_bytes - self._frame_end
            self._frame.extend(bytes(min(missing, len(self._frame))))
        return memoryview(self._frame)[self._frame_end : self._frame_bytes]

    def received(self, count: int) -> list[memoryview]:
        """Handle ``count`` bytes in `buffer`; return the frames that are now complete.

        A frame is a view without the size field; the caller may keep it.
        :raises ReplyUnreadable: for a size that no response can have
        """
        if self._frame is not None:
            self._frame_end += count
            return self._finish_frame()
        self._small_end += count
        return self._cut_small()

    def _finish_frame(self) -> list[memoryview]:
        if self._frame is None or self._frame_end < self._frame_bytes:
            return []
        frame = memoryview(self._frame)[: self._frame_bytes].toreadonly()
        self._frame = None
        return [frame]

    def _cut_small(self) -> list[memoryview]:
        frames: list[memoryview] = []
        position, end = 0, self._small_end
        while end - position >= _SIZE_BYTES:
            size = int.from_bytes(
                self._small[position : position + _SIZE_BYTES], "big", signed=True
            )
            self._check(size)
            position += _SIZE_BYTES
            if size > end - position:
                self._begin_frame(size, position, end)
                position = end
                break
            frames.append(memoryview(bytes(self._small[position : position + size])))
            position += size
        self._small[: end - position] = self._small[position:end]
        self._small_end = end - position
        return frames

    def _begin_frame(self, size: int, position: int, end: int) -> None:
        is_large = size > FIRST_GROWTH_BYTES
        frame = bytearray(FIRST_GROWTH_BYTES) if is_large else self._memory.get_buffer(size)
        frame[: end - position] = memoryview(self._small)[position:end]
        self._frame, self._frame_bytes, self._frame_end = frame, size, end - position

    def _check(self, size: int) -> None:
        if size >> 16 == _TLS_ALERT:
            raise ReplyUnreadable(
                "the broker sent a TLS alert instead of a reply: set security.protocol to SSL (or "
                "SASL_SSL), or use the port of a listener without TLS"
            )
        if not _MIN_FRAME_BYTES <= size <= self.max_frame_bytes:
            raise ReplyUnreadable(
                f"a reply says that it has {size} bytes; expected {_MIN_FRAME_BYTES} to "
                f"{self.max_frame_bytes}: is the address a listener of Kafka's protocol, "
                "without TLS?"
            )
