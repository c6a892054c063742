"""A check whether a stream can be read without blocking."""

import io
import select
from typing import BinaryIO


def is_readable_now(stream: BinaryIO) -> bool:
    """Return whether a read would return at once, with bytes or with the end of the stream.

    Call only while the stream's own buffer is empty, because only the descriptor is checked.
    Returns True for a stream without a file descriptor, and where the system cannot check the
    descriptor.
    """
    try:
        ready, _, _ = select.select([stream.fileno()], [], [], 0)
    except (io.UnsupportedOperation, OSError, ValueError):
        return True
    return bool(ready)
