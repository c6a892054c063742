"""Access to bytes and numbers in arrays, and copies, for kernels.

Compiled kernels access memory without checks, so callers must check every position first. With
NUMBA_BOUNDSCHECK=1 a checked form is compiled instead, so that a test finds an access outside an
array. Without numba plain Python is used.
"""

from collections.abc import Callable

from pyspark_klog.records.kernels.jit import BOUNDSCHECK, COMPILED, Array, inline


def _byte_at(buf: Array, position: int) -> int:
    # In compiled code "+ 0" turns the unsigned byte into a signed number; int() alone does not.
    return int(buf[position] + 0)


def _load_u32(buf: Array, position: int) -> int:
    return (
        byte_at(buf, position)
        | byte_at(buf, position + 1) << 8
        | byte_at(buf, position + 2) << 16
        | byte_at(buf, position + 3) << 24
    )


def _load_i64(buf: Array, position: int) -> int:
    high = load_u32(buf, position + 4)
    high -= (high >> 31) << 32  # now -2^31 to 2^31-1, so the shift by 32 fits 64 bits
    return high << 32 | load_u32(buf, position)


def _copy_checked(to: Array, to_position: int, buf: Array, position: int, count: int) -> None:
    for i in range(count):
        to[to_position + i] = buf[position + i]


def _copy_plain(to: Array, to_position: int, buf: Array, position: int, count: int) -> None:
    to[to_position : to_position + count] = buf[position : position + count]


def _no_prefetch(buf: Array, position: int) -> None:
    pass


byte_at: Callable[[Array, int], int]
"""``byte_at(buf, position)`` returns the byte at ``position``, 0 to 255."""
load_u32: Callable[[Array, int], int]
"""``load_u32(buf, position)`` returns four bytes as a little-endian number, 0 to 2^32-1."""
load_i64: Callable[[Array, int], int]
"""``load_i64(buf, position)`` returns eight bytes as a signed little-endian number."""
copy_bytes: Callable[[Array, int, Array, int, int], None]
"""``copy_bytes(to, to_position, buf, position, count)`` copies ``count`` bytes to ``to``."""
prefetch: Callable[[Array, int], None]
"""``prefetch(buf, position)`` loads memory into the processor's cache.

The position may lie outside the array.
"""

if COMPILED and not BOUNDSCHECK:
    from pyspark_klog.records.kernels import intrinsics

    byte_at = intrinsics.byte_at
    load_u32 = intrinsics.load_u32
    load_i64 = intrinsics.load_i64
    copy_bytes = intrinsics.copy_bytes
    prefetch = intrinsics.prefetch
else:
    byte_at = inline(_byte_at)
    load_u32 = inline(_load_u32)
    load_i64 = inline(_load_i64)
    copy_bytes = inline(_copy_checked) if COMPILED else _copy_plain
    prefetch = inline(_no_prefetch)


@inline
def read_u32(buf: Array, position: int) -> int:
    """Read an unsigned 32-bit big-endian number."""
    return (
        byte_at(buf, position) << 24
        | byte_at(buf, position + 1) << 16
        | byte_at(buf, position + 2) << 8
        | byte_at(buf, position + 3)
    )


@inline
def read_i32(buf: Array, position: int) -> int:
    """Read a signed 32-bit big-endian number."""
    number = read_u32(buf, position)
    return number - ((number >> 31) << 32)


@inline
def read_i16(buf: Array, position: int) -> int:
    """Read a signed 16-bit big-endian number."""
    number = byte_at(buf, position) << 8 | byte_at(buf, position + 1)
    return number - ((number >> 15) << 16)


@inline
def read_i64(buf: Array, position: int) -> int:
    """Read a signed 64-bit big-endian number."""
    return read_i32(buf, position) << 32 | read_u32(buf, position + 4)


@inline
def write_i32(out: Array, position: int, number: int) -> None:
    """Write the lowest 32 bits of ``number``, big-endian."""
    out[position] = number >> 24 & 0xFF
    out[position + 1] = number >> 16 & 0xFF
    out[position + 2] = number >> 8 & 0xFF
    out[position + 3] = number & 0xFF


@inline
def write_i64(out: Array, position: int, number: int) -> None:
    """Write a 64-bit number, big-endian."""
    write_i32(out, position, number >> 32)
    write_i32(out, position + 4, number)
