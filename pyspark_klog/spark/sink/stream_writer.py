"""The stream sink: Arrow batches on Spark 4.1 and later, rows on 4.0."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StructType,
    TimestampType,
)

from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.sink.notices import log_ignored_in_run
from pyspark_klog.spark.sink.writer import (
    TaskWritten,
    abort_progress,
    check_timestamps,
    commit_progress,
    commit_written,
    log_aborted,
    run_of,
    write_task,
)
from pyspark_klog.spark.workers.error_display import one_line, one_line_in_task
from pyspark_klog.spark.workers.tcp_acknowledgement import Prompt

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    HAS_ARROW_STREAM_WRITER = False
else:
    HAS_ARROW_STREAM_WRITER = True

ROWS_A_BATCH = 5_000


class _StreamWriter(Prompt):
    """The base of RowStreamWriter and ArrowStreamWriter: commit and abort."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @one_line
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch. All rows were acknowledged (with acks=0: sent) when their tasks
        ended; with exactlyOnce they become visible here at the latest."""
        log_ignored_in_run(self._options, self._schema.fieldNames(), run_of(messages))
        commit_written(messages, self._options, f"micro-batch {batchId}")
        commit_progress(messages, self._options, batchId)
        check_timestamps(messages, self._options, f"micro-batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log a failed micro-batch. Rows of successful tasks stay written; only with exactlyOnce,
        transactions that tasks have left to the driver are aborted."""
        log_aborted(messages, f"micro-batch {batchId}")
        abort_progress(messages, self._options)


class RowStreamWriter(_StreamWriter, DataSourceStreamWriter):
    """The stream writer for Spark 4.0, which passes rows to streaming sinks."""

    @one_line_in_task
    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Write one task's rows."""
        time = self._options.timestamp_column
        return write_task(self._options, _to_arrow(iterator, self._schema, time))


if HAS_ARROW_STREAM_WRITER:

    class ArrowStreamWriter(_StreamWriter, DataSourceStreamArrowWriter):
        """The stream writer for Spark 4.1 and later, which pass Arrow batches to sinks."""

        @one_line_in_task
        def write(self, iterator: "Iterator[RecordBatch]") -> TaskWritten:
            """Write one task's rows."""
            return write_task(self._options, iterator, self._schema.fieldNames())


def stream_writer(options: Options, schema: StructType) -> DataSourceStreamWriter:
    """The stream writer for the installed version of Spark."""
    if HAS_ARROW_STREAM_WRITER:
        return ArrowStreamWriter(options, schema)
    return RowStreamWriter(options, schema)


def _to_arrow(
    rows: Iterable[Any], schema: StructType, timestamp_column: str | None
) -> "Iterator[RecordBatch]":
    """Spark 4.0's rows as Arrow batches like those of later releases of Spark, with only the
    columns that the sink writes."""
    import pyarrow as pa

    columns = [name for name in (*_COLUMNS, timestamp_column) if name in schema.fieldNames()]
    source = iter(rows)
    while some := list(islice(source, ROWS_A_BATCH)):
        arrays = [_column([row[name] for row in some], schema[name].dataType) for name in columns]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


def _column(values: list[Any], kind: DataType) -> "Array":
    """A column of Spark's Python values as an Arrow array; `check_sink_schema` has checked before
    the write that the sink accepts the column's type."""
    import pyarrow as pa

    if isinstance(kind, TimestampType):
        # Spark gives timestamps in rows as local time without a zone.
        micros = [kind.toInternal(value) for value in values]
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    if isinstance(kind, ArrayType):
        headers = [
            v and [h and dict(zip(("key", "value"), h, strict=True)) for h in v] for v in values
        ]
        struct = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return pa.array(headers, pa.list_(struct))
    if isinstance(kind, IntegerType):
        return pa.array(values, pa.int32())
    return pa.array(values, pa.binary() if isinstance(kind, BinaryType) else pa.string())


_COLUMNS = ("value", "key", "headers", "topic", "partition")
