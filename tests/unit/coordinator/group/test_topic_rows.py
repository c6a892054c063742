"""Memory and storage of a group's offsets in one topic."""

import sys
from collections.abc import Iterable

import pytest

from klog_broker.coordinator.group.packed_offsets import FIXED, OffsetAndMetadata
from klog_broker.coordinator.group.topic_rows import TopicRows
from pyspark_klog.ids import LeaderEpoch, Offset


def row(number: int) -> bytes:
    return FIXED.pack(number, 1, -1, number, -1, bytes(16))


def rows(numbers: Iterable[int]) -> bytes:
    return b"".join(map(row, numbers))


def size_of(found: TopicRows) -> int:
    return sys.getsizeof(found._block)


def test_neighbours_are_in_the_block() -> None:
    found = TopicRows()
    assert found.put_adjacent(0, rows(range(100))) == 100
    assert (found.in_block, len(found.outside_block)) == (100, 0)
    assert size_of(found) < 100 * FIXED.size + 200
    assert found.put_adjacent(90, rows(range(90, 120))) == 20
    assert found.in_block == len(found) == 120
    assert list(found) == list(range(120))


@pytest.mark.parametrize("partition", [2**31 - 1, 2**31 - 100, 1_000_000, 10, -1, -(2**31)])
def test_a_partition_far_from_the_others_takes_no_block(partition: int) -> None:
    found = TopicRows()
    assert found.put_adjacent(partition, row(7)) == 1
    assert found.put_adjacent(0, row(8)) == 1
    assert found.in_block == 1
    assert size_of(found) < 500
    kept = found.committed(partition)
    assert kept is not None
    assert kept.offset == 7


def test_partitions_in_any_order_are_in_the_block_at_last() -> None:
    found = TopicRows()
    for number in range(99, -1, -1):
        assert found.put_adjacent(number, row(number)) == 1
    assert found.in_block >= 50
    assert sorted(found) == list(range(100))


def test_every_other_partition_is_in_the_block() -> None:
    found = TopicRows()
    for number in range(0, 100, 2):
        found.put_adjacent(number, row(number))
    assert (found.in_block, len(found.outside_block)) == (50, 0)
    assert list(found) == list(range(0, 100, 2))
    assert found.committed(1) is None
    assert found.record_offset(1) is None
    assert found.times(1) is None
    assert found.pop_from_block(1) is None


def test_a_row_that_looks_absent_is_stored_outside_the_block() -> None:
    found = TopicRows()
    absent = FIXED.pack(-1, -1, -1, -1, -1, b"\xff" * 16)
    assert found.put_adjacent(0, absent + row(1)) == 2
    assert found.in_block == 0
    kept = found.committed(0)
    assert kept is not None
    assert kept.record_offset == -1


def test_all_bits_but_the_marks_may_be_set() -> None:
    found = TopicRows()
    found.put_adjacent(0, FIXED.pack(-1, -1, -1, 2**63 - 1, -1, b"\xff" * 16))
    assert found.in_block == 1
    assert found.record_offset(0) == 2**63 - 1
    assert found.times(0) == (-1, -1)


def test_a_block_that_nobody_uses_is_given_back() -> None:
    found = TopicRows()
    found.put_adjacent(0, rows(range(100)))
    committed = OffsetAndMetadata(Offset(5), LeaderEpoch(-1), "", 1, -1, Offset(9))
    for number in range(99):
        assert found.pop_from_block(number) == row(number)
        found.outside_block[number] = committed
    assert found.in_block == 1
    assert found.pop_from_block(99) == row(99)
    assert size_of(found) < 100
    assert len(found) == 99
    assert found.put_adjacent(0, row(3)) == 0
    assert found.in_block == 1
    assert found.record_offset(0) == 3
