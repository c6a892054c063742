"""Partitioners of a user's own, for tests: what `kafka.partitioner.class` may name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def last_but_keyed(topic: str, rows: "RecordBatch", partition_count: int) -> list[int | None]:
    """The last partition; null, which is the default's, for values that are odd numbers."""
    values = rows.column("value").to_pylist()
    return [None if int(value) % 2 else partition_count - 1 for value in values]


def too_few(topic: str, rows: "RecordBatch", partition_count: int) -> list[int]:
    """A number for one row only."""
    return [0]


def no_numbers(topic: str, rows: "RecordBatch", partition_count: int) -> list[str]:
    """Words."""
    return ["a"] * rows.num_rows


def out_of_range(topic: str, rows: "RecordBatch", partition_count: int) -> list[int]:
    """A partition that the topic lacks."""
    return [partition_count] * rows.num_rows
