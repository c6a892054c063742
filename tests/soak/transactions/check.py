"""Checks of a copy: every input is there exactly once, in the order of its key."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple


class Input(NamedTuple):
    """A record to copy. Its ``partition`` and ``offset`` identify it."""

    partition: int
    offset: int
    key: bytes
    number: int


class Output(NamedTuple):
    """A copied record: its place, and the input that its value names."""

    partition: int
    offset: int
    source: Input


def value_of(source: Input) -> bytes:
    """The value that a copy writes; all copying programs make the same."""
    return b"%d %d %d" % (source.partition, source.offset, source.number)


def output_of(partition: int, offset: int, key: bytes, value: bytes) -> Output:
    """A copied record, read back. Raises ValueError if its value is not one of `value_of`."""
    source_partition, source_offset, number = value.split()
    return Output(
        partition, offset, Input(int(source_partition), int(source_offset), key, int(number))
    )


def problems_of(inputs: Iterable[Input], outputs: Mapping[int, Sequence[Output]]) -> list[str]:
    """Problems of the committed ``outputs``, which are in the log's order by partition."""
    due = {(each.partition, each.offset): each for each in inputs}
    seen: dict[tuple[int, int], Output] = {}
    doubled, foreign, changed = [], [], []
    for output in (each for partition in outputs.values() for each in partition):
        where = (output.source.partition, output.source.offset)
        if where in seen:
            doubled.append(where)
        elif where not in due:
            foreign.append(where)
        elif due[where] != output.source:
            changed.append(where)
        seen.setdefault(where, output)
    lost = sorted(due.keys() - seen.keys())
    return [
        *_named("inputs lost", lost),
        *_named("inputs copied more than once", doubled),
        *_named("records that are no input", foreign),
        *_named("inputs with another key or number", changed),
        *_problems_of_order(outputs),
    ]


def _problems_of_order(outputs: Mapping[int, Sequence[Output]]) -> list[str]:
    """Check that a key's records lie in one partition, in the order of their inputs."""
    last: dict[bytes, Output] = {}
    swapped, apart = [], set()
    for output in (each for partition in outputs.values() for each in partition):
        before = last.get(output.source.key, output)
        if before.partition != output.partition:
            apart.add(output.source.key)
        elif before.source.offset > output.source.offset:
            swapped.append((output.partition, output.offset))
        last[output.source.key] = output
    return [
        *_named("outputs behind a later one of their key", swapped),
        *_named("keys in more than one partition", sorted(apart)),
    ]


def _named(what: str, those: Sequence[Hashable]) -> list[str]:
    if not those:
        return []
    some = ", ".join(
        "@".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in those[:5]
    )
    return [f"{len(those)} {what}: {some}{', ...' if len(those) > 5 else ''}"]
