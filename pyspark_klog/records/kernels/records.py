"""Finds and checks the fields of one record of a v2 batch.

records/record_section.py does the same in plain Python.
"""

from pyspark_klog.records.kernels.jit import COMPILED, Array, hot, inline
from pyspark_klog.records.kernels.memory import byte_at
from pyspark_klog.records.kernels.status import (
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY_LENGTH,
    BAD_HEADER_VALUE_LENGTH,
    BAD_KEY_LENGTH,
    BAD_NUMBER,
    BAD_RECORD_END,
    BAD_RECORD_LENGTH,
    BAD_VALUE_LENGTH,
    OK,
)
from pyspark_klog.records.kernels.varints import read_varint, read_varlong

if COMPILED:

    @inline
    def add_wrapped(a: int, b: int) -> int:
        """Return a + b wrapped around to a signed 64-bit number, like the sums of Java's long."""
        return a + b  # sums in compiled code wrap around

else:

    def add_wrapped(a: int, b: int) -> int:
        """Return a + b wrapped around to a signed 64-bit number, like the sums of Java's long."""
        return (a + b + 2**63) % 2**64 - 2**63


@hot
def read_record(
    buf: Array, position: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    """Find the fields of the record at ``position``, up to its headers.

    Returns (status, end of the record, timestamp delta, offset delta, start of the key, length of
    the key, start of the value, length of the value, number of headers, start of the headers). A
    null key or value has length -1 and a meaningless start. With a status other than OK the other
    numbers are meaningless.
    """
    length, at = read_varint(buf, position, end)
    if at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if length < 1 or length > end - at:
        return BAD_RECORD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    record_end = at + length
    timestamp_delta, at = read_varlong(buf, at + 1, record_end)  # + 1 skips the attributes
    if at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, at = read_varint(buf, at, record_end)
    if at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key_bytes, key_at = read_varint(buf, at, record_end)
    if key_at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at = key_at
    if key_bytes < 0:
        key_bytes = -1  # like in Kafka, any negative length means null
    elif key_bytes > record_end - at:
        return BAD_KEY_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    else:
        at += key_bytes
    value_bytes, value_at = read_varint(buf, at, record_end)
    if value_at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at = value_at
    if value_bytes < 0:
        value_bytes = -1
    elif value_bytes > record_end - at:
        return BAD_VALUE_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0, 0
    else:
        at += value_bytes
    headers, at = read_varint(buf, at, record_end)
    if at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if headers == 0 and at != record_end:
        return BAD_RECORD_END, 0, 0, 0, 0, 0, 0, 0, 0, 0
    # Each header takes at least two bytes, so a larger count is damaged.
    if headers < 0 or headers > (record_end - at) >> 1:
        return BAD_HEADER_COUNT, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return (
        OK,
        record_end,
        timestamp_delta,
        offset_delta,
        key_at,
        key_bytes,
        value_at,
        value_bytes,
        headers,
        at,
    )


@inline
def read_header(buf: Array, position: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Find the fields of one header.

    Returns (status, end of the header, start of the key, length of the key, start of the value,
    length of the value). A null value has length -1.
    """
    key_bytes, key_at = read_varint(buf, position, end)
    if key_at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0
    if key_bytes < 0 or key_bytes > end - key_at:
        return BAD_HEADER_KEY_LENGTH, 0, 0, 0, 0, 0
    value_bytes, value_at = read_varint(buf, key_at + key_bytes, end)
    if value_at < 0:
        return BAD_NUMBER, 0, 0, 0, 0, 0
    if value_bytes < 0:
        return OK, value_at, key_at, key_bytes, value_at, -1
    if value_bytes > end - value_at:
        return BAD_HEADER_VALUE_LENGTH, 0, 0, 0, 0, 0
    return OK, value_at + value_bytes, key_at, key_bytes, value_at, value_bytes


@inline
def check_headers(buf: Array, position: int, end: int, count: int) -> int:
    """Return OK if ``count`` valid headers fill ``buf[position:end]`` exactly, else an error
    status."""
    at = position
    for _ in range(count):
        status, at, _, _, _, _ = read_header(buf, at, end)
        if status != OK:
            return status
    return OK if at == end else BAD_RECORD_END


@inline
def is_utf8(buf: Array, start: int, end: int) -> bool:
    """Whether ``buf[start:end]`` is valid UTF-8: shortest forms only, no surrogates."""
    at = start
    while at < end:
        first = byte_at(buf, at)
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if more > end - at:
            return False
        second = byte_at(buf, at)
        lowest = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        highest = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < lowest or second > highest:
            return False
        for i in range(1, more):
            if byte_at(buf, at + i) & 0xC0 != 0x80:
                return False
        at += more
    return True
