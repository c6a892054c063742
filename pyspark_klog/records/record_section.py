"""Reads and writes the record section of a v2 batch: the uncompressed records after the header."""

from collections.abc import Iterator, Sequence

from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import MIN_RECORD_BYTES
from pyspark_klog.records.record import Header, Record, TimestampType
from pyspark_klog.records.varint import (
    append_varint,
    read_varint,
    read_varlong,
    varint,
    varint_size,
)

_SIGN_BIT = 1 << 63
_WIDTH = 1 << 64


def wrap_int64(value: int) -> int:
    """Wrap ``value`` around to a signed 64-bit number, like the overflow of Java's long."""
    return (value + _SIGN_BIT) % _WIDTH - _SIGN_BIT


def read_records(
    section: bytes | bytearray,
    count: int,
    *,
    base_offset: int,
    base_timestamp_ms: int,
    timestamp_type: TimestampType,
    log_append_time_ms: int,
) -> Iterator[Record]:
    """Yield ``count`` records; CorruptRecords unless exactly so many records fill ``section``.

    Offsets and timestamps are absolute. Under LOG_APPEND_TIME every record has the timestamp
    ``log_append_time_ms``, which is otherwise ignored.
    """
    if not 0 <= count <= len(section) // MIN_RECORD_BYTES:
        raise CorruptRecords(
            f"the batch counts {count} records, but its {len(section)} bytes of records hold "
            f"at most {len(section) // MIN_RECORD_BYTES}"
        )
    return _read_records(
        bytes(section),  # so that slices of the section are bytes
        count,
        base_offset,
        base_timestamp_ms,
        timestamp_type,
        log_append_time_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else None,
    )


def _read_records(
    section: bytes,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    timestamp_type: TimestampType,
    log_append_time_ms: int | None,
) -> Iterator[Record]:
    position = 0
    for _ in range(count):
        start = position
        length, position = read_varint(section, position, len(section))
        if not 0 <= length <= len(section) - position:
            raise CorruptRecords(
                f"the record at byte {start} gives its length as {length}, "
                f"but {len(section) - position} bytes are left"
            )
        end = position + length
        if length < 1:
            raise CorruptRecords(f"the record at byte {start} is empty")
        position += 1  # skip the attributes: none of their bits has a meaning
        timestamp_delta, position = read_varlong(section, position, end)
        offset_delta, position = read_varint(section, position, end)
        key, position = _read_nullable(section, position, end)
        value, position = _read_nullable(section, position, end)
        headers, position = _read_headers(section, position, end)
        if position != end:
            raise CorruptRecords(
                f"the record at byte {start} should end at byte {end}, "
                f"but its fields end at byte {position}"
            )
        timestamp_ms = log_append_time_ms
        if timestamp_ms is None:
            timestamp_ms = wrap_int64(base_timestamp_ms + timestamp_delta)
        offset = wrap_int64(base_offset + offset_delta)
        yield Record(offset, timestamp_ms, timestamp_type, key, value, headers)
    if position != len(section):
        raise CorruptRecords(
            f"after the {count} records of the batch {len(section) - position} bytes are left over"
        )


def _read_nullable(section: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes; return (bytes, position after them).

    Like in Kafka, any negative length means null.
    """
    length, start = read_varint(section, position, end)
    if length < 0:
        return None, start
    if length > end - start:
        raise CorruptRecords(
            f"a field of {length} bytes at byte {start} passes its record's end at byte {end}"
        )
    stop = start + length
    return section[start:stop], stop


def _read_headers(section: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    if position < end and not section[position]:
        return (), position + 1
    count, position = read_varint(section, position, end)
    # Each header takes at least two bytes, so a larger count is damaged.
    if not 0 <= count <= (end - position) // 2:
        raise CorruptRecords(
            f"a record counts {count} headers, but only {end - position} bytes are left in it"
        )
    headers = []
    for _ in range(count):
        name, position = _read_nullable(section, position, end)
        if name is None:
            raise CorruptRecords(f"a header before byte {position} has no name")
        value, position = _read_nullable(section, position, end)
        # Like Kafka's clients, replace invalid UTF-8 with U+FFFD.
        headers.append(Header(name.decode("utf-8", "replace"), value))
    return tuple(headers), position


def append_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Append one record to ``out``, with its length first."""
    body = bytearray(1)  # attributes
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_nullable(body, key)
    _append_nullable(body, value)
    append_varint(body, len(headers))
    for name, header_value in headers:
        _append_nullable(body, name.encode())
        _append_nullable(body, header_value)
    append_varint(out, len(body))
    out += body


# The varints of 0 to 255: most lengths and offset deltas are in this range.
_VARINTS = tuple(varint(number) for number in range(256))


def append_plain_record(
    out: bytearray, offset_delta: int, key: bytes | None, value: bytes | None
) -> None:
    """Append a record with timestamp delta 0 and without headers, faster than `append_record`."""
    delta = _VARINTS[offset_delta] if offset_delta < len(_VARINTS) else varint(offset_delta)
    key_size, key = _sized(key)
    value_size, value = _sized(value)
    # Attributes, timestamp delta and header count are a zero byte each: 3 bytes.
    size = 3 + len(delta) + len(key_size) + len(key) + len(value_size) + len(value)
    length = _VARINTS[size] if size < len(_VARINTS) else varint(size)
    out += b"".join((length, b"\0\0", delta, key_size, key, value_size, value, b"\0"))


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    """Return (length as a varint, bytes) of a nullable field."""
    if data is None:
        return b"\1", b""  # the length -1
    size = len(data)
    return _VARINTS[size] if size < len(_VARINTS) else varint(size), data


def _append_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # the length -1
    else:
        append_varint(out, len(data))
        out += data


def record_size(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> int:
    """Return the number of bytes that :func:`append_record` would append."""
    body = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    body += _nullable_size(key) + _nullable_size(value) + varint_size(len(headers))
    for name, header_value in headers:
        body += _nullable_size(name.encode()) + _nullable_size(header_value)
    return varint_size(body) + body


def _nullable_size(data: bytes | None) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)
