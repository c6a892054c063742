"""The pieces of the encoding that are no fixed-size integers: varints, compact lengths, uuids.

Everything that generated and hand-written codecs call lives here, so that one set of bounds holds
for both. Functions that read take a position and return the next one; they raise what Python
raises at the end of a buffer (IndexError, struct.error) or `MalformedRequest`, and codec.py turns
the former into the latter.
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
"""Kafka's bound for a string, also where the encoding could carry more."""


MAX_TAGGED_FIELDS = 10_000
"""Kafka 4.4's bound for one tagged section. Its other bound, 1,000,000 elements of an array, is
above what a broker of klog takes in all arrays of a request (``MAX_REQUEST_ELEMENTS``)."""


class SegmentedBuffer(bytearray):
    """Encoded bytes with holes: ``cuts`` are (position, buffer or region that belongs there), in
    rising order.

    A codec writes into it as into a bytearray; record sets that are regions of files or large
    buffers become cuts, so that they are neither read nor copied.
    """

    MIN_CUT_BYTES = 4096
    """A buffer of fewer bytes is copied: a segment of its own would cost more."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[tuple[int, FileRegion | Buffer]] = []

    def segments(self) -> list[Buffer | FileRegion]:
        """The parts to send, in order: none is empty, none is a copy of a cut."""
        if not self.cuts:
            return [self] if self else []
        whole = memoryview(self)
        parts: list[Buffer | FileRegion] = []
        start = 0
        for position, cut in self.cuts:
            if position > start:
                parts.append(whole[start:position])
            parts.append(cut)
            start = position
        if start < len(whole):
            parts.append(whole[start:])
        return parts

    def total_bytes(self) -> int:
        """The size of all segments together."""
        if not self.cuts:
            return len(self)
        return len(self) + sum(len(cut) for _, cut in self.cuts)


def put_records(out: bytearray, value: Buffer | FileRegion) -> None:
    """Append a record set behind its length, or leave a hole for it."""
    if type(out) is SegmentedBuffer and (
        type(value) is FileRegion or len(value) >= out.MIN_CUT_BYTES
    ):
        if len(value):
            out.cuts.append((len(out), value))
    elif isinstance(value, FileRegion):
        raise UnencodableMessage(
            "a record set is a region of a file; expected bytes, or an encoder of segments"
        )
    else:
        out += value


def uvarint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: (value, next position)."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    return long_uvarint(buffer, position + 1, value)


def long_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already read, has its continuation bit set."""
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
    """The UUID of 16 bytes; cached, since the same few topic ids come with every request."""
    return UUID(bytes=data)


def bad_length(field: str, length: int, remaining: int) -> NoReturn:
    """Refuse the length of a string, bytes or a record set."""
    if length < 0:
        raise MalformedRequest(f"{field}: found null (length {length}), which it may not be")
    raise MalformedRequest(f"{field}: found a length of {length}, with {remaining} bytes left")


def bad_count(field: str, count: int, remaining: int) -> NoReturn:
    """Refuse the count of an array before anything is made for its elements."""
    if count < 0:
        raise MalformedRequest(f"{field}: found null (count {count}), which it may not be")
    raise MalformedRequest(f"{field}: found a count of {count}, with {remaining} bytes left")


def too_many(most: int) -> NoReturn:
    """Refuse a message with more elements than the reader takes."""
    raise MalformedRequest(
        f"found more than {most} elements in its arrays and tagged fields, expected at most that"
    )


def too_many_tags(field: str, count: int) -> NoReturn:
    """Refuse a tagged section with more than MAX_TAGGED_FIELDS."""
    raise MalformedRequest(
        f"{field}: found {count} tagged fields, expected at most {MAX_TAGGED_FIELDS}"
    )


def bad_size(field: str, declared: int, used: int) -> NoReturn:
    """Refuse a tagged field that is not as long as its size says."""
    raise MalformedRequest(f"{field}: its tagged size is {declared}, its value took {used} bytes")


def too_long(field: str, length: int) -> NoReturn:
    """Refuse to encode a string that is too long."""
    raise UnencodableMessage(
        f"{field}: found {length} bytes of text, expected at most {MAX_STRING_BYTES}"
    )


def put_tags(out: bytearray, known: dict[int, bytes], unknown: Mapping[int, bytes]) -> None:
    """The tagged section: fields by rising tag, each behind its tag and size."""
    if unknown:
        for tag in unknown:
            if tag in known or not 0 <= tag <= 0xFFFFFFFF:
                raise UnencodableMessage(f"unknown_tagged_fields: tag {tag} is a known field's")
        known = {**known, **unknown}
    out += uvarint(len(known))
    for tag in sorted(known):
        value = known[tag]
        out += uvarint(tag)
        out += uvarint(len(value))
        out += value
