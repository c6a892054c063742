"""libc inside kernels: sockets, epoll, the clock.

The functions are found by name when a kernel is loaded (a pointer of ctypes could not be kept in
the cache). Addresses are passed as integers; callers have checked positions. Linux only, as the
measurements are: they read /proc.
"""

import errno
import select
import sys
from typing import Any

from pyspark_klog.records.kernels.jit import COMPILED, WHY_PLAIN, Array, inline, numba

if not COMPILED:
    raise ImportError(f"the load generators need numba's compiler: {WHY_PLAIN}")
if not sys.platform.startswith("linux"):
    raise ImportError("the load generators run on Linux: they measure through epoll and /proc")

_types: Any = numba.types
_i32, _i64, _address = _types.int32, _types.int64, _types.intp


def external(name: str, result: Any, *arguments: Any) -> Any:
    """A C function of this process, by its name."""
    return _types.ExternalFunction(name, result(*arguments))


_send = external("send", _i64, _i32, _address, _i64, _i32)
_recv = external("recv", _i64, _i32, _address, _i64, _i32)
_poll = external("poll", _i32, _address, _i64, _i32)
_epoll_wait = external("epoll_wait", _i32, _i32, _address, _i32, _i32)
_clock_gettime = external("clock_gettime", _i32, _i32, _address)
_errno_location = external("__errno_location", _address)

_CLOCK_MONOTONIC = 1
_MSG_DONTWAIT = 0x40
_MSG_NOSIGNAL = 0x4000
_POLLIN = select.POLLIN
_POLLOUT = select.POLLOUT
_EAGAIN = errno.EAGAIN
_EINTR = errno.EINTR

WOULD_BLOCK = 0
"""Nothing could be sent or received now."""
FAILED = -1
"""The socket failed: see last_errno."""
CLOSED = -2
"""The other side closed the connection."""

SCRATCH_WORDS = 4
"""Words (int64) of the scratch array that now_ns and wait_ready write to."""


def _make_load_i32() -> Any:
    """The number at an address. (An array around it could not be made: kernels count no references
    to arrays, and so can make none.)"""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = numba.core.cgutils.ir.IntType(32)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()))

    def typed(_: Any, address: Any) -> Any:
        return _i32(address), generate

    return numba.extending.intrinsic(typed)


_load_i32: Any = _make_load_i32()


@inline
def last_errno() -> int:
    """The number of the last error of this thread."""
    return int(_load_i32(_errno_location()))


@inline
def now_ns(scratch: Array) -> int:
    """Monotonic time."""
    _clock_gettime(_CLOCK_MONOTONIC, scratch.ctypes.data)
    return int(scratch[0] * 1_000_000_000 + scratch[1])


@inline
def send_some(fd: int, buf: Array, start: int, count: int) -> int:
    """Send without waiting: how many bytes went, WOULD_BLOCK or FAILED."""
    sent = _send(fd, buf.ctypes.data + start, count, _MSG_DONTWAIT | _MSG_NOSIGNAL)
    if sent >= 0:
        return int(sent)
    found = last_errno()
    return WOULD_BLOCK if found in (_EAGAIN, _EINTR) else FAILED


@inline
def receive_some(fd: int, buf: Array, start: int, count: int) -> int:
    """Receive without waiting: how many bytes came, WOULD_BLOCK, CLOSED or FAILED."""
    got = _recv(fd, buf.ctypes.data + start, count, _MSG_DONTWAIT)
    if got > 0:
        return int(got)
    if got == 0:
        return CLOSED
    found = last_errno()
    return WOULD_BLOCK if found in (_EAGAIN, _EINTR) else FAILED


@inline
def wait_ready(fd: int, to_send: bool, timeout_ms: int, scratch: Array) -> int:
    """Wait until a socket can be read, or written if ``to_send``: 0 when the time is over."""
    # struct pollfd: int fd, short events, short revents.
    scratch[2] = fd | (_POLLIN | (_POLLOUT if to_send else 0)) << 32
    return int(_poll(scratch.ctypes.data + 16, 1, timeout_ms))


@inline
def epoll_wait(epoll_fd: int, events: Array, most: int, timeout_ms: int) -> int:
    """The number of events that were written to ``events``; 0 when the time is over."""
    return int(_epoll_wait(epoll_fd, events.ctypes.data, most, timeout_ms))
