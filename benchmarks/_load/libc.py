"""libc inside kernels: sockets, epoll, the clock.

The functions are found by name when a kernel is loaded (a ctypes pointer could not be cached).
Addresses are passed as integers; callers check positions. Linux only, as the measurements are: they
read /proc.
"""

import errno
import select
import sys
from typing import Any

from pyspark_klog.records.kernels.jit import COMPILED, NOT_COMPILED_REASON, Array, inline, numba

if not COMPILED:
    raise ImportError(f"the load generators need numba's compiler: {NOT_COMPILED_REASON}")
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
"""The result if no byte could be sent or received now."""
FAILED = -1
"""The result if the socket failed; last_errno has the reason."""
CLOSED = -2
"""The result if the other side has closed the connection."""

SCRATCH_WORDS = 4
"""Words (int64) of the scratch array that now_ns and wait_ready write to."""


def _make_load_i32() -> Any:
    """An intrinsic that returns the 32-bit number at an address.

    A kernel could not make an array at the address, because kernels count no references to arrays.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = numba.core.cgutils.ir.IntType(32)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()))

    def typed(_: Any, address: Any) -> Any:
        return _i32(address), generate

    return numba.extending.intrinsic(typed)


_load_i32: Any = _make_load_i32()


@inline
def last_errno() -> int:
    """The number of this thread's last error."""
    return int(_load_i32(_errno_location()))


@inline
def now_ns(scratch: Array) -> int:
    """Monotonic time in nanoseconds."""
    _clock_gettime(_CLOCK_MONOTONIC, scratch.ctypes.data)
    return int(scratch[0] * 1_000_000_000 + scratch[1])


@inline
def send_some(fd: int, buf: Array, start: int, count: int) -> int:
    """Send without waiting; return the number of bytes sent, WOULD_BLOCK or FAILED."""
    sent = _send(fd, buf.ctypes.data + start, count, _MSG_DONTWAIT | _MSG_NOSIGNAL)
    if sent >= 0:
        return int(sent)
    found = last_errno()
    return WOULD_BLOCK if found in (_EAGAIN, _EINTR) else FAILED


@inline
def receive_some(fd: int, buf: Array, start: int, count: int) -> int:
    """Receive without waiting; return the count of bytes, WOULD_BLOCK, CLOSED or FAILED."""
    got = _recv(fd, buf.ctypes.data + start, count, _MSG_DONTWAIT)
    if got > 0:
        return int(got)
    if got == 0:
        return CLOSED
    found = last_errno()
    return WOULD_BLOCK if found in (_EAGAIN, _EINTR) else FAILED


@inline
def wait_ready(fd: int, to_send: bool, timeout_ms: int, scratch: Array) -> int:
    """Wait until a socket can be read, or written if ``to_send``; return 0 after the timeout."""
    # struct pollfd: int fd, short events, short revents.
    scratch[2] = fd | (_POLLIN | (_POLLOUT if to_send else 0)) << 32
    return int(_poll(scratch.ctypes.data + 16, 1, timeout_ms))


@inline
def epoll_wait(epoll_fd: int, events: Array, most: int, timeout_ms: int) -> int:
    """Write ready events to ``events``; return their number, 0 after the timeout."""
    return int(_epoll_wait(epoll_fd, events.ctypes.data, most, timeout_ms))
