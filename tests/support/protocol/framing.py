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
    """Find the whole frames in ``buffer[start:end]`` without copying.

    Returns ([(start, end) without the size], used up to). The bytes between "used up to" and
    ``end`` are the beginning of a frame.
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
