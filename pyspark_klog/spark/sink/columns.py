"""The sink's columns on their way from Arrow to the encoder: how each is read, and what a row that
cannot be written did wrong. Pure."""

from typing import TYPE_CHECKING

from pyspark_klog.spark.sink.dead_letters import Reason

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, Scalar

    from pyspark_klog.records.arrow import EncodedRows, RowProblem


def column(rows: "RecordBatch", name: str) -> "Array | None":
    """A column, if the rows have it."""
    return rows.column(name) if name in rows.schema.names else None


def headers(rows: "RecordBatch") -> "Array | None":
    """The column with the names that the encoder knows; Spark's may differ in case."""
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


def timestamps(rows: "RecordBatch") -> "Array | None":
    """The column; -1 ms, which a record of format v0 is read with, means none."""
    found = column(rows, "timestamp")
    if found is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    none = pa.scalar(-1_000, pa.int64()).cast(pa.timestamp("us")).cast(found.type)
    is_none = pc.equal(found, none)
    if not pc.any(is_none).as_py():
        return found
    return pc.if_else(is_none, pa.scalar(None, found.type), found)


def _shown(timestamp: "Scalar") -> str:
    """A time as text. Spark has years that Python's datetime has not."""
    try:
        return str(timestamp.as_py())
    except (OverflowError, ValueError):
        return f"{-timestamp.value} us before 1970"


def has_unknown_partition(
    encoded: "EncodedRows", rows: "RecordBatch", partition_count: int
) -> bool:
    """Whether a row names a partition that the topic may have got by now."""
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
) -> tuple[Reason, str]:
    """Why a row of ``rows``, all for one topic, is refused, and in which words."""
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
        given = _shown(rows.column("timestamp")[row])
        error = f"column timestamp is {given} in a row; a record's time begins with 1970"
        return Reason.BAD_TIMESTAMP, error
    return Reason.TOO_LARGE, (
        f"a row for topic {topic} is larger than {max_request_bytes} bytes; raise "
        "kafka.max.request.size (and the topic's max.message.bytes)"
    )
