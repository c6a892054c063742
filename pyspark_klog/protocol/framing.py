"""Frames in a stream of bytes: a signed 4-byte size, then so many bytes. No I/O here."""

from __future__ import annotations

import struct

from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.wire import Buffer

_SIZE = struct.Struct(">i")
SIZE_BYTES = _SIZE.size


def frame_size(buffer: Buffer, position: int, max_bytes: int) -> int:
    """The size of the frame that begins at ``position`` (of its 4 bytes, which must be there).

    A negative size, or one above ``max_bytes``, raises `MalformedRequest`: the stream cannot be
    followed any further.
    """
    size: int
    (size,) = _SIZE.unpack_from(buffer, position)
    if size < 0:
        raise MalformedRequest(f"found a frame of {size} bytes; a size cannot be negative")
    if size > max_bytes:
        raise MalformedRequest(f"found a frame of {size} bytes, expected at most {max_bytes}")
    return size


def split_frames(
    buffer: Buffer, start: int, end: int, max_bytes: int
) -> tuple[list[tuple[int, int]], int]:
    """The whole frames in ``buffer[start:end]``: ([(start, end) without the size], used up to).

    What lies between "used up to" and ``end`` is the beginning of a frame. Nothing is copied.
    """
    frames: list[tuple[int, int]] = []
    while end - start >= SIZE_BYTES:
        size = frame_size(buffer, start, max_bytes)
        if size > end - start - SIZE_BYTES:
            break
        first = start + SIZE_BYTES
        start = first + size
        frames.append((first, start))
    return frames, start


class FrameSplitter:
    """Cuts the bytes that arrive into frames, holding back an unfinished one.

    Memory: at most the bytes that were fed and not yet given out; a large size reserves nothing.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished frame is held, its size included."""
        return len(self._held)

    def feed(self, data: Buffer) -> list[bytes]:
        """Take bytes; give the frames that they complete, without their sizes.

        Raises `MalformedRequest` at a size that cannot be; frames before it, from the same call,
        are lost with the stream.
        """
        self._held += data
        places, used = split_frames(self._held, 0, len(self._held), self.max_frame_bytes)
        frames = [bytes(self._held[first:last]) for first, last in places]
        del self._held[:used]
        return frames
