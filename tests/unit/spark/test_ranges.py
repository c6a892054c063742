"""Which offsets a micro-batch reads: the peer's arithmetic, and what counts as loss."""

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.offsets import from_json_dict, to_json_dict
from pyspark_klog.spark.planning.limits import prorate
from pyspark_klog.spark.planning.ranges import OffsetRange, plan


def _of(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", n): offset for n, offset in enumerate(offsets)}


def test_no_limit_takes_all() -> None:
    assert prorate(None, _of(0, 0), _of(10, 20)) == _of(10, 20)
    assert prorate(2**63 - 1, _of(0, 5), _of(10, 2**63 - 9)) == _of(10, 2**63 - 9)


def test_shares_follow_the_backlog_rounded_down() -> None:
    assert prorate(10, _of(0, 0), _of(30, 70)) == _of(3, 7)
    assert prorate(10, _of(100, 0), _of(133, 67)) == _of(103, 6)


def test_a_partition_with_anything_to_read_gets_one() -> None:
    assert prorate(5, _of(0, 0, 0), _of(1_000_000, 1, 2)) == _of(4, 1, 1)
    assert prorate(1, _of(0, 0, 0), _of(9, 9, 9)) == _of(1, 1, 1)


def test_partitions_without_backlog_go_to_their_end() -> None:
    assert prorate(5, _of(7, 10), _of(7, 30)) == _of(7, 15)
    assert prorate(5, _of(7, 10), _of(3, 30)) == _of(3, 15)


def test_fifteen_records_at_most_five_are_three_batches() -> None:
    start, ends = _of(0, 0, 0), _of(5, 6, 4)
    counts = []
    while start != ends:
        until = prorate(5, start, ends)
        counts.append(sum(until.values()) - sum(start.values()))
        start = until
    assert sum(counts) == 15
    assert max(counts) <= 5 + 2


def test_ranges_between_two_offsets() -> None:
    found = plan(_of(1, 5), _of(4, 5), {})
    assert found.ranges == [OffsetRange("t", 0, 1, 4)]
    assert found.lost == []


def test_a_new_partition_is_read_from_its_earliest() -> None:
    found = plan(_of(1), _of(1, 8), {TopicPartition("t", 1): 0})
    assert found.ranges == [OffsetRange("t", 1, 0, 8)]
    assert found.lost == []


def test_a_new_partition_that_lacks_its_beginning_is_a_loss() -> None:
    found = plan(_of(1), _of(1, 8), {TopicPartition("t", 1): 3})
    assert found.ranges == [OffsetRange("t", 1, 3, 8)]
    assert [("t-1 is new" in lost.text and "offset 3" in lost.text) for lost in found.lost] == [
        True
    ]


def test_a_partition_that_is_gone_is_a_loss() -> None:
    found = plan(_of(4, 6), _of(4), {})
    assert found.absent == [TopicPartition("t", 1)]
    assert (found.ranges, found.lost) == ([], [])


def test_an_end_before_the_start_is_a_loss_and_is_skipped() -> None:
    found = plan(_of(9), _of(3), {})
    assert found.ranges == []
    assert "offset 3, before offset 9" in found.lost[0].text


def test_offsets_are_written_in_one_order() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    written = to_json_dict(offsets)
    assert list(written) == ["a", "b"]
    assert list(written["a"]) == ["9", "10"]
    assert from_json_dict(written, "it") == offsets


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "x",
        {"t": 3},
        {"t": {"0": "1"}},
        {"t": {"0": None}},
        {"t": {"-1": 1}},
        {"t": {"0": -1}},
    ],
)
def test_a_checkpoint_that_is_none(given: object) -> None:
    with pytest.raises(OffsetError, match="the start"):
        from_json_dict(given, "the start")
