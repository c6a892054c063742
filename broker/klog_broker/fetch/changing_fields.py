"""Finds the fields in the bytes of a Fetch that change from one fetch to the next."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

_FIRST_VERSION = 4
_FIRST_VERSION_WITH_LOG_START = 5
_FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_EPOCHS = 9
_FIRST_VERSION_WITH_RACKS = 11
_FIRST_FLEXIBLE_VERSION = 12
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITHOUT_REPLICA_ID = 15

CORRELATION_ID_AT = 4
_CORRELATION_ID_BYTES = 4
_EPOCH_BYTES = 4
_OFFSET_BYTES = 8
_UUID_BYTES = 16
# The size of max_wait_ms, min_bytes, max_bytes and isolation_level together.
_BOUNDS_BYTES = 13

_LENGTH = Struct(">h").unpack_from
_COUNT = Struct(">i").unpack_from


class ChangingFields(NamedTuple):
    """The positions, in a Fetch request's frame, of the fields that change from one fetch of a
    connection to the next, except the correlation id."""

    epoch_at: int
    """The session epoch's position; 0 in versions without sessions."""
    offsets_at: tuple[int, ...]
    """The positions of the partitions' fetch_offset, in the order of the request."""

    def pieces(self, frame: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes between the changing fields (correlation id, session epoch and fetch
        offsets), each with its position in the frame."""
        ends = [(CORRELATION_ID_AT, _CORRELATION_ID_BYTES)]
        if self.epoch_at:
            ends.append((self.epoch_at, _EPOCH_BYTES))
        ends += [(at, _OFFSET_BYTES) for at in self.offsets_at]
        start = 0
        for at, size_bytes in ends:
            yield start, frame[start:at]
            start = at + size_bytes
        yield start, frame[start:]


def find_changing_fields(frame: bytes, version: int, position: int) -> ChangingFields | None:
    """Find the changing fields of a request; ``position`` is the start of the message after the
    header. Return None for rare requests: versions before 4, tagged fields of topics or partitions,
    forgotten topics, or in flexible versions a count or a name's length above 126."""
    if version < _FIRST_VERSION:
        return None
    try:
        if version < _FIRST_FLEXIBLE_VERSION:
            holes, end = _plain(frame, version, position)
        else:
            holes, end = _flexible(frame, version, position)
    except (_Unusual, IndexError, error):
        return None
    return holes if end == len(frame) else None


class _Unusual(Exception):
    """The request has one of the rare forms for which ``find_changing_fields`` returns None."""


def _plain(frame: bytes, version: int, position: int) -> tuple[ChangingFields, int]:
    position += 4 + _BOUNDS_BYTES
    epoch_at = 0
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        epoch_at = position + 4
        position += 8
    (topics,) = _COUNT(frame, position)
    position += 4
    offset_at, partition_bytes = 4, 16
    if version >= _FIRST_VERSION_WITH_LOG_START:
        partition_bytes += 8
    if version >= _FIRST_VERSION_WITH_EPOCHS:
        offset_at, partition_bytes = offset_at + 4, partition_bytes + 4
    offsets_at: list[int] = []
    for _ in range(topics):
        position += 2 + _LENGTH(frame, position)[0]
        (partitions,) = _COUNT(frame, position)
        position += 4
        for _ in range(partitions):
            offsets_at.append(position + offset_at)
            position += partition_bytes
            if position > len(frame):
                raise _Unusual
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        if _COUNT(frame, position)[0]:
            raise _Unusual
        position += 4
    if version >= _FIRST_VERSION_WITH_RACKS:
        position += 2 + _LENGTH(frame, position)[0]
    return ChangingFields(epoch_at, tuple(offsets_at)), position


def _flexible(frame: bytes, version: int, position: int) -> tuple[ChangingFields, int]:
    if version < _FIRST_VERSION_WITHOUT_REPLICA_ID:
        position += 4
    epoch_at = position + _BOUNDS_BYTES + 4
    position += _BOUNDS_BYTES + 8
    topics = _few(frame, position)
    position += 1
    offsets_at: list[int] = []
    for _ in range(topics):
        if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            position += _UUID_BYTES
        else:
            position += 1 + _few(frame, position)
        partitions = _few(frame, position)
        position += 1
        for _ in range(partitions):
            offsets_at.append(position + 8)
            position += 32
            _no_tags(frame, position)
            position += 1
        _no_tags(frame, position)
        position += 1
    if _few(frame, position):
        raise _Unusual
    position += 1
    position += 1 + _few(frame, position)
    # The rest of the frame, the message's own tagged fields (a follower's replica id and broker
    # epoch), does not change. Raise IndexError if the frame ends before them.
    frame[position]
    return ChangingFields(epoch_at, tuple(offsets_at)), len(frame)


def _few(frame: bytes, position: int) -> int:
    """Return a count or length, which flexible versions store plus one. Raise _Unusual for null
    (0), and for a number that takes more than one byte."""
    found = frame[position]
    if not 0 < found < 128:
        raise _Unusual
    return found - 1


def _no_tags(frame: bytes, position: int) -> None:
    if frame[position]:
        raise _Unusual
