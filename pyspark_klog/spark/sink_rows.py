"""The sink's columns: what they must be, and their way from Arrow to a topic's batches."""

import random
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.clients import check_numba, drop_producer, freeze_once, producer_for
from pyspark_klog.spark.errors import OptionError, SchemaError
from pyspark_klog.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

    from pyspark_klog.client.producer.producer import Producer
    from pyspark_klog.records.arrow import EncodedRows

_EXPECTED: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "value": ("string or binary", (StringType, BinaryType)),
    "key": ("string or binary", (StringType, BinaryType)),
    "topic": ("string", (StringType,)),
    "partition": ("int", (IntegerType,)),
}
_HEADERS = "array<struct<key:string,value:binary>>"


def check_sink_schema(schema: StructType, options: SourceOptions) -> None:
    """Refuse rows that cannot be written.

    :raises SchemaError: for a column that is missing or of a wrong type
    :raises OptionError: if no topic is named
    """
    types = {f.name: f.dataType for f in schema.fields}
    if "value" not in types:
        raise SchemaError(f"column value is missing; expected it among {list(types)}")
    for name, (words, allowed) in _EXPECTED.items():
        if name in types and not isinstance(types[name], allowed):
            raise SchemaError(
                f"column {name} is {types[name].simpleString()}; expected {words}: cast it"
            )
    if "headers" in types and not _are_headers(types["headers"]):
        raise SchemaError(
            f"column headers is {types['headers'].simpleString()}; expected {_HEADERS}"
        )
    if options.topic is None and "topic" not in types:
        raise OptionError("no topic is named; expected option topic, or a column topic")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [f.name for f in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


class SinkRows:
    """Writes the rows of one task. At least once: a task that is repeated writes them again."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._settings = options.client
        self._sticky: dict[str, int] = {}
        self._level = _level(options)

    def write(self, batches: "Iterable[RecordBatch]") -> int:
        """Write all rows and wait until they are acknowledged; gives their number.

        After an error this worker's producer is given up: what was under way is unknown.
        """
        check_numba(self._options.allow_slow)
        count = 0
        try:
            producer: Producer | None = None
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                if producer is None:
                    producer = producer_for(self._settings)
                for topic, rows in self._by_topic(batch):
                    self._write_rows(producer, topic, rows)
                count += batch.num_rows
            if producer is not None:
                producer.flush()
                freeze_once()
        except BaseException:
            drop_producer(self._settings)
            raise
        return count

    def _by_topic(self, batch: "RecordBatch") -> "Iterator[tuple[str, RecordBatch]]":
        """The rows of each topic, in order."""
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        import pyarrow.compute as pc

        column = batch.column("topic")
        if column.null_count:
            raise SchemaError(
                "column topic is null in a row; expected a topic in every row, or option topic"
            )
        names = pc.unique(column).to_pylist()
        for name in names:
            yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))

    def _write_rows(self, producer: "Producer", topic: str, rows: "RecordBatch") -> None:
        partition_count = producer.partition_count(topic)
        sticky = self._next_sticky(topic, partition_count)
        batch_bytes = self._settings.number("batch.size")
        request_bytes = self._settings.number("max.request.size")
        encoded = self._encode(rows, partition_count, sticky, min(batch_bytes, request_bytes))
        if encoded.rejected:
            # A row that is larger than a batch may be is written if a request can take it.
            encoded = self._encode(rows, partition_count, sticky, request_bytes)
            if encoded.rejected:
                raise self._rejected(encoded, topic, rows, partition_count)
        for part in encoded.batches:
            producer.add(TopicPartition(topic, part.partition), part.payload, part.record_count)

    def _encode(
        self, rows: "RecordBatch", partition_count: int, sticky: int, max_batch_bytes: int
    ) -> "EncodedRows":
        from pyspark_klog.records.arrow import encode_from_arrow
        from pyspark_klog.records.compression import Codec

        return encode_from_arrow(
            rows.column("value"),
            key=_column(rows, "key"),
            headers=_column(rows, "headers"),
            partition=_column(rows, "partition"),
            partition_count=partition_count,
            sticky_partition=sticky,
            now_ms=time.time_ns() // 1_000_000,
            max_batch_bytes=max(max_batch_bytes, _LEAST_BATCH_BYTES),
            codec=Codec[self._settings.text("compression.type").upper()],
            level=self._level,
        )

    def _next_sticky(self, topic: str, partition_count: int) -> int:
        """Another partition for each batch of rows without keys, beginning anywhere (KIP-480)."""
        last = self._sticky.get(topic)
        chosen = random.randrange(partition_count) if last is None else (last + 1) % partition_count
        self._sticky[topic] = chosen
        return chosen

    def _rejected(
        self, encoded: "EncodedRows", topic: str, rows: "RecordBatch", partition_count: int
    ) -> SchemaError:
        from pyspark_klog.records.arrow import RowProblem

        row, problem = encoded.rejected[0]
        if problem is RowProblem.BAD_PARTITION:
            given = rows.column("partition")[row].as_py()
            return SchemaError(
                f"column partition is {given} in a row for topic {topic}; expected 0 to "
                f"{partition_count - 1}"
            )
        if problem is RowProblem.NULL_HEADER_KEY:
            return SchemaError("column headers has a header without a key; expected a key in each")
        limit = self._settings.number("max.request.size")
        return SchemaError(
            f"a row for topic {topic} is larger than {limit} bytes; raise "
            "kafka.max.request.size (and the topic's max.message.bytes)"
        )


_LEAST_BATCH_BYTES = 62
"""A batch's header and one byte: the encoder takes no less as a bound."""


def _column(rows: "RecordBatch", name: str) -> "Array | None":
    return rows.column(name) if name in rows.schema.names else None


def _level(options: SourceOptions) -> int | None:
    name = f"compression.{options.client.text('compression.type')}.level"
    if name not in ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"):
        return None
    level = options.client.number(name)
    return level if options.client.is_given(name) and level != -1 else None
