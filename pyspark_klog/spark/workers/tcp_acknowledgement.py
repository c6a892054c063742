"""Avoids a wait of 40 ms in each task: a worker acknowledges at once the bytes that Spark sends.

Spark writes a task to its Python worker in two pieces: the code, then the rows. The second piece is
small, so Nagle's algorithm holds it until the first is acknowledged, and the worker's system delays
that acknowledgement by 40 ms, since the worker has answered the last task and may soon answer
again. Between the pieces the worker unpickles the code, and only then can klog request an
acknowledgement. (With spark.python.unix.domain.socket.enabled there is no TCP, and nothing to do.)
"""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

_FDS = Path("/proc/self/fd")


class Prompt:
    """The first base class of the readers and writers that Spark pickles into tasks: a worker that
    unpickles such an object acknowledges at once the bytes that Spark has sent. Without that,
    Spark's next bytes for the task would wait 40 ms for the acknowledgement."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        acknowledge()
        self.__dict__.update(state)


def acknowledge() -> None:
    """Acknowledge now all bytes that came over this process's TCP connections (Linux).

    Never raises. The call takes some microseconds for each open file.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    with contextlib.suppress(OSError):
        for path in _FDS.iterdir():
            with contextlib.suppress(OSError):
                _acknowledge(int(path.name), option)


def _acknowledge(fd: int, option: int) -> None:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return
    found = socket.socket(fileno=fd)
    try:
        if found.family != socket.AF_UNIX and found.type == socket.SOCK_STREAM:
            found.setsockopt(socket.IPPROTO_TCP, option, 1)
    finally:
        found.detach()
