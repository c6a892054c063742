"""The sink's columns from Arrow to the encoder: reads each column, and explains why a row cannot be
written. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_klog.spark.sink.dead_letters import Reason

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, Scalar

    from pyspark_klog.records.arrow import EncodedRows, RowProblem


def first_of_each_name(rows: "RecordBatch", names: Sequence[str]) -> "RecordBatch":
    """The rows with only the first of the columns that have the same name; ``names`` are the column
    names of the DataFrame. Spark's own connector uses the first column, too.

    Only Spark 4.0 passes such rows to a Python sink, with numbered columns (`x_0`, `x_1`).
    """
    if len(set(names)) == len(names):
        return rows
    import pyarrow as pa

    firsts = {name: names.index(name) for name in names}
    arrays = [rows.column(number) for number in firsts.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(firsts))


def column(rows: "RecordBatch", name: str) -> "Array | None":
    """The column ``name`` of the rows; None if the rows lack it."""
    return rows.column(name) if name in rows.schema.names else None


def headers(rows: "RecordBatch") -> "Array | None":
    """The column ``headers``, with its struct fields named ``key`` and ``value``, as the encoder
    expects; in the rows from Spark these names may differ in case."""
    found = column(rows, "headers")
    if found is None:
        return None
    import pyarrow as pa

    names = [field.name for field in found.type.value_type]
    if names == ["key", "value"]:
        return found
    structs = pa.StructArray.from_arrays(found.values.flatten(), names=["key", "value"])
    kind = pa.list_(structs.type)
    return pa.Array.from_buffers(
        kind, len(found), found.buffers()[:2], offset=found.offset, children=[structs]
    )


def timestamps(rows: "RecordBatch", name: str | None) -> "Array | None":
    """The records' timestamps in microseconds, UTC: the values of the column that option
    timestampColumn names, or no array without the option. A value of -1 ms, which a record of
    format v0 has when it is read, becomes null.
    """
    found = None if name is None else column(rows, name)
    if found is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    # Replace the session's time zone in the column's type: pyarrow may not know it (UTC+01:00).
    found = found.cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
    none = pa.scalar(-1_000, pa.int64()).cast(found.type)
    is_none = pc.equal(found, none)
    if not pc.any(is_none).as_py():
        return found
    return pc.if_else(is_none, pa.scalar(None, found.type), found)


def oldest_ms(timestamps: "Array | None", rejected_rows: Sequence[int]) -> int | None:
    """The smallest of the timestamps, in ms since 1970; None if there is none. The timestamps of
    ``rejected_rows``, which are not written to their topic, are left out."""
    if timestamps is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    times_us = timestamps.cast(pa.int64())
    if rejected_rows:
        numbers = pa.array(range(len(times_us)))
        is_rejected = pc.is_in(numbers, pa.array(rejected_rows, numbers.type))
        times_us = times_us.filter(pc.invert(is_rejected))
    oldest_us = pc.min(times_us).as_py()
    return None if oldest_us is None else int(oldest_us) // 1_000


def _shown(timestamp: "Scalar") -> str:
    """A timestamp as text; Spark has years that Python's datetime lacks."""
    try:
        return str(timestamp.as_py())
    except (OverflowError, ValueError):
        return f"{-timestamp.value} us before 1970"


def has_unknown_partition(
    encoded: "EncodedRows", rows: "RecordBatch", partition_count: int
) -> bool:
    """Whether a rejected row names a partition that may have been added to the topic since its
    metadata was read."""
    given = column(rows, "partition")
    if not encoded.rejected or given is None or not given.null_count < len(given):
        return False
    import pyarrow.compute as pc

    return bool(pc.max(given).as_py() >= partition_count)


def sentence(
    problem: "RowProblem",
    topic: str,
    rows: "RecordBatch",
    row: int,
    partition_count: int,
    max_request_bytes: int,
    timestamp_column: str | None,
) -> tuple[Reason, str]:
    """The reason, for a dead letter, why row number ``row`` of ``rows``, which are all for
    ``topic``, cannot be written, and a sentence about it."""
    from pyspark_klog.records.arrow import RowProblem

    if problem is RowProblem.BAD_PARTITION:
        given = column(rows, "partition")
        what = "kafka.partitioner.class gave another number"
        if given is not None and given[row].is_valid:
            what = f"column partition is {given[row].as_py()} in a row"
        last = partition_count - 1
        return Reason.BAD_PARTITION, f"{what} for topic {topic}; expected 0 to {last}"
    if problem is RowProblem.NULL_HEADER_KEY:
        error = "column headers has a header without a key; expected a key in each"
        return Reason.BAD_HEADERS, error
    if problem is RowProblem.NEGATIVE_TIMESTAMP:
        times = timestamps(rows, timestamp_column)
        assert times is not None
        error = (
            f"column {timestamp_column} is {_shown(times[row])} in a row; a record's timestamp "
            "cannot be before 1970"
        )
        return Reason.BAD_TIMESTAMP, error
    return Reason.TOO_LARGE, (
        f"a row for topic {topic} is larger than {max_request_bytes} bytes; raise "
        "kafka.max.request.size (and the topic's max.message.bytes)"
    )
