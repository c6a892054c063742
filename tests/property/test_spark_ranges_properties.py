"""Limits and offsets for any numbers: nothing skipped, nothing read twice, no limit overrun."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets, from_json_dict, read_offsets, to_json_dict
from pyspark_klog.spark.planning.limits import prorate
from pyspark_klog.spark.planning.ranges import plan

_OFFSET = st.integers(0, 2**63 - 1)
_PARTITIONS = st.builds(
    TopicPartition,
    st.from_regex(r"[A-Za-z0-9._-]{1,4}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)
_OFFSETS = st.dictionaries(_PARTITIONS, _OFFSET, min_size=1, max_size=8)


@st.composite
def _start_and_end(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    start = draw(_OFFSETS)
    end = {p: draw(st.integers(offset, 2**63 - 1)) for p, offset in start.items()}
    return start, end


@given(_start_and_end(), st.integers(1, 2**63 - 1))
def test_a_limited_batch_moves_on_and_stays_within(
    bounds: tuple[Offsets, Offsets], limit: int
) -> None:
    start, end = bounds
    until = prorate(limit, start, end)
    assert until.keys() == end.keys()
    backlog = {p for p in start if end[p] > start[p]}
    for partition in start:
        assert start[partition] <= until[partition] <= end[partition]
        assert (until[partition] > start[partition]) == (partition in backlog)
    taken = sum(until[p] - start[p] for p in start)
    # The one offset that each starved partition gets may go beyond the limit, as in the peer.
    assert taken <= limit + len(backlog)


@given(_start_and_end(), st.integers(1, 1_000))
def test_batches_after_each_other_read_each_offset_once(
    bounds: tuple[Offsets, Offsets], limit: int
) -> None:
    start, end = bounds
    end = {p: start[p] + min(end[p] - start[p], 50) for p in start}
    read: dict[TopicPartition, list[int]] = {p: [] for p in start}
    position = start
    while position != end:
        until = prorate(limit, position, end)
        for offsets in plan(position, until, {}).ranges:
            read[offsets.topic_partition] += range(offsets.start, offsets.end)
        position = until
    assert read == {p: list(range(start[p], end[p])) for p in start}


@given(_OFFSETS)
def test_offsets_survive_a_checkpoint_and_are_canonical(offsets: Offsets) -> None:
    text = json.dumps(to_json_dict(offsets))
    again = from_json_dict(json.loads(text), "it")
    assert again == offsets
    shuffled = dict(reversed(list(offsets.items())))
    assert json.dumps(to_json_dict(shuffled)) == text
    assert read_offsets(text, "startingOffsets") == (offsets, {})


@given(_OFFSETS, _OFFSETS, st.dictionaries(_PARTITIONS, _OFFSET))
def test_every_partition_is_read_reported_or_at_its_end(
    start: Offsets, end: Offsets, earliest: Offsets
) -> None:
    first_of_new = {p: earliest.get(p, 0) for p in end.keys() - start.keys()}
    found = plan(start, end, first_of_new)
    read = {offsets.topic_partition for offsets in found.ranges}
    for partition in start.keys() | end.keys():
        begin = start.get(partition, first_of_new.get(partition, 0))
        reported = partition in found.absent or any(
            loss.text.startswith(f"{partition} ") for loss in found.lost
        )
        assert partition in read or reported or end.get(partition) == begin
    assert all(offsets.start < offsets.end for offsets in found.ranges)
