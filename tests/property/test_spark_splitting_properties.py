"""Any ranges, any options: no offset dropped or doubled, pieces within one offset of even."""

import itertools
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.planning.splitting import split

_SIZES = st.lists(st.integers(1, 300) | st.integers(1, 2**50), min_size=1, max_size=8)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[OffsetRange], int | None, int | None]:
    sizes = draw(_SIZES)
    starts = draw(st.lists(st.integers(0, 2**50), min_size=len(sizes), max_size=len(sizes)))
    ranges = [
        OffsetRange("t", n, start, start + size)
        for n, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    least = draw(st.none() | st.integers(1, 200))
    # This bounds the number of tasks in an example; the planner itself has no such bound.
    most = draw(st.none() | st.integers(max(1, max(sizes) // 50), 2**51))
    return ranges, least, most


@given(_cases())
def test_every_offset_is_in_one_piece_and_pieces_are_even(
    case: tuple[list[OffsetRange], int | None, int | None],
) -> None:
    ranges, least, most = case
    pieces = split(ranges, least, most)
    of_partition: dict[int, list[OffsetRange]] = defaultdict(list)
    for piece in pieces:
        of_partition[piece.partition].append(piece)
    for whole in ranges:
        mine = of_partition[whole.partition]
        assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
        assert all(a.end == b.start for a, b in itertools.pairwise(mine))
        sizes = [piece.end - piece.start for piece in mine]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        if most is not None:
            assert max(sizes) <= most
    assert [p.partition for p in pieces] == sorted(p.partition for p in pieces)


@given(_cases())
def test_about_as_many_tasks_as_wished(
    case: tuple[list[OffsetRange], int | None, int | None],
) -> None:
    ranges, least, most = case
    count = len(split(ranges, least, most))
    without = len(split(ranges, None, most))
    if least is None or least <= without:
        assert count == without
    else:
        # Each share is rounded to half a task, and there may be too few offsets.
        assert count >= without
        assert count <= least + without
