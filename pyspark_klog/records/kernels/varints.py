"""Zigzag varints for kernels, with the same results as records/varint.py.

A damaged number gives the position -1, where records/varint.py raises CorruptRecords.
"""

from pyspark_klog.records.kernels.jit import Array, hot, inline
from pyspark_klog.records.kernels.memory import byte_at

_INT32_MASK = 0xFFFF_FFFF
_LOW_57_BITS = (1 << 57) - 1


@hot
def read_varint(buf: Array, position: int, end: int) -> tuple[int, int]:
    """Return a 32-bit number and the position after it.

    The position is -1 if the number does not end before ``end`` or has more than 5 bytes.
    """
    if position < end:
        first = byte_at(buf, position)
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        if end - position >= 2:
            second = byte_at(buf, position + 1)
            if second < 0x80:
                return (second << 6 | (first & 0x7F) >> 1) ^ -(first & 1), position + 2
    return _read_any_varint(buf, position, end)


@inline
def _read_any_varint(buf: Array, position: int, end: int) -> tuple[int, int]:
    stop = end if end - position < 5 else position + 5
    raw = 0
    shift = 0
    at = position
    while at < stop:
        byte = byte_at(buf, at)
        at += 1
        raw |= (byte & 0x7F) << shift  # shift is at most 28, so raw stays below 2^35
        if byte < 0x80:
            raw &= _INT32_MASK
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, -1


@hot
def read_varlong(buf: Array, position: int, end: int) -> tuple[int, int]:
    """Return a 64-bit number and the position after it.

    The position is -1 if the number does not end before ``end`` or has more than 10 bytes.
    """
    if position < end:
        first = byte_at(buf, position)
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        if end - position >= 2:
            second = byte_at(buf, position + 1)
            if second < 0x80:
                return (second << 6 | (first & 0x7F) >> 1) ^ -(first & 1), position + 2
    return _read_any_varlong(buf, position, end)


@inline
def _read_any_varlong(buf: Array, position: int, end: int) -> tuple[int, int]:
    # The lowest bit of the encoded 64-bit number is the sign, and the 63 bits above are the
    # magnitude, which is below 2^63.
    if position >= end:
        return 0, -1
    first = byte_at(buf, position)
    magnitude = (first & 0x7F) >> 1
    if first < 0x80:
        return magnitude ^ -(first & 1), position + 1
    stop = end if end - position < 10 else position + 10
    shift = 6
    at = position + 1
    while at < stop:
        byte = byte_at(buf, at)
        at += 1
        if shift == 62:  # the tenth byte has one bit of the magnitude; Kafka drops its other bits
            magnitude |= (byte & 1) << shift
        else:
            magnitude |= (byte & 0x7F) << shift  # shift is at most 55: magnitude is below 2^62
        if byte < 0x80:
            return magnitude ^ -(first & 1), at
        shift += 7
    return 0, -1


@inline
def varint_size(number: int) -> int:
    """Return how many bytes :func:`write_varint` writes; ``number`` is within -2^62 to 2^62-1."""
    raw = (number << 1) ^ (number >> 63)
    size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@inline
def write_varint(out: Array, position: int, number: int) -> int:
    """Write ``number``, which is within -2^62 to 2^62-1; return the position after it."""
    raw = (number << 1) ^ (number >> 63)
    while raw >= 0x80:
        out[position] = raw & 0x7F | 0x80
        position += 1
        raw >>= 7
    out[position] = raw
    return position + 1


@inline
def varlong_size(number: int) -> int:
    """Return how many bytes :func:`write_varlong` writes for any 64-bit ``number``."""
    # ">>" shifts in copies of the sign bit, so the mask sets these bits to 0.
    rest = ((number << 1) ^ (number >> 63)) >> 7 & _LOW_57_BITS
    size = 1
    while rest != 0:
        rest >>= 7
        size += 1
    return size


@inline
def write_varlong(out: Array, position: int, number: int) -> int:
    """Write any 64-bit ``number``; return the position after it."""
    raw = (number << 1) ^ (number >> 63)
    rest = raw >> 7 & _LOW_57_BITS
    low = raw & 0x7F
    while rest != 0:
        out[position] = low | 0x80
        position += 1
        low = rest & 0x7F
        rest >>= 7
    out[position] = low
    return position + 1
