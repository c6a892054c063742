"""Rows on their way from Arrow to a topic's batches, and into a producer."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark_klog.client import chance
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.client.partitioning import Unplaced, partitioner_for
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import SchemaError
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.sink import columns
from pyspark_klog.spark.sink.dead_letters import DeadLetters, Reason, Refusal, TaskIds
from pyspark_klog.spark.workers.clients import check_numba, drop_producer, freeze_once, producer_for

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

    from pyspark_klog.client.producer.batches import Identity
    from pyspark_klog.client.producer.producer import Producer
    from pyspark_klog.records.arrow import EncodedRows, RowProblem


class SinkRows:
    """Writes the rows of one task."""

    def __init__(self, options: Options, ids: TaskIds) -> None:
        self._options = options
        self._settings = options.client
        self._letters = None if options.dead_letter_topic is None else DeadLetters(options, ids)
        self._unwritable: dict[str, Refusal] = {}
        partitioner = options.client["partitioner.class"]
        self._partitioner = partitioner_for(
            None if partitioner is None else str(partitioner),
            ignore_keys=options.client.flag("partitioner.ignore.keys"),
        )
        self._sticky: dict[str, int] = {}
        self._level = _level(options)

    @property
    def dead_letters(self) -> tuple[tuple[str, int], ...]:
        """How many rows went to the topic of dead letters, by reason."""
        return () if self._letters is None else tuple(sorted(self._letters.counts.items()))

    @property
    def letter_count(self) -> int:
        """How many rows went there in all."""
        return sum(count for _, count in self.dead_letters)

    def write(self, batches: "Iterable[RecordBatch]") -> int:
        """Write all rows through this worker's producer and wait until they are acknowledged;
        returns their number, without those that became dead letters.

        At least once: a task that is repeated writes them again. After an error the producer is
        given up: which rows are written is unknown.
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
                    self.begin(producer)
                self.add(producer, batch)
                count += batch.num_rows
            if producer is not None:
                self.end(producer)
                freeze_once()
        except BaseException:
            drop_producer(self._settings)
            raise
        return count - self.letter_count

    # --- steps, for those who have a producer ----------------------------------------------------
    def begin(self, producer: "Producer") -> None:
        """From now on rows are added to this producer."""
        producer.set_aside(None if self._letters is None else self._letters.receive)

    def add(self, producer: "Producer", batch: "RecordBatch") -> None:
        """Write rows; they need not be acknowledged yet."""
        for topic, rows in self._by_topic(producer, batch):
            self._write_rows(producer, topic, rows)
        if self._letters is not None:
            self._letters.write_waiting(producer, epoch_ms())

    def end(self, producer: "Producer") -> None:
        """The task's last step: all rows that were added are on their topics when it returns."""
        producer.flush()
        while self._letters is not None and self._letters.write_waiting(producer, epoch_ms()):
            producer.flush()

    def _by_topic(
        self, producer: "Producer", batch: "RecordBatch"
    ) -> "Iterator[tuple[str, RecordBatch]]":
        """The rows of each topic, in order."""
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
        encoded = self._encode(producer, topic, rows, partition_count)
        if columns.has_unknown_partition(encoded, rows, partition_count):
            # Partitions may have been added since the topic was last looked at.
            newer = producer.newest_partition_count(topic)
            if newer > partition_count:
                partition_count = newer
                encoded = self._encode(producer, topic, rows, partition_count)
        if encoded.rejected:
            self._refuse_rejected(producer, topic, rows, encoded, partition_count)
        producer.add_all(
            (TopicPartition(topic, part.partition), part.payload, part.record_count)
            for part in encoded.batches
        )

    def _partition_count(self, producer: "Producer", topic: str, rows: "RecordBatch") -> int:
        """How many partitions the topic has; 0 if the rows cannot go there and became letters."""
        if topic in self._unwritable:
            self._refuse(producer, rows, self._unwritable[topic])
            return 0
        try:
            return producer.partition_count(topic)
        except (TopicMissing, BrokerError) as error:
            reason = _topics_fault(error)
            if reason is None or self._letters is None or self._options.topic is not None:
                # An option's topic is the job's fault and no row's.
                raise
            self._unwritable[topic] = Refusal(reason, str(error), topic)
        self._refuse(producer, rows, self._unwritable[topic])
        return 0

    def _encode(
        self, producer: "Producer", topic: str, rows: "RecordBatch", partition_count: int
    ) -> "EncodedRows":
        """The rows as batches of the largest size that is allowed. A row that is larger than that
        gets a batch for itself, up to the largest request, unless its topic has refused batches
        that were smaller."""
        from pyspark_klog.records.arrow import RowProblem

        sticky = self._next_sticky(topic, partition_count)
        partition = self._partitions(topic, rows, partition_count, sticky)
        share = producer.taken_share(topic)
        request_bytes = self._settings.number("max.request.size")
        batch_bytes = min(self._settings.number("batch.size"), request_bytes)
        bounds = (int(batch_bytes * share), int(request_bytes * share), request_bytes)
        for bound in dict.fromkeys(bounds):
            numbers = producer.numbers_ahead(topic, partition_count)
            encoded = self._encode_once(
                producer, rows, partition, partition_count, sticky, bound, *numbers
            )
            if all(problem is not RowProblem.TOO_LARGE for _, problem in encoded.rejected):
                break
        return encoded

    def _encode_once(
        self,
        producer: "Producer",
        rows: "RecordBatch",
        partition: "Array | None",
        partition_count: int,
        sticky: int,
        max_batch_bytes: int,
        identity: "Identity",
        sequences: list[int],
    ) -> "EncodedRows":
        import numpy as np

        from pyspark_klog.records.arrow import encode_from_arrow
        from pyspark_klog.records.compression import Codec

        return encode_from_arrow(
            rows.column("value"),
            key=columns.column(rows, "key"),
            headers=columns.headers(rows),
            timestamp=columns.timestamps(rows),
            partition=partition,
            partition_count=partition_count,
            sticky_partition=sticky,
            now_ms=epoch_ms(),
            max_batch_bytes=max(max_batch_bytes, _LEAST_BATCH_BYTES),
            codec=Codec[self._settings.text("compression.type").upper()],
            level=self._level,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            next_sequences=np.array(sequences, np.int64),
            is_transactional=producer.is_transactional,
            memory=producer.memory,
        )

    def _partitions(
        self, topic: str, rows: "RecordBatch", partition_count: int, sticky: int
    ) -> "Array | None":
        """The partition of each row, null where the key decides; None if keys decide for all."""
        given = columns.column(rows, "partition")
        if self._partitioner is None or (given is not None and not given.null_count):
            return given
        if given is None:
            return self._partitioner(Unplaced(topic, rows, partition_count, sticky))
        import pyarrow.compute as pc

        missing = pc.is_null(given)
        rest = Unplaced(topic, rows.filter(missing), partition_count, sticky)
        chosen = self._partitioner(rest)
        return pc.replace_with_mask(given, missing, chosen)

    def _next_sticky(self, topic: str, partition_count: int) -> int:
        """Another partition for each batch of rows without keys, beginning anywhere (KIP-480)."""
        last = self._sticky.get(topic)
        chosen = chance.below(partition_count) if last is None else (last + 1) % partition_count
        self._sticky[topic] = chosen
        return chosen

    # --- rows that cannot be written -------------------------------------------------------------
    def _refuse(self, producer: "Producer", rows: "RecordBatch", refusal: Refusal) -> None:
        """Make dead letters of the rows, or fail.

        :raises SchemaError: without the option deadLetterTopic
        """
        if self._letters is None:
            raise SchemaError(refusal.error)
        self._letters.write(producer, rows, refusal, epoch_ms())

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
                self._settings.number("max.request.size"),
            )
            self._refuse(producer, rows.take(numbers), Refusal(reason, error, topic))


_LEAST_BATCH_BYTES = 62
"""A batch's header and one byte: the encoder takes no less as a bound."""


def _topics_fault(error: TopicMissing | BrokerError) -> Reason | None:
    if isinstance(error, TopicMissing):
        return Reason.UNKNOWN_TOPIC
    is_invalid = error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    return Reason.INVALID_TOPIC if is_invalid else None


def _level(options: Options) -> int | None:
    name = f"compression.{options.client.text('compression.type')}.level"
    if name not in ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"):
        return None
    level = options.client.number(name)
    return level if options.client.is_given(name) and level != -1 else None
