"""Writes dead letters: rows that their topic cannot take go to another topic, with the reason in
headers.

A dead letter has its row's key, value and headers, and after these the headers of `LetterHeader`,
with a null for an unknown value. Dead letters are written before their task succeeds; if they
cannot be written, the task fails.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog.client.errors import ClientError, DeliveryFailed
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

    from pyspark_klog.client.producer.batches import RefusedRecord
    from pyspark_klog.client.producer.producer import Producer
    from pyspark_klog.records.arrow import EncodedRows
    from pyspark_klog.records.record import Record
    from pyspark_klog.spark.options.options import Options


class LetterHeader(Enum):
    """The headers that a dead letter adds to those of its row: text in UTF-8."""

    REASON = "klog.deadLetter.reason"
    """The `Reason` for which the row was refused, by name, for example TOO_LARGE."""
    ERROR = "klog.deadLetter.error"
    """The sentence with which the task would fail without dead letters."""
    TOPIC = "klog.deadLetter.topic"
    """The topic for which the row was meant; null if the row named none."""
    PARTITION = "klog.deadLetter.partition"
    """The partition that refused the row, or else the one that the row named; null if there is
    neither."""
    TIMESTAMP = "klog.deadLetter.timestamp"
    """The record's timestamp in ms since 1970; null if the row has no timestamp and was refused
    before it was sent to a broker."""
    QUERY = "klog.deadLetter.query"
    """The id of the streaming query, also in foreachBatch; null in any other batch."""
    BATCH = "klog.deadLetter.batch"
    """The number of the micro-batch, also in foreachBatch; null in any other batch."""
    TASK = "klog.deadLetter.task"
    """Spark's partition number and the attempt's number, for example 3.0."""


class Reason(Enum):
    """Why a row was not written to its topic."""

    NULL_TOPIC = "NULL_TOPIC"
    INVALID_TOPIC = "INVALID_TOPIC"
    UNKNOWN_TOPIC = "UNKNOWN_TOPIC"
    BAD_PARTITION = "BAD_PARTITION"
    BAD_HEADERS = "BAD_HEADERS"
    BAD_TIMESTAMP = "BAD_TIMESTAMP"
    TOO_LARGE = "TOO_LARGE"
    """The record is larger than kafka.max.request.size, or than the topic's max.message.bytes."""
    REFUSED = "REFUSED"
    """The topic refuses the record, for example a compacted topic a record without a key."""


_BY_CODE = {
    ErrorCode.MESSAGE_TOO_LARGE: Reason.TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP: Reason.BAD_TIMESTAMP,
}


class DeadLettersFailed(KlogError):
    """Rows and their dead letters could not be written, or there were too many dead letters."""


class TaskIds(NamedTuple):
    """Identifies the task that writes. In a batch, except in foreachBatch, ``query_id`` and
    ``batch_id`` are None."""

    query_id: str | None = None
    batch_id: int | None = None
    partition_id: int = 0
    attempt_number: int = 0
    task_attempt_id: int = 0


@dataclass(frozen=True)
class Refusal:
    """Why some rows are refused, for the headers of their dead letters."""

    reason: Reason
    error: str
    topic: str | None = None
    partition: int | None = None
    """The partition that refused the rows; None stands for the partition in the rows' column."""


class DeadLetters:
    """Writes the dead letters of one task through its producer."""

    def __init__(self, options: "Options", ids: TaskIds) -> None:
        assert options.dead_letter_topic is not None
        self._topic = options.dead_letter_topic
        self._max = options.dead_letter_max
        self._batch_bytes = options.client.number("batch.size")
        self._ids = ids
        self._waiting: list[RefusedRecord] = []
        self._sticky = 0
        self.counts: Counter[str] = Counter()
        """The number of dead letters by reason."""

    def receive(self, record: "RefusedRecord") -> None:
        """Called by the producer for each record that its topic refuses (`on_refused_record`): keep
        the record until `write_waiting` writes it as a dead letter.

        :raises DeadLettersFailed: if the topic is that of the dead letters (deadLetterTopic)
        """
        if record.partition.topic == self._topic:
            raise DeadLettersFailed(
                f"{self._place} refused a dead letter, or a row that names this topic: "
                f"{record.text}"
            )
        self._waiting.append(record)

    def write_waiting(self, producer: "Producer", now_ms: int) -> bool:
        """Write dead letters for the records that were received since the last call; return whether
        there were any records."""
        from pyspark_klog.records.batch import BatchView

        waiting, self._waiting = self._waiting, []
        for record in waiting:
            found = BatchView(record.data).records()
            refusal = Refusal(
                _BY_CODE.get(record.code, Reason.REFUSED),
                record.text,
                record.partition.topic,
                record.partition.partition,
            )
            rows = _as_rows(list(found))
            self.write(producer, rows, rows.column("timestamp"), refusal, now_ms)
        return bool(waiting)

    def write(
        self,
        producer: "Producer",
        rows: "RecordBatch",
        times: "Array | None",
        refusal: Refusal,
        now_ms: int,
    ) -> None:
        """Write dead letters for ``rows`` (the sink's columns), which were all refused for the
        reason in ``refusal``. ``times`` are the timestamps of the rows' records, None if records
        get the time of writing.

        :raises DeadLettersFailed: if the dead letters cannot be written, or the task has more of
            them than option deadLetterMax allows
        """
        if not rows.num_rows:
            return
        self.counts[refusal.reason.name] += rows.num_rows
        check_count(self.counts.total(), self._max, refusal.error)
        try:
            self._write(producer, rows, times, refusal, now_ms)
        except (ClientError, BrokerError) as error:
            raise DeadLettersFailed(
                f"a row was refused ({refusal.error}), and its dead letter could not be written to "
                f"{self._place}: {error}"
            ) from None

    @property
    def _place(self) -> str:
        return f"topic {self._topic} (deadLetterTopic)"

    def _write(
        self,
        producer: "Producer",
        rows: "RecordBatch",
        times: "Array | None",
        refusal: Refusal,
        now_ms: int,
    ) -> None:
        from pyspark_klog.records.arrow import encode_from_arrow
        from pyspark_klog.records.layout import INT32_MAX

        partition_count = producer.partition_count(self._topic)
        self._sticky = (self._sticky + 1) % partition_count
        extra = self._extra(rows, times, refusal)
        headers = with_headers(_column(rows, "headers"), rows.num_rows, extra)

        def encode(first: int, count: int, max_batch_bytes: int) -> "EncodedRows":
            some = rows.slice(first, count)
            return encode_from_arrow(
                some.column("value"),
                key=_column(some, "key"),
                headers=headers.slice(first, count),
                partition_count=partition_count,
                sticky_partition=self._sticky,
                now_ms=now_ms,
                max_batch_bytes=max_batch_bytes,
            )

        encoded = encode(0, rows.num_rows, max(self._batch_bytes, 1_024))
        batches = encoded.batches
        for row, _ in encoded.rejected:
            # A dead letter that is larger than the batch size may still fit the dead letters'
            # topic: send it in a batch without other records.
            alone = encode(row, 1, INT32_MAX)
            if alone.rejected:
                raise DeliveryFailed(f"the dead letter is larger than {INT32_MAX} bytes")
            batches += alone.batches
        producer.add_all(
            (TopicPartition(self._topic, part.partition), part.payload, part.record_count)
            for part in batches
        )

    def _extra(
        self, rows: "RecordBatch", times: "Array | None", refusal: Refusal
    ) -> "dict[str, Array]":
        ids = self._ids
        asked = _column(rows, "partition") if refusal.partition is None else refusal.partition
        named = {
            LetterHeader.REASON: refusal.reason.name,
            LetterHeader.ERROR: refusal.error,
            LetterHeader.TOPIC: refusal.topic,
            LetterHeader.PARTITION: asked,
            LetterHeader.TIMESTAMP: _milliseconds(times),
            LetterHeader.QUERY: ids.query_id,
            LetterHeader.BATCH: ids.batch_id,
            LetterHeader.TASK: f"{ids.partition_id}.{ids.attempt_number}",
        }
        return {name.value: _as_text(value, rows.num_rows) for name, value in named.items()}


def check_count(count: int, most: int | None, why: str) -> None:
    """Check ``count``, the number of dead letters, against ``most``, which is deadLetterMax.

    :raises DeadLettersFailed: if ``count`` is more than ``most``; the text ends with ``why``,
        which says why rows were refused
    """
    if most is not None and count > most:
        raise DeadLettersFailed(
            f"{count} rows could not be written, and deadLetterMax is {most}: {why}"
        )


def with_headers(headers: "Array | None", rows: int, extra: "dict[str, Array]") -> "Array":
    """A column of headers: each row's own headers, then one header of each ``extra`` column.

    A header without a key gets an empty key.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, values = pa.nulls(0, pa.string()), pa.nulls(0, pa.binary())
    lengths = np.zeros(rows, np.int64)
    if headers is not None:
        lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        keys, values = headers.flatten().flatten()
        keys = pc.fill_null(keys.cast(pa.string()), "")
    own, more = len(keys), len(extra)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    # Where row i's extra headers go: after the own headers of rows 0 to i, and after the extra
    # headers of the i rows before it.
    places = (ends[1:] + more * np.arange(rows))[:, None] + np.arange(more)
    order = np.empty(own + more * rows, np.int64)
    is_own = np.ones(len(order), np.bool_)
    is_own[places] = False
    order[is_own] = np.arange(own)
    order[places] = own + np.arange(more) * rows + np.arange(rows)[:, None]
    names = [pa.repeat(pa.scalar(name, pa.string()), rows) for name in extra]
    structs = pa.StructArray.from_arrays(
        [
            pa.concat_arrays([keys, *names]).take(pa.array(order)),
            pa.concat_arrays([values, *extra.values()]).take(pa.array(order)),
        ],
        names=["key", "value"],
    )
    starts = (ends + more * np.arange(rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(starts), structs)


def _as_text(value: "str | int | Array | None", rows: int) -> "Array":
    """A column's values as text in UTF-8, or a column that repeats one value's text ``rows`` times.
    The result is a binary column."""
    import pyarrow as pa

    if isinstance(value, pa.Array):
        return value.cast(pa.string()).cast(pa.binary())
    data = None if value is None else str(value).encode()
    return pa.repeat(pa.scalar(data, pa.binary()), rows)


def _milliseconds(column: "Array | None") -> "Array | None":
    import pyarrow as pa

    if column is None:
        return None
    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())


def _as_rows(records: "list[Record]") -> "RecordBatch":
    """The records of a refused batch as rows with the columns key, value, headers and timestamp."""
    import pyarrow as pa

    from pyspark_klog.records.arrow_columns import COLUMN_TYPES

    columns = {
        "key": [r.key for r in records],
        "value": [r.value for r in records],
        "headers": [[h._asdict() for h in r.headers] for r in records],
        "timestamp": [r.timestamp_ms * 1_000 for r in records],
    }
    arrays = {name: pa.array(data, COLUMN_TYPES[name]) for name, data in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def _column(rows: "RecordBatch", name: str) -> "Array | None":
    return rows.column(name) if name in rows.schema.names else None
