"""A data source and sink without work: the time that Spark itself takes for Arrow batches."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_klog.spark.source.rows import ARROW_BATCH_BYTES, source_schema
from pyspark_klog.spark.workers.clients import freeze_once
from pyspark_klog.spark.workers.tcp_acknowledgement import Prompt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_MOST_ROWS = 50_000


class _Part(InputPartition):
    """An input partition; its value is the number of rows."""


def _parts(options: dict[str, str], rows: int) -> list[InputPartition]:
    count = int(options["partitions"]) if rows else 0
    return [_Part(rows // count) for _ in range(count)]


def _read(options: dict[str, str], rows: int) -> "Iterator[RecordBatch]":
    """One batch, again and again, with the columns and the size of klog's."""
    import pyarrow as pa

    value = b"v" * int(options["value_bytes"])
    count = max(1, min(ARROW_BATCH_BYTES // len(value), _MOST_ROWS, rows))
    numbers = range(count)
    columns = {
        "key": pa.array([b"key-%06d" % n for n in numbers], pa.binary()),
        "value": pa.array([value] * count, pa.binary()),
        "topic": pa.array(["bench-spark-0"] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([1_763_000_000_000_000] * count, pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    for first in range(0, rows, count):
        yield batch.slice(0, min(count, rows - first))
    freeze_once()


class _Reader(Prompt, DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return _parts(self._options, int(self._options["records"]))

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return _read(self._options, partition.value)


class _StreamReader(Prompt, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._records = int(options["records"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(int(self._options.get("maxoffsetspertrigger", self._records)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        assert isinstance(limit, ReadMaxRows)
        return {"at": min(start["at"] + limit.max_rows, self._records)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _parts(self._options, end["at"] - start["at"])

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return _read(self._options, partition.value)


class _Discarding(Prompt, DataSourceArrowWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options  # a state, because without one __setstate__ is not called

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        return _drop(iterator)


class _StreamDiscarding(Prompt, DataSourceStreamArrowWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        return _drop(iterator)


def _drop(batches: "Iterator[RecordBatch]") -> WriterCommitMessage:
    for _ in batches:
        pass
    freeze_once()
    return WriterCommitMessage()


class Ceiling(DataSource):
    """The data source.

    Reading options: ``records``, ``partitions``, ``value_bytes``, maxOffsetsPerTrigger.
    """

    @classmethod
    def name(cls) -> str:
        return "klog-bench-ceiling"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _Reader(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        return _StreamReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        return _Discarding(dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802, ARG002
        return _StreamDiscarding(dict(self.options))
