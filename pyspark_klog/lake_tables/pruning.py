"""Chooses the files of a table that may have the rows that a read wants. Pure.

The bounds of a `TableFile` only say which rows the file cannot have. A reader filters the rows of
the files that are left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_klog.lake_tables.table import TableFile


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The offsets from ``start`` on and before ``end``; None: up to the end of the table."""

    start: int
    end: int | None = None


def files_with_offsets(
    files: Iterable[TableFile], spans: Mapping[int, OffsetSpan]
) -> list[TableFile]:
    """Return the files that may have a row of ``spans``, which are by partition number."""
    return [file for file in files if _may_have_offsets(file, spans)]


def _may_have_offsets(file: TableFile, spans: Mapping[int, OffsetSpan]) -> bool:
    if file.partition is None:
        return any(_overlaps(file, span) for span in spans.values())
    span = spans.get(file.partition)
    return span is not None and _overlaps(file, span)


def _overlaps(file: TableFile, span: OffsetSpan) -> bool:
    if file.last_offset is not None and file.last_offset < span.start:
        return False
    return span.end is None or file.first_offset is None or file.first_offset < span.end


def search_order(
    files: Iterable[TableFile], partition: int, from_us: int
) -> tuple[list[TableFile], list[TableFile]]:
    """Return the files to search for the first offset of a partition whose record has the timestamp
    ``from_us`` (in microseconds since 1970) or a later one.

    The second list has the later files; search them only if no file of the first list has such a
    record. A search of the first list finds the lowest offset, if any.
    """
    found = [
        file
        for file in files
        if file.partition in (partition, None)
        and (file.last_time_us is None or file.last_time_us >= from_us)
    ]
    known = [file for file in found if file.partition is not None and file.first_offset is not None]
    if not known:
        return found, []
    last_offset = min(known, key=lambda file: file.first_offset or 0).last_offset
    later = [
        file
        for file in known
        if last_offset is not None
        and file.first_offset is not None
        and file.first_offset > last_offset
    ]
    return [file for file in found if file not in later], later
