"""Whether another process holds a lock, without taking it: who takes it could be in a broker's way.

Brokers of klog and Kafka hold a POSIX lock on `.lock` (`runtime/disk/files.py`).
"""

import fcntl
import os
import struct
import sys
from pathlib import Path

# `struct flock`: Linux begins with type and whence, macOS with the region and the process.
_LINUX = struct.Struct("hhqqi4x")
_MACOS = struct.Struct("qqihh")


def lock_holder(path: Path) -> int | None:
    """The process that has locked the file; None if none has (other than this one), or there is no
    file, or it may not be read."""
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
