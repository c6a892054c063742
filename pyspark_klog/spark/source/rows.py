"""The source's rows: their schema, and the reader of one range of offsets in a task."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_klog.ids import NO_TOPIC_ID, UUID
from pyspark_klog.spark.errors import DataLost, SchemaError
from pyspark_klog.spark.options.bounds import AtTimestamp, AtTimestamps, numbers_of, option_of
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.losses import GivenOffsets, Loss, loss_in_task
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.workers.clients import check_numba, client_for, freeze_once

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
    from pyspark_klog.records.arrow import ArrowDecoder

_log = logging.getLogger(__name__)

ARROW_BATCH_BYTES = 4 << 20
"""The most bytes of all values, and of all keys, in an Arrow batch of more than one row. Fewer
batches are faster, since Spark and pyarrow take about 0.3 ms of Python's time for each. In the JVM
the same rows take the same time in batches of 0.5 to 4 MB."""
_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


def source_schema(*, include_headers: bool, columns: Sequence[str] | None = None) -> StructType:
    """The columns of every row; only ``columns``, in their order, if they are given."""
    if columns is not None:
        by_name = {field.name: field for field in (*_COLUMNS, HEADERS)}
        return StructType([by_name[name] for name in columns])
    return StructType([*_COLUMNS, HEADERS] if include_headers else list(_COLUMNS))


def check_user_schema(given: StructType, expected: StructType) -> None:
    """Refuse a schema from the user, because the source's schema is fixed.

    :raises SchemaError: naming both schemas
    """
    if given != expected:
        raise SchemaError(
            f"the schema {given.simpleString()} was given; klog's is fixed: leave out schema(...) "
            f"and use {expected.simpleString()}"
        )


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of offsets in tasks. If brokers give the topic another id than ``topic_id``, the
    topic was created again, and is not read; an all-zero ``topic_id`` accepts any id."""

    options: Options
    topic_id: UUID = NO_TOPIC_ID

    def read(self, offsets: OffsetRange) -> "Iterator[RecordBatch]":
        """The records of one range as Arrow batches with exactly the columns that the source has
        declared to Spark (`source_schema`)."""
        keys = self.options.keys
        batches = self._batches(offsets)
        ending = self.options.ending
        has_times = "timestamp" in self._schema().fieldNames()
        if isinstance(ending, AtTimestamp | AtTimestamps) and has_times:
            from pyspark_klog.spark.source.time_order import warn_of_decrease

            batches = warn_of_decrease(batches, offsets, option_of(ending, "ending"))
        return batches if keys is None else _with_keys(batches, keys, self._schema().fieldNames())

    def _batches(self, offsets: OffsetRange) -> "Iterator[RecordBatch]":
        options = self.options
        decoder = self.decoder(offsets)
        from pyspark_klog.client.consumer.fetcher import RangeFetcher

        def on_lost(lost: "OffsetsLost") -> None:
            self._on_lost(lost)
            # Skip the deleted records that the first batch of the log may still have.
            decoder.skip_to(min(lost.available[0], offsets.end))

        fetcher = RangeFetcher(
            client_for(options.client),
            offsets.topic_partition,
            offsets.start,
            offsets.end,
            progress_timeout_ms=options.poll_timeout_ms,
            progress_bound="kafkaConsumer.pollTimeoutMs",
            on_lost=on_lost,
            topic_id=self.topic_id,
        )
        for chunk in fetcher:
            yield from decoder.decode(chunk.data, chunk.aborted)
        rest = decoder.flush()
        if rest is not None:
            yield rest
        # Exclude objects from garbage collection only at the end of the task: Spark loads 30,000
        # more objects when it takes the first Arrow batch.
        freeze_once()

    def decoder(self, offsets: OffsetRange) -> "ArrowDecoder":
        """The decoder that turns the batches of a range into rows of the source's schema; with
        option keys the rows have a column ``key`` in any case."""
        options = self.options
        check_numba(options.allow_slow)
        from pyspark_klog.records.arrow import ArrowDecoder

        columns = self._schema().fieldNames()
        if options.keys is not None and "key" not in columns:
            columns.append("key")
        return ArrowDecoder(
            topic=offsets.topic,
            partition=offsets.partition,
            columns=columns,
            start_offset=offsets.start,
            end_offset=offsets.end,
            check_crc=options.client.flag("check.crcs"),
            target_bytes=ARROW_BATCH_BYTES,
        )

    def _schema(self) -> StructType:
        options = self.options
        return source_schema(include_headers=options.include_headers, columns=options.columns)

    def _on_lost(self, lost: "OffsetsLost") -> None:
        options = self.options
        given = None
        if options.ending is not None:
            given = GivenOffsets(numbers_of(options.starting), numbers_of(options.ending))
        if lost.stable_end is None:
            loss = loss_in_task(lost, given)
        else:
            from pyspark_klog.spark.planning.open_transactions import HOW_TO_WAIT, open_transactions

            first_offsets = {lost.partition: lost.stable_end}
            found = open_transactions(client_for(options.client), first_offsets)
            loss = Loss(f"{lost}: {found[lost.partition]}", HOW_TO_WAIT)
        report_loss(loss, fails=options.fail_on_data_loss)


def report_loss(loss: Loss, *, fails: bool) -> None:
    """Report lost records: fail, or log a warning.

    :raises DataLost: if ``fails``, with text and advice
    """
    if fails:
        raise DataLost(str(loss)) from None
    _log.warning("some data may have been lost: %s", loss.text)


def _with_keys(
    batches: "Iterator[RecordBatch]", keys: frozenset[bytes], columns: list[str]
) -> "Iterator[RecordBatch]":
    """The rows whose key is one of ``keys``, with only the given ``columns``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(keys), pa.binary())
    for batch in batches:
        found = batch.filter(pc.is_in(batch.column("key"), value_set=wanted))
        if found.num_rows:
            yield found.select(columns)
