"""Gives the records of `klog produce` to a producer as batches; many records are encoded with
pyarrow (if it is installed) and klog's compiled kernels."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from klog_broker.cli.records.record_lines import BadLine, Headers, Rows
from pyspark_klog.client import chance
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.client.producer.row_encoder import RowEncoder, compression_level
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.partitioner import partition_for_key

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

_Encoded = tuple[TopicPartition, bytes | memoryview, int]
"""A partition, an encoded batch, and its number of records."""

MANY_ROWS = 2_000
"""From this number of rows on, batches are encoded with pyarrow (if it is installed) and klog's
compiled kernels, which take a second to load."""


class RecordWriter:
    """Writes rows (records) to one topic. ``partition`` is the partition of rows that name none; if
    it is None, the row's key decides (without a key, chance does), unless settings such as
    partitioner.class say otherwise."""

    def __init__(self, client: BlockingClient, topic: str, partition: int | None) -> None:
        settings = client.settings
        self.producer = Producer(client)
        self._topic = topic
        self._partition = partition
        self._settings = settings
        self._has_arrow = find_spec("pyarrow") is not None
        self._needs_arrow = settings["partitioner.class"] is not None or settings.flag(
            "partitioner.ignore.keys"
        )
        if self._needs_arrow and not self._has_arrow:
            raise SettingError(
                "partitioner.class and partitioner.ignore.keys need pyarrow, which is not "
                "installed: pip install 'pyspark-klog[arrow]'"
            )
        self._encoder = RowEncoder(settings)
        self._codec = Codec[settings.text("compression.type").upper()]
        self._level = compression_level(settings)

    def write(self, rows: Rows) -> None:
        """Give the rows to the producer, up to the first row that cannot be written.

        :raises BadLine: with that row's line; the producer has the rows before it
        :raises SettingError: if the topic does not have the partition of the option --partition
        """
        if rows.values:
            count = self.producer.partition_count(self._topic)
            named = [self._partition, *(rows.partitions or ())]
            if max(each or 0 for each in named) >= count:
                # Partitions may have been added since the topic's metadata was read.
                count = self.producer.newest_partition_count(self._topic)
            rows = self._without_bad_partition(rows, count)
            if self._needs_arrow or (self._has_arrow and len(rows.values) >= MANY_ROWS):
                rows = self._write_columns(rows, count)
            else:
                self.producer.add_all(self._plain_batches(rows, count))
        if rows.bad_line is not None:
            raise rows.bad_line

    def _without_bad_partition(self, rows: Rows, count: int) -> Rows:
        last = f"topic {self._topic} has {count}, from 0 on"
        if self._partition is not None and self._partition >= count:
            raise SettingError(f"--partition {self._partition}: {last}")
        for place, partition in enumerate(rows.partitions or ()):
            if partition is not None and partition >= count:
                text = f"there is no partition {partition}: {last}"
                return rows.up_to(place, BadLine(rows.first_line + place, text))
        return rows

    # --- many rows: batches encoded with pyarrow -------------------------------------------------
    def _write_columns(self, rows: Rows, count: int) -> Rows:
        """Write the rows with pyarrow and klog's compiled kernels. Return the rows that could be
        written; their `bad_line` has the error of the row after them."""
        while rows.values:
            encoded = self._encoder.encode(
                *(self.producer, self._topic, self._arrow_rows(rows), count),
                headers=_headers(rows),
                timestamp=_timestamps(rows),
            )
            if not encoded.rejected:
                self.producer.add_all(
                    (TopicPartition(self._topic, each.partition), each.payload, each.record_count)
                    for each in encoded.batches
                )
                break
            place, problem = min(encoded.rejected)
            line = rows.first_line + place
            text = f"it cannot be written: {problem.name.lower().replace('_', ' ')}"
            bad_line = self._too_large(line) if problem.name == "TOO_LARGE" else BadLine(line, text)
            rows = rows.up_to(place, bad_line)
        return rows

    def _arrow_rows(self, rows: Rows) -> "RecordBatch":
        import pyarrow as pa

        columns = {"value": pa.array(rows.values, pa.binary())}
        if rows.keys is not None:
            columns["key"] = pa.array(rows.keys, pa.binary())
        if rows.partitions is not None:
            chosen = [self._partition if each is None else each for each in rows.partitions]
            columns["partition"] = pa.array(chosen, pa.int32())
        elif self._partition is not None:
            columns["partition"] = pa.repeat(
                pa.scalar(self._partition, pa.int32()), len(rows.values)
            )
        return pa.RecordBatch.from_pydict(columns)

    # --- few rows: batches built record by record ------------------------------------------------
    def _plain_batches(self, rows: Rows, count: int) -> Iterator[_Encoded]:
        """Yield the rows as batches that are built record by record, without Arrow."""
        most_bytes = self._settings.number("max.request.size")
        batch_bytes = min(self._settings.number("batch.size"), most_bytes)
        now_ms = epoch_ms()
        sticky = chance.below(count)
        builders: dict[int, BatchBuilder] = {}
        for place, value in enumerate(rows.values):
            key = None if rows.keys is None else rows.keys[place]
            headers: Headers = [] if rows.headers is None else rows.headers[place]
            given_ms = None if rows.timestamps_ms is None else rows.timestamps_ms[place]
            record = (key, value, now_ms if given_ms is None else given_ms, headers)
            partition = self._partition_of(rows, place, key, sticky, count)
            builder = builders.pop(partition, None)
            if builder is not None and not builder.has_room_for(*record):
                yield self._built(partition, builder)
                builder = None
            if builder is None:
                builder = self._builder(batch_bytes)
                if not builder.has_room_for(*record):
                    # A record that is larger than batch.size begins a batch of up to
                    # max.request.size.
                    builder = self._builder(most_bytes)
            if not builder.has_room_for(*record):
                yield from (self._built(*each) for each in builders.items())
                raise self._too_large(rows.first_line + place)
            builder.append(*record)
            builders[partition] = builder
        yield from (self._built(*each) for each in builders.items())

    def _partition_of(
        self, rows: Rows, place: int, key: bytes | None, sticky: int, count: int
    ) -> int:
        given = self._partition
        if rows.partitions is not None and rows.partitions[place] is not None:
            given = rows.partitions[place]
        if given is not None:
            return given
        return sticky if key is None else partition_for_key(key, count)

    def _builder(self, most_bytes: int) -> BatchBuilder:
        return BatchBuilder(codec=self._codec, max_bytes=most_bytes, compression_level=self._level)

    def _built(self, partition: int, builder: BatchBuilder) -> _Encoded:
        batch = memoryview(bytearray(builder.build()))
        return TopicPartition(self._topic, partition), batch, builder.record_count

    def _too_large(self, line: int) -> BadLine:
        most_bytes = self._settings.number("max.request.size")
        text = f"its record is larger than {most_bytes} bytes; raise max.request.size"
        return BadLine(line, f"{text} (and the topic's max.message.bytes)")


def _headers(rows: Rows) -> "Array | None":
    if rows.headers is None:
        return None
    import pyarrow as pa

    struct = pa.struct([("key", pa.string()), ("value", pa.binary())])
    named = [[{"key": name, "value": value} for name, value in each] for each in rows.headers]
    return pa.array(named, pa.list_(struct))


def _timestamps(rows: Rows) -> "Array | None":
    if rows.timestamps_ms is None:
        return None
    import pyarrow as pa

    return pa.array(rows.timestamps_ms, pa.timestamp("ms", "UTC"))
