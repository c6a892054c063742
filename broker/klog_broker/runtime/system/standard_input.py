"""Whether a stream of bytes has more to read just now."""

import io
import select
from typing import BinaryIO


def has_more(stream: BinaryIO) -> bool:
    """Whether reading would give something, or the end, without waiting. Nothing may be in the
    stream's own buffer. True for what is no file of the system, or cannot be asked."""
    try:
        ready, _, _ = select.select([stream.fileno()], [], [], 0)
    except (io.UnsupportedOperation, OSError, ValueError):
        return True
    return bool(ready)
