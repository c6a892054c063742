"""Compares the replicas' files: below the lowest end all hold the same bytes."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_HEAD = struct.Struct(">qi")
"""Base offset and length of a batch; the length does not count these 12 bytes."""
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_AT = 23


def batches(folder: Path) -> Iterator[tuple[int, int, bytes]]:
    """The first and next offset and the bytes of each whole batch of a partition, in order."""
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        at = 0
        while at + _HEAD.size <= len(data):
            base, length = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            if length <= 0 or end > len(data):
                break  # preallocated space, or a batch that is just being written
            (delta,) = _LAST_DELTA.unpack_from(data, at + _LAST_DELTA_AT)
            yield base, base + delta + 1, data[at:end]
            at = end


def problems_of_replicas(
    name: str, folders: Mapping[int, Path], least_end: int | None = None
) -> list[str]:
    """Problems of the replicas of a partition, by broker.

    All must be equal from the latest start up to the earliest end, and reach ``least_end`` if it is
    given.
    """
    found = {number: list(batches(folder)) for number, folder in folders.items()}
    problems = []
    ends = {number: rows[-1][1] if rows else 0 for number, rows in found.items()}
    if least_end is not None:
        problems += [
            f"{name}: broker {number} has records up to {end} of {least_end}"
            for number, end in sorted(ends.items())
            if end < least_end
        ]
    start = max((rows[0][0] for rows in found.values() if rows), default=0)
    end = min(ends.values(), default=0)
    parts = {
        number: [row for row in rows if row[0] >= start and row[1] <= end]
        for number, rows in found.items()
    }
    first = min(parts, default=0)
    for number, rows in sorted(parts.items()):
        if rows != parts[first]:
            where = _first_difference(rows, parts[first])
            problems.append(f"{name}: brokers {first} and {number} differ at offset {where}")
    return problems


def _first_difference(
    some: Sequence[tuple[int, int, bytes]], others: Sequence[tuple[int, int, bytes]]
) -> int:
    for one, other in zip(some, others, strict=False):
        if one != other:
            return min(one[0], other[0])
    shorter = min(some, others, key=len)
    return shorter[-1][1] if shorter else 0


def partitions_of(data: Mapping[int, Path]) -> dict[str, dict[int, Path]]:
    """The folders of each partition by broker, found below the brokers' data folders."""
    found: dict[str, dict[int, Path]] = {}
    for number, folder in data.items():
        for partition in sorted(folder.iterdir()):
            if partition.is_dir() and any(partition.glob("*.log")):
                found.setdefault(partition.name, {})[number] = partition
    return found
