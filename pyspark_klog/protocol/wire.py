"""Functions that codecs call: varints, uuids, record sets, tagged sections and error reports.

Generated codecs check all lengths and counts with these functions. The hand-written codecs of
Produce and Fetch check them themselves, and leave unusual and damaged messages to the generated
codecs, so that the same limits hold.

A read function takes a position and returns the next position. At the end of a buffer it raises
Python's IndexError, which codec.py and headers.py convert to `MalformedRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NoReturn, TypeAlias

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.errors import MalformedRequest, UnencodableMessage
from pyspark_klog.protocol.fields import FileRegion

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_STRING_BYTES = 0x7FFF
"""Kafka's bound for a string, also in flexible versions, whose encoding allows longer strings."""


MAX_TAGGED_FIELDS = 10_000
"""Kafka 4.4's bound for the fields of one tagged section.

Kafka 4.4 also bounds an array to 1,000,000 elements. klog's brokers bound the elements of all
    arrays and tagged sections together, if a request is above 8 KiB (Produce and Fetch: 128 KiB),
    to a lower number (``MAX_REQUEST_ELEMENTS``, and more only for requests of other brokers).
    """


class SegmentedBuffer(bytearray):
    """A bytearray for encoded messages that leaves out large record sets, and those in files.

    ``left_out`` lists these record sets as (position in the bytearray, record set), in rising order
    of the positions. So codecs neither copy a large buffer nor read a `FileRegion`, which is a
    record set in a file.
    """

    MIN_CUT_BYTES = 4096
    """Smaller record sets in memory are copied: sending them as separate parts would cost more."""

    def __init__(self) -> None:
        super().__init__()
        self.left_out: list[tuple[int, FileRegion | Buffer]] = []

    def segments(self) -> list[Buffer | FileRegion]:
        """Return the non-empty parts to send, in order: the bytes of this bytearray, and between
        them, not copied, the record sets that it leaves out (``left_out``)."""
        if not self.left_out:
            return [self] if self else []
        whole = memoryview(self)
        parts: list[Buffer | FileRegion] = []
        start = 0
        for position, cut in self.left_out:
            if position > start:
                parts.append(whole[start:position])
            parts.append(cut)
            start = position
        if start < len(whole):
            parts.append(whole[start:])
        return parts

    def total_bytes(self) -> int:
        """Return the size in bytes of the bytearray and of all record sets that it leaves out."""
        if not self.left_out:
            return len(self)
        return len(self) + sum(len(cut) for _, cut in self.left_out)


def put_records(out: bytearray, value: Buffer | FileRegion) -> None:
    """Append a record set, whose length is already written. If ``out`` is a `SegmentedBuffer`, a
    record set that is large or lies in a file is added to ``out.left_out`` instead."""
    if type(out) is SegmentedBuffer and (
        type(value) is FileRegion or len(value) >= out.MIN_CUT_BYTES
    ):
        if len(value):
            out.left_out.append((len(out), value))
    elif isinstance(value, FileRegion):
        raise UnencodableMessage(
            "a record set is a file region (a part of a file); encode it into a SegmentedBuffer, "
            "or pass bytes"
        )
    else:
        out += value


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return (value, next position)."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    return long_uvarint(buffer, position + 1, value)


def long_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint after its ``first`` byte, which has its continuation bit set.

    ``position`` is the position after the first byte. Returns (value, next position).
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedRequest("found a varint of more than 32 bits; lengths and tags have at most 32")


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> UUID:
    """Return the UUID of 16 bytes; cached, since requests repeat the same few topic ids."""
    return UUID(bytes=data)


def raise_bad_length(field: str, length: int, remaining: int) -> NoReturn:
    """Raise MalformedRequest for a wrong length of a string, bytes, record set or tagged field."""
    if length < 0:
        raise MalformedRequest(f"{field}: found null (length {length}), which is not allowed")
    raise MalformedRequest(
        f"{field}: found a length of {length}, with {remaining} bytes left (a string has at most "
        "32767)"
    )


def raise_bad_count(field: str, count: int, remaining: int) -> NoReturn:
    """Raise MalformedRequest for a wrong count of array elements or tagged fields, before these are
    created."""
    if count < 0:
        raise MalformedRequest(f"{field}: found null (count {count}), which is not allowed")
    raise MalformedRequest(f"{field}: found a count of {count}, with {remaining} bytes left")


def raise_too_many_elements(most: int) -> NoReturn:
    """Raise MalformedRequest for more than ``most`` elements: of all arrays and tagged sections of
    a message together, or of the tagged section of a header."""
    raise MalformedRequest(
        f"found more than {most} array elements and tagged fields in one message, where {most} is"
        " the limit"
    )


def raise_too_many_tags(field: str, count: int) -> NoReturn:
    """Raise MalformedRequest for a tagged section with more than MAX_TAGGED_FIELDS fields."""
    raise MalformedRequest(
        f"{field}: found {count} tagged fields, expected at most {MAX_TAGGED_FIELDS}"
    )


def raise_bad_size(field: str, declared: int, used: int) -> NoReturn:
    """Raise MalformedRequest for a tagged field whose value does not have the declared size."""
    raise MalformedRequest(f"{field}: its tagged size is {declared}, its value took {used} bytes")


def raise_too_long(field: str, length: int) -> NoReturn:
    """Raise UnencodableMessage for a string that is too long."""
    raise UnencodableMessage(
        f"{field}: found {length} bytes of text, expected at most {MAX_STRING_BYTES}"
    )


def put_tags(out: bytearray, known: dict[int, bytes], unknown: Mapping[int, bytes]) -> None:
    """Append the tagged section: a count, then tag, size and value of each field by rising tag."""
    if unknown:
        for tag in unknown:
            if tag in known or not 0 <= tag <= 0xFFFFFFFF:
                raise UnencodableMessage(
                    f"unknown_tagged_fields: tag {tag} is a known field's, or is not a uint32"
                )
        known = {**known, **unknown}
    out += uvarint(len(known))
    for tag in sorted(known):
        value = known[tag]
        out += uvarint(tag)
        out += uvarint(len(value))
        out += value
