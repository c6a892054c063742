"""The partition of records without a key."""

from collections import Counter
from random import Random

from pyspark_klog.client.producer.sticky_partition import StickyPartition

BATCH_BYTES = 1_000


def fill(sticky: StickyPartition, waiting: dict[int, int], count: int, size: int) -> list[int]:
    """Choose for ``count`` records; a batch is complete after each `BATCH_BYTES` bytes."""
    chosen, batch_bytes = [], 0
    for _ in range(count):
        chosen.append(sticky.choose(waiting, 4))
        batch_bytes += size
        sticky.add(size, is_batch_complete=batch_bytes >= BATCH_BYTES)
        if batch_bytes >= BATCH_BYTES:
            batch_bytes = 0
    return chosen


def test_a_partition_is_kept_until_its_batch_is_full() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(1).random)
    chosen = fill(sticky, dict.fromkeys(range(4), 0), 1_000, 100)
    runs = [chosen[at : at + 10] for at in range(0, 1_000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert set(chosen) == {0, 1, 2, 3}


def test_all_partitions_get_as_many_bytes() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(2).random)
    counts = Counter(fill(sticky, dict.fromkeys(range(4), 0), 40_000, 100))
    assert all(9_000 < count < 11_000 for count in counts.values())


def test_a_partition_with_many_waiting_batches_is_chosen_less_often() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(3).random)
    counts = Counter(fill(sticky, {0: 0, 1: 0, 2: 9, 3: 0}, 40_000, 100))
    assert counts[2] < counts[0] / 5 and counts[2] > 0


def test_a_partition_without_a_leader_is_not_chosen() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(4).random)
    assert set(fill(sticky, {1: 0, 3: 5}, 4_000, 100)) == {1, 3}


def test_without_any_leader_every_partition_is_possible() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(5).random)
    assert set(fill(sticky, {}, 4_000, 100)) == {0, 1, 2, 3}


def test_batches_that_are_never_full_change_the_partition_after_twice_the_size() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(6).random)
    chosen = []
    for _ in range(400):
        chosen.append(sticky.choose(dict.fromkeys(range(4), 0), 4))
        sticky.add(100, is_batch_complete=False)
    assert all(len(set(chosen[at : at + 20])) == 1 for at in range(0, 400, 20))
    assert len(set(chosen)) > 1


def test_a_topic_with_fewer_partitions_than_before() -> None:
    sticky = StickyPartition(BATCH_BYTES, Random(7).random)
    for _ in range(50):
        sticky.choose({3: 0}, 4)
        assert sticky.choose({0: 0, 3: 0}, 1) == 0
