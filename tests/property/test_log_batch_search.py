"""A search that remembers earlier searches finds what a walk through the segment finds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.batch_positions import BATCH_START_BYTES
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.segment.segment import Segment
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.storage.indexes import OffsetIndexView
from tests.support.log.harness import SMALL, append, batch, open_log, truncate
from tests.support.runtime.memory_files import MemoryFiles

Step = Callable[[PartitionLog], None]

LEADER_EPOCH_AT = 12

# Smaller than a look at the log, and larger than several.
VALUES = st.sampled_from((10, 100, 1_000, 9_000, 30_000))
CONFIG = replace(SMALL, segment_bytes=100_000, index_interval_bytes=200)


@st.composite
def appends(draw: st.DrawFn) -> Step:
    sizes = draw(st.lists(VALUES, min_size=1, max_size=8))
    records = draw(st.integers(1, 4))
    # As a cleaned leader has them: offsets that no batch holds.
    gap = draw(st.sampled_from((0, 0, 1, 50)))

    def run(log: PartitionLog) -> None:
        for size in sizes:
            data = bytearray(batch(records, value=b"v" * (size // records)))
            if gap:
                epoch = max(log.leader_epoch, LeaderEpoch(0))
                struct.pack_into(">q", data, 0, log.log_end_offset + gap)
                struct.pack_into(">i", data, LEADER_EPOCH_AT, epoch)
                log.append_as_follower(memoryview(data), leader_epoch=epoch, now_ms=5_000)
            else:
                append(log, bytes(data))

    return run


@st.composite
def searches(draw: st.DrawFn) -> Step:
    """Several readers at random offsets take turns, and each reads on for a while."""
    starts = draw(st.lists(st.floats(0, 1), min_size=1, max_size=3))
    strides = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))

    def run(log: PartitionLog) -> None:
        width = log.log_end_offset - log.log_start_offset
        for stride in strides:
            for start in starts:
                offset = log.log_start_offset + int(start * width) + stride
                for segment in log.segments:
                    check(segment, offset)
                expected = first_at(log.segments, offset)
                if log.log_start_offset <= offset < log.log_end_offset:
                    found = log.read(offset, 1, min_one_batch=True, end_offset=log.log_end_offset)
                    # No record follows the last batch if the log was cut within a batch.
                    assert (found.region and found.region[1:]) == expected

    return run


def first_at(segments: tuple[Segment, ...], offset: int) -> tuple[int, int] | None:
    """Position and size of the first batch that ends at or after the offset, by walking."""
    for segment in segments:
        for place in segment.batch_positions():
            if place.last_offset >= offset:
                return place.position, place.size_bytes
    return None


def check(segment: Segment, offset: int) -> None:
    found = find_batch(segment, offset)
    assert (None if found is None else found[:2]) == first_at((segment,), offset)


@st.composite
def cuts(draw: st.DrawFn) -> Step:
    share = draw(st.floats(0.3, 1))

    def run(log: PartitionLog) -> None:
        width = log.log_end_offset - log.log_start_offset
        truncate(log, log.log_start_offset + int(share * width))

    return run


@st.composite
def trims(draw: st.DrawFn) -> Step:
    share = draw(st.floats(0, 0.7))

    def run(log: PartitionLog) -> None:
        width = log.high_watermark - log.log_start_offset
        log.delete_records_before(log.log_start_offset + int(share * width))
        log.apply_retention(10_000)

    return run


def roll(log: PartitionLog) -> None:
    log.roll(10_000)


def close_indexes(log: PartitionLog) -> None:
    log.close_unused_indexes()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            appends(), appends(), searches(), searches(), cuts(), trims(),
            st.sampled_from((roll, close_indexes)),
        ),
        min_size=2,
        max_size=14,
    ),
    searches(),
)  # fmt: skip
def test_every_search_finds_what_a_walk_finds(steps: list[Step], last: Step) -> None:
    log = open_log(MemoryFiles(), CONFIG)
    append(log, batch(3))
    for step in [*steps, last]:
        step(log)


@given(
    st.lists(st.integers(1, 5), max_size=700),
    st.integers(-5, 3_000),
    st.one_of(st.integers(0, 800), st.sampled_from((-1, 10**6))),
)
def test_the_near_row_changes_nothing(steps: list[int], target: int, near_row: int) -> None:
    rows = bytearray()
    offset = 0
    offsets = []
    for number, step in enumerate(steps):
        offset += step
        offsets.append(offset)
        rows += struct.pack(">ii", offset, number)
    view = OffsetIndexView(rows, 0)
    expected = sum(1 for each in offsets if each <= target)
    assert view.rows_at_or_below(target, near_row) == expected


class CountingLooks:
    """Counts how often a segment's log is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: list[int] = []
        look = Segment.read_bytes

        def counted(segment: Segment, position: int, size: int, *, may_block: bool = True) -> bytes:
            self.looks.append(size)
            return look(segment, position, size, may_block=may_block)

        monkeypatch.setattr(Segment, "read_bytes", counted)


def test_a_large_batch_is_found_by_one_look_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(
        MemoryFiles(), replace(SMALL, segment_bytes=1 << 30, segment_index_bytes=1 << 20)
    )
    for _ in range(300):
        append(log, batch(4, value=b"v" * 4_000))
    looks = CountingLooks(monkeypatch).looks
    # The newest batches' places are known without the index.
    for offset in range(8, 40 * 4):
        assert log.read(offset, 1, min_one_batch=True).region is not None
    assert looks == [BATCH_START_BYTES] * (40 * 4 - 8)
