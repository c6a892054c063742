"""Bytes, numbers and copies in kernels: compiled to single instructions, plain Python otherwise.

Callers have checked every position before they come here. With NUMBA_BOUNDSCHECK=1 the checked form
is compiled instead, so that a test sees an access that the caller should not have made.
"""

from collections.abc import Callable

from pyspark_klog.records.kernels.jit import BOUNDSCHECK, COMPILED, Array, inline


def _byte_at(buf: Array, position: int) -> int:
    # Plus 0: compiled, an unsigned byte becomes a signed number; int() would keep it unsigned.
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
    high -= (high >> 31) << 32  # -2^31 to 2^31-1: shifted by 32 it fits 64 bits
    return high << 32 | load_u32(buf, position)


def _copy_checked(to: Array, to_position: int, buf: Array, position: int, count: int) -> None:
    for i in range(count):
        to[to_position + i] = buf[position + i]


def _copy_plain(to: Array, to_position: int, buf: Array, position: int, count: int) -> None:
    to[to_position : to_position + count] = buf[position : position + count]


def _no_prefetch(buf: Array, position: int) -> None:
    pass


byte_at: Callable[[Array, int], int]
"""The byte at a position, 0 to 255."""
load_u32: Callable[[Array, int], int]
"""Four bytes, lowest first, 0 to 2^32-1."""
load_i64: Callable[[Array, int], int]
"""Eight bytes, lowest first, with the sign."""
copy_bytes: Callable[[Array, int, Array, int, int], None]
"""Copy to an array, at a position, from an array, at a position, so many bytes."""
prefetch: Callable[[Array, int], None]
"""Bring a position into the processor's cache; it need not be a valid one."""

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
    """A big-endian number of 32 bits, 0 to 2^32-1."""
    return (
        byte_at(buf, position) << 24
        | byte_at(buf, position + 1) << 16
        | byte_at(buf, position + 2) << 8
        | byte_at(buf, position + 3)
    )


@inline
def read_i32(buf: Array, position: int) -> int:
    """A big-endian number of 32 bits with its sign."""
    number = read_u32(buf, position)
    return number - ((number >> 31) << 32)


@inline
def read_i16(buf: Array, position: int) -> int:
    """A big-endian number of 16 bits with its sign."""
    number = byte_at(buf, position) << 8 | byte_at(buf, position + 1)
    return number - ((number >> 15) << 16)


@inline
def read_i64(buf: Array, position: int) -> int:
    """A big-endian number of 64 bits with its sign."""
    return read_i32(buf, position) << 32 | read_u32(buf, position + 4)


@inline
def write_i32(out: Array, position: int, number: int) -> None:
    """Write the lowest 32 bits of a number, big-endian."""
    out[position] = number >> 24 & 0xFF
    out[position + 1] = number >> 16 & 0xFF
    out[position + 2] = number >> 8 & 0xFF
    out[position + 3] = number & 0xFF


@inline
def write_i64(out: Array, position: int, number: int) -> None:
    """Write a number of 64 bits, big-endian."""
    write_i32(out, position, number >> 32)
    write_i32(out, position + 4, number)
