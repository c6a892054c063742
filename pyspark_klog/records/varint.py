"""Zigzag varints, the encoding of the numbers inside a v2 record.

Each byte carries seven bits, the lowest bits first; the top bit is set on all but the last byte. A
varint holds 32 bits in at most 5 bytes, a varlong 64 bits in at most 10. Like Kafka, the readers
accept encodings that are longer than necessary, and drop bits of the last byte beyond the width.
"""

from pyspark_klog.records.errors import CorruptRecords

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


def read_varint(data: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the 32-bit number at ``position`` and the position after the number.

    Raises CorruptRecords if the number does not end before ``end`` or has more than 5 bytes.
    """
    # Most numbers have one or two bytes; _read reads the longer ones.
    if position < end and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    if end - position > 1 and (second := data[position + 1]) < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    return _read(data, position, end, MAX_VARINT_BYTES, 0xFFFF_FFFF)


def read_varlong(data: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the 64-bit number at ``position`` and the position after the number.

    Raises CorruptRecords if the number does not end before ``end`` or has more than 10 bytes.
    """
    # Most numbers have one or two bytes; _read reads the longer ones.
    if position < end and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    if end - position > 1 and (second := data[position + 1]) < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    return _read(data, position, end, MAX_VARLONG_BYTES, 0xFFFF_FFFF_FFFF_FFFF)


def _read(
    data: bytes | bytearray | memoryview, position: int, end: int, max_bytes: int, mask: int
) -> tuple[int, int]:
    raw = shift = 0
    for at in range(position, min(end, position + max_bytes)):
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    if end - position < max_bytes:
        raise CorruptRecords(f"the number at byte {position} does not end before byte {end}")
    raise CorruptRecords(f"the number at byte {position} is longer than {max_bytes} bytes")


def append_varint(out: bytearray, value: int) -> None:
    """Append ``value`` in its shortest form, which is the same for 32-bit and 64-bit numbers."""
    if -64 <= value < 64:
        out.append(value << 1 if value >= 0 else ~(value << 1))
        return
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def varint(value: int) -> bytes:
    """Return the bytes that :func:`append_varint` would append for ``value``."""
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Return the number of bytes that :func:`append_varint` writes for ``value``."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    return (raw.bit_length() + 6) // 7 or 1
