"""Writes rows from Arrow to topics, through a producer."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.client.producer.row_encoder import RowEncoder
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import SchemaError
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.sink import columns
from pyspark_klog.spark.sink.dead_letters import DeadLetters, Reason, Refusal, TaskIds
from pyspark_klog.spark.workers.clients import check_numba, drop_producer, freeze_once, producer_for

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

    from pyspark_klog.client.producer.producer import Producer
    from pyspark_klog.records.arrow import EncodedRows, RowProblem


class SinkRows:
    """Writes the rows of one task to their topics."""

    def __init__(self, options: Options, ids: TaskIds) -> None:
        self._options = options
        self._settings = options.client
        self._letters = None if options.dead_letter_topic is None else DeadLetters(options, ids)
        self._timestamp_column = options.timestamp_column
        self._oldest_ms: dict[str, int] = {}
        self._unwritable: dict[str, Refusal] = {}
        self._encoder = RowEncoder(options.client)

    @property
    def dead_letters(self) -> tuple[tuple[str, int], ...]:
        """The number of rows that went to the topic of dead letters, by reason."""
        return () if self._letters is None else tuple(sorted(self._letters.counts.items()))

    @property
    def letter_count(self) -> int:
        """The number of rows that became dead letters."""
        return sum(count for _, count in self.dead_letters)

    @property
    def oldest_ms(self) -> tuple[tuple[str, int], ...]:
        """The smallest timestamp that option timestampColumn gave a record, by topic."""
        return tuple(sorted(self._oldest_ms.items()))

    def write(self, batches: "Iterable[RecordBatch]") -> int:
        """Write all rows through this worker's producer and wait until they are acknowledged (with
        acks=0: sent); return their number, without those that became dead letters.

        Rows are written at least once (with acks=0 some may be lost): a task that is repeated
        writes them again. After an error the producer is dropped, because it is unknown which rows
        are written.
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
                    self.prepare_producer(producer)
                self.add(producer, batch)
                count += batch.num_rows
            if producer is not None:
                self.flush_rows(producer)
                freeze_once()
        except BaseException:
            drop_producer(self._settings)
            raise
        return count - self.letter_count

    # --- the steps of writing a task's rows -------------------------------------------------------
    def prepare_producer(self, producer: "Producer") -> None:
        """Prepare a producer for rows: rows that a topic refuses become dead letters, or fail the
        task if there is no option deadLetterTopic."""
        producer.on_refused_record(None if self._letters is None else self._letters.receive)

    def add(self, producer: "Producer", batch: "RecordBatch") -> None:
        """Write rows through the producer, without waiting for their acknowledgement unless the
        producer's buffer.memory is full."""
        for topic, rows in self._by_topic(producer, batch):
            self._write_rows(producer, topic, rows)
        if self._letters is not None:
            self._letters.write_waiting(producer, epoch_ms())

    def flush_rows(self, producer: "Producer") -> None:
        """Finish the task: when this method returns, brokers have acknowledged all added rows and
        their dead letters; with acks=0 the rows are sent."""
        producer.flush()
        while self._letters is not None and self._letters.write_waiting(producer, epoch_ms()):
            producer.flush()

    def _by_topic(
        self, producer: "Producer", batch: "RecordBatch"
    ) -> "Iterator[tuple[str, RecordBatch]]":
        """Each topic with its rows, which keep the order of ``batch``. A row without a topic is a
        refused row: it ends the query, or becomes a dead letter."""
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        import pyarrow.compute as pc

        column = batch.column("topic")
        if column.null_count:
            error = "column topic is null in a row; expected a topic in every row, or option topic"
            rows = batch.filter(pc.is_null(column))
            self._refuse(producer, rows, Refusal(Reason.NULL_TOPIC, error))
            batch = batch.filter(pc.is_valid(column))
            column = batch.column("topic")
        names = pc.unique(column).to_pylist()
        for name in names:
            yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))

    def _write_rows(self, producer: "Producer", topic: str, rows: "RecordBatch") -> None:
        partition_count = self._partition_count(producer, topic, rows)
        if partition_count == 0:
            return
        times = columns.timestamps(rows, self._timestamp_column)
        encoded = self._encode(producer, topic, rows, times, partition_count)
        if columns.has_unknown_partition(encoded, rows, partition_count):
            # Partitions may have been added since the topic's metadata was read.
            newer = producer.newest_partition_count(topic)
            if newer > partition_count:
                partition_count = newer
                encoded = self._encode(producer, topic, rows, times, partition_count)
        if encoded.rejected:
            self._refuse_rejected(producer, topic, rows, encoded, partition_count)
        oldest_ms = columns.oldest_ms(times, [row for row, _ in encoded.rejected])
        if oldest_ms is not None:
            self._oldest_ms[topic] = min(self._oldest_ms.get(topic, oldest_ms), oldest_ms)
        producer.add_all(
            (TopicPartition(topic, part.partition), part.payload, part.record_count)
            for part in encoded.batches
        )

    def _partition_count(self, producer: "Producer", topic: str, rows: "RecordBatch") -> int:
        """The topic's number of partitions; 0 if the topic cannot be written to: then ``rows`` have
        become dead letters."""
        if topic in self._unwritable:
            self._refuse(producer, rows, self._unwritable[topic])
            return 0
        try:
            return producer.partition_count(topic)
        except (TopicMissing, BrokerError) as error:
            reason = _topics_fault(error)
            if reason is None or self._letters is None or self._options.topic is not None:
                # Even with dead letters fail if option topic names the topic, because then the
                # option is wrong, not a row, and if the topic is neither missing nor invalid.
                raise
            self._unwritable[topic] = Refusal(reason, str(error), topic)
        self._refuse(producer, rows, self._unwritable[topic])
        return 0

    def _encode(
        self,
        producer: "Producer",
        topic: str,
        rows: "RecordBatch",
        times: "Array | None",
        partition_count: int,
    ) -> "EncodedRows":
        return self._encoder.encode(
            *(producer, topic, rows, partition_count),
            headers=columns.headers(rows),
            timestamp=times,
        )

    # --- rows that cannot be written -------------------------------------------------------------
    def _refuse(self, producer: "Producer", rows: "RecordBatch", refusal: Refusal) -> None:
        """Make dead letters of the rows, or fail.

        :raises SchemaError: without the option deadLetterTopic
        """
        if self._letters is None:
            raise SchemaError(refusal.error)
        times = columns.timestamps(rows, self._timestamp_column)
        self._letters.write(producer, rows, times, refusal, epoch_ms())

    def _refuse_rejected(
        self,
        producer: "Producer",
        topic: str,
        rows: "RecordBatch",
        encoded: "EncodedRows",
        partition_count: int,
    ) -> None:
        by_problem: dict[RowProblem, list[int]] = {}
        for row, problem in encoded.rejected:
            by_problem.setdefault(problem, []).append(row)
        for problem, numbers in by_problem.items():
            reason, error = columns.sentence(
                *(problem, topic, rows, numbers[0], partition_count),
                *(self._settings.number("max.request.size"), self._timestamp_column),
            )
            self._refuse(producer, rows.take(numbers), Refusal(reason, error, topic))


def _topics_fault(error: TopicMissing | BrokerError) -> Reason | None:
    if isinstance(error, TopicMissing):
        return Reason.UNKNOWN_TOPIC
    is_invalid = error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    return Reason.INVALID_TOPIC if is_invalid else None
