"""Finds the process that holds a file lock, without taking the lock from a starting broker.

Brokers of klog and Kafka hold a POSIX lock on the file `.lock` of each log directory.
"""

import fcntl
import os
import struct
import sys
from pathlib import Path

# The fields of C's `struct flock`. On Linux: type, whence, start, length, process. On macOS: start,
# length, process, type, whence.
_LINUX = struct.Struct("hhqqi4x")
_MACOS = struct.Struct("qqihh")


def lock_holder(path: Path) -> int | None:
    """Return the id of another process that holds an exclusive lock on the file, or None.

    Returns None, too, if the file is missing or unreadable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if sys.platform == "darwin":
            asked = _MACOS.pack(0, 0, 0, fcntl.F_RDLCK, os.SEEK_SET)
            _, _, process, kind, _ = _MACOS.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        else:
            asked = _LINUX.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, process = _LINUX.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else int(process)
