"""The stream sink: Arrow batches on Spark 4.1 and later, rows on 4.0."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_klog.spark.options import SourceOptions
from pyspark_klog.spark.writer import TaskWritten, log_aborted, log_written, write_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    HAS_ARROW_STREAM_WRITER = False
else:
    HAS_ARROW_STREAM_WRITER = True

ROWS_A_BATCH = 5_000


class _StreamWriter:
    """What both classes share."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything was acknowledged when its task ended."""
        if batchId == 0:
            # Each micro-batch has processes of its own: only the first says what is ignored.
            self._options.client.warn_of_ignored()
        log_written(messages, f"micro-batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Rows of tasks that succeeded stay written: the sink writes at least once."""
        log_aborted(messages, f"micro-batch {batchId}")


class RowStreamWriter(_StreamWriter, DataSourceStreamWriter):
    """For Spark 4.0, which hands rows to streaming sinks."""

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Write one task's rows."""
        return write_task(self._options, _to_arrow(iterator, self._schema))


if HAS_ARROW_STREAM_WRITER:

    class ArrowStreamWriter(_StreamWriter, DataSourceStreamArrowWriter):
        """For Spark 4.1 and later."""

        def write(self, iterator: "Iterator[RecordBatch]") -> TaskWritten:
            """Write one task's rows."""
            return write_task(self._options, iterator)


def stream_writer(options: SourceOptions, schema: StructType) -> DataSourceStreamWriter:
    """The class that this Spark can use."""
    if HAS_ARROW_STREAM_WRITER:
        return ArrowStreamWriter(options, schema)
    return RowStreamWriter(options, schema)


def _to_arrow(rows: Iterable[Any], schema: StructType) -> "Iterator[RecordBatch]":
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = [name for name in _COLUMNS if name in schema.fieldNames()]
    arrow = to_arrow_schema(StructType([schema[name] for name in columns]), timezone="UTC")
    source = iter(rows)
    while some := list(islice(source, ROWS_A_BATCH)):
        arrays = [
            pa.array([_plain(row[name]) for row in some], arrow.field(name).type)
            for name in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _plain(value: Any) -> Any:
    """A header's rows as Arrow takes them."""
    if isinstance(value, list):
        return [None if v is None else {"key": v[0], "value": v[1]} for v in value]
    return value


_COLUMNS = ("value", "key", "headers", "topic", "partition")
