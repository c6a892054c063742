"""Any files and any rows: a file that is skipped has no wanted row."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_klog.lake_tables.pruning import OffsetSpan, files_with_offsets, search_order
from pyspark_klog.lake_tables.table import TableFile

_PARTITIONS = st.integers(0, 2)
_OFFSETS = st.integers(0, 30)
_TIMES_US = st.integers(-1, 20)


@dataclass(frozen=True)
class Row:
    """The values of a row by which its file may be skipped."""

    partition: int
    offset: int
    time_us: int


Files = Sequence[tuple[TableFile, list[Row]]]

_ROWS = st.lists(st.builds(Row, _PARTITIONS, _OFFSETS, _TIMES_US), min_size=1, max_size=6)


@st.composite
def _files(draw: st.DrawFn) -> Files:
    """Files with their rows. A bound may be unknown, and wider than the rows, as that of a program
    that rounds. klog's own files have one partition and no offset in common; others may."""
    found = []
    for number, rows in enumerate(draw(st.lists(_ROWS, max_size=5))):
        if draw(st.booleans()):
            rows = [Row(rows[0].partition, row.offset, row.time_us) for row in rows]
        one = len({row.partition for row in rows}) == 1
        offsets, times = [row.offset for row in rows], [row.time_us for row in rows]
        slack = draw(st.integers(0, 2))
        bounds = [min(offsets), max(offsets), min(times) - slack, max(times) + slack]
        known = [bound if draw(st.booleans()) else None for bound in bounds]
        partition = rows[0].partition if one and draw(st.booleans()) else None
        found.append((TableFile(f"f{number}", len(rows), 1, partition, *known), rows))
    return found


_SPANS = st.dictionaries(
    _PARTITIONS,
    st.tuples(_OFFSETS, st.none() | _OFFSETS).map(lambda pair: OffsetSpan(*pair)),
)


def _is_in(row: Row, span: OffsetSpan | None) -> bool:
    if span is None:
        return False
    return row.offset >= span.start and (span.end is None or row.offset < span.end)


@given(_files(), _SPANS)
def test_a_skipped_file_has_no_wanted_offset(files: Files, spans: dict[int, OffsetSpan]) -> None:
    left = files_with_offsets([file for file, _ in files], spans)
    for file, rows in files:
        wanted = [row for row in rows if _is_in(row, spans.get(row.partition))]
        assert not wanted or file in left


@given(_files())
@example([(TableFile("f", 1, 1, 1, 4, 7, 0, 0), [Row(1, 4, 0)])])
def test_files_are_skipped_by_partition_and_by_offset(files: Files) -> None:
    """A file whose bounds are all known is read for the partitions and offsets within them only."""
    for file, _ in files:
        if file.partition is None or file.first_offset is None or file.last_offset is None:
            continue
        other, first, last = (file.partition + 1) % 3, file.first_offset, file.last_offset
        assert files_with_offsets([file], {other: OffsetSpan(0)}) == []
        assert files_with_offsets([file], {file.partition: OffsetSpan(last + 1)}) == []
        assert files_with_offsets([file], {file.partition: OffsetSpan(0, first)}) == []
        assert files_with_offsets([file], {file.partition: OffsetSpan(last, last + 1)}) == [file]


@given(_files(), _PARTITIONS, _TIMES_US)
def test_the_first_offset_of_a_time_is_found_in_the_order_of_search(
    files: Files, partition: int, from_us: int
) -> None:
    def first_in(some: Sequence[TableFile]) -> int | None:
        rows = [row for file, its in files if file in some for row in its]
        return min(
            (r.offset for r in rows if r.partition == partition and r.time_us >= from_us),
            default=None,
        )

    all_files = [file for file, _ in files]
    soon, later = search_order(all_files, partition, from_us)
    found = first_in(soon)
    assert (first_in(later) if found is None else found) == first_in(all_files)


def test_a_search_begins_with_one_file_of_a_table_of_klog() -> None:
    files = [TableFile(f"f{n}", 5, 1, 0, n * 5, n * 5 + 4, n * 10, n * 10 + 9) for n in range(4)]
    other = TableFile("other", 5, 1, 1, 0, 4, 0, 90)
    assert search_order([*files, other], 0, 12) == ([files[1]], files[2:])
    assert search_order([*files, other], 0, 40) == ([], [])
