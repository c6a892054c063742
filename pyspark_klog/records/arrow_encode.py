"""Encodes Arrow columns as v2 batches per partition, without a Python object for each record."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_klog.records import layout as at
from pyspark_klog.records.arrow_inputs import (
    BytesColumn,
    HeaderColumn,
    bytes_column,
    header_column,
    partition_column,
    timestamps_in_ms,
)
from pyspark_klog.records.buffer_pool import BufferPool
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.records.kernels import batch_encoding
from pyspark_klog.records.kernels.partition import assign_partitions, sort_by_partition
from pyspark_klog.records.kernels.status import (
    OK,
    ROW_BAD_PARTITION,
    ROW_BAD_TIMESTAMP,
    ROW_NULL_HEADER_KEY,
    ROW_TOO_LARGE,
)

_NO_SEQUENCES = np.empty(0, np.int64)


class RowProblem(IntEnum):
    """The reason why a row was left out of all batches."""

    TOO_LARGE = ROW_TOO_LARGE
    BAD_PARTITION = ROW_BAD_PARTITION
    NULL_HEADER_KEY = ROW_NULL_HEADER_KEY
    NEGATIVE_TIMESTAMP = ROW_BAD_TIMESTAMP


class RejectedRow(NamedTuple):
    """A row that was left out of all batches: its number in the columns, and the reason."""

    row: int
    problem: RowProblem


class EncodedBatch(NamedTuple):
    """One v2 batch, ready to be sent.

    ``payload`` is writable, so ``BatchView(payload).set_producer_state(...)`` can set the producer
    id, epoch and sequence later. An uncompressed payload is a view of a larger buffer, which all
    batches of one call of `encode_from_arrow` share.
    """

    partition: int
    payload: memoryview
    record_count: int
    rows: npt.NDArray[np.int32]
    """For each record, in order, the number of its row in the columns that were encoded."""
    base_timestamp_ms: int
    max_timestamp_ms: int
    base_sequence: int


class EncodedRows(NamedTuple):
    """The result of `encode_from_arrow`: batches, sorted by partition, then by row, and the rows
    that are in no batch."""

    batches: list[EncodedBatch]
    rejected: list[RejectedRow]
    unkeyed_count: int
    """Number of rows with neither partition nor key, which got the sticky partition."""


def encode_from_arrow(
    value: pa.Array,
    *,
    key: pa.Array | None = None,
    headers: pa.Array | None = None,
    timestamp: pa.Array | None = None,
    partition: pa.Array | None = None,
    partition_count: int,
    sticky_partition: int = 0,
    now_ms: int,
    max_batch_bytes: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = at.NO_PRODUCER_ID,
    producer_epoch: int = at.NO_PRODUCER_EPOCH,
    next_sequences: npt.NDArray[np.int64] | None = None,
    is_transactional: bool = False,
    memory: BufferPool | None = None,
) -> EncodedRows:
    """Encode rows into batches for each partition of one topic.

    ``value`` and ``key`` are binary or string, ``headers`` list<struct<key: string, value:
    binary>>, ``timestamp`` a timestamp of any unit, ``partition`` integers. The partition of a row
    is the value in ``partition``, else the murmur2 partition of its key (like in Kafka's clients),
    else ``sticky_partition``, which the caller changes from call to call (KIP-480). A null or
    missing timestamp becomes ``now_ms``.

    ``max_batch_bytes`` bounds a batch before compression. Rejected are rows that alone exceed this
    bound, and rows with a partition outside the topic, a header without a key, or a timestamp
    before 1970; Kafka's producer refuses such rows too. ``next_sequences`` has the next sequence
    number of each partition, and is advanced in place by the encoded records. ``memory`` provides
    the buffer that the records are encoded into; uncompressed batches are views of this buffer.

    Raises InvalidRecords for a column of a wrong type or length, or with a number that is too large
    to encode, and ValueError for a wrong number of partitions, sticky partition or batch size.
    """
    _check_numbers(partition_count, sticky_partition, max_batch_bytes)
    rows = len(value)
    columns = {"key": key, "headers": headers, "timestamp": timestamp, "partition": partition}
    for name, column in columns.items():
        if column is not None and len(column) != rows:
            raise InvalidRecords(f"column {name} has {len(column)} rows, column value has {rows}")
    if rows == 0:
        return EncodedRows([], [], 0)
    keys, values = bytes_column("key", key), bytes_column("value", value)
    row_status = np.zeros(rows, np.uint8)
    partitions = np.empty(rows, np.int32)
    unkeyed_count = assign_partitions(
        *(rows, partition_count, sticky_partition, *keys),
        *partition_column(partition),
        *(partitions, row_status),
    )
    starts = np.zeros(partition_count + 1, np.int64)
    order = np.empty(rows, np.int32)
    sort_by_partition(rows, partition_count, partitions, starts, order)
    attributes = int(codec) | (at.TRANSACTIONAL_BIT if is_transactional else 0)
    writer = _Writer(attributes, producer_id, producer_epoch, codec, level, memory)
    batches = writer.write(
        *(partition_count, starts, order, timestamps_in_ms(timestamp, now_ms)),
        *(keys, values, header_column(headers)),
        *(_NO_SEQUENCES if next_sequences is None else next_sequences, row_status),
        max_batch_bytes,
    )
    bad_rows = np.flatnonzero(row_status != OK)
    rejected = [
        RejectedRow(row, RowProblem(problem))
        for row, problem in zip(bad_rows.tolist(), row_status[bad_rows].tolist(), strict=True)
    ]
    return EncodedRows(batches, rejected, unkeyed_count)


def _check_numbers(partition_count: int, sticky_partition: int, max_batch_bytes: int) -> None:
    if partition_count < 1 or not 0 <= sticky_partition < partition_count:
        raise ValueError(
            f"sticky partition {sticky_partition} of {partition_count} partitions: "
            f"expected a number from 0 to the number of partitions - 1"
        )
    if not at.BATCH_HEADER_BYTES < max_batch_bytes <= at.INT32_MAX:
        raise ValueError(
            f"max_batch_bytes is {max_batch_bytes}, expected more than "
            f"{at.BATCH_HEADER_BYTES} and at most {at.INT32_MAX}"
        )


class _Writer:
    """Encodes records with the compiled kernel ``encode_rows``, which also writes the headers of
    uncompressed batches. With a codec the class then compresses the records of each batch and
    writes the batch header."""

    def __init__(
        self,
        attributes: int,
        producer_id: int,
        producer_epoch: int,
        codec: Codec,
        level: int | None,
        memory: BufferPool | None,
    ) -> None:
        self._memory = memory
        self._attributes = attributes
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._codec = codec
        self._level = level

    def write(
        self,
        partition_count: int,
        starts: npt.NDArray[np.int64],
        order: npt.NDArray[np.int32],
        timestamps_ms: npt.NDArray[np.int64],
        keys: BytesColumn,
        values: BytesColumn,
        headers: HeaderColumn,
        sequences: npt.NDArray[np.int64],
        row_status: npt.NDArray[np.uint8],
        max_batch_bytes: int,
    ) -> list[EncodedBatch]:
        rows = len(order)
        settings = np.zeros(batch_encoding.SETTING_FIELDS, np.int64)
        settings[batch_encoding.SETTING_MAX_BATCH_BYTES] = max_batch_bytes
        settings[batch_encoding.SETTING_WRITE_HEADER] = self._codec is Codec.NONE
        settings[batch_encoding.SETTING_ATTRIBUTES] = self._attributes
        settings[batch_encoding.SETTING_PRODUCER_ID] = self._producer_id
        settings[batch_encoding.SETTING_PRODUCER_EPOCH] = self._producer_epoch
        settings[batch_encoding.SETTING_KEYS_VALID_FROM] = keys.valid_from
        settings[batch_encoding.SETTING_VALUES_VALID_FROM] = values.valid_from
        settings[batch_encoding.SETTING_LISTS_VALID_FROM] = headers.valid_from
        settings[batch_encoding.SETTING_HEADERS_VALID_FROM] = headers.keys.valid_from
        settings[batch_encoding.SETTING_HEADER_VALUES_VALID_FROM] = headers.values.valid_from
        capacity_bytes = keys.size_bytes + values.size_bytes
        capacity_bytes += headers.keys.size_bytes + headers.values.size_bytes
        capacity_bytes += rows * (batch_encoding.RECORD_OVERHEAD_BYTES + at.BATCH_HEADER_BYTES)
        if len(headers.ends):
            header_count = int(headers.ends[-1]) - int(headers.ends[0])
            capacity_bytes += header_count * batch_encoding.HEADER_OVERHEAD_BYTES
        out = self._allocate_output(capacity_bytes)
        table = np.empty(rows * batch_encoding.BATCH_COLUMNS, np.int64)
        found = batch_encoding.encode_rows(
            *(partition_count, starts, order, timestamps_ms, settings),
            *(keys.ends, keys.data, keys.valid),
            *(values.ends, values.data, values.valid),
            *(headers.ends, headers.valid),
            *(headers.keys.ends, headers.keys.data, headers.keys.valid),
            *(headers.values.ends, headers.values.data, headers.values.valid),
            *(sequences, row_status, table, out),
        )
        encoded = table[: found * batch_encoding.BATCH_COLUMNS].reshape(
            found, batch_encoding.BATCH_COLUMNS
        )
        view = out.data
        return [self._finish(view, fields, order) for fields in encoded.tolist()]

    def _allocate_output(self, count: int) -> npt.NDArray[np.uint8]:
        # A BufferPool avoids the cost of new memory. Without a pool Arrow allocates the buffer: its
        # allocator sometimes reuses freed memory, but not reliably.
        if self._memory is None:
            return np.frombuffer(pa.allocate_buffer(count), np.uint8)
        return np.frombuffer(self._memory.get_buffer(count), np.uint8)

    def _finish(
        self, view: memoryview, fields: list[int], order: npt.NDArray[np.int32]
    ) -> EncodedBatch:
        partition, start, end, first, count, base_timestamp_ms, max_timestamp_ms, sequence = fields
        payload = view[start:end]
        if self._codec is not Codec.NONE:
            section = compress(self._codec, payload[at.BATCH_HEADER_BYTES :], level=self._level)
            batch = bytearray(at.BATCH_HEADER_BYTES + len(section))
            batch[at.BATCH_HEADER_BYTES :] = section
            at.BATCH_HEADER.pack_into(
                *(batch, 0, 0, len(batch) - at.LOG_OVERHEAD_BYTES, at.NO_LEADER_EPOCH),
                *(at.MAGIC_V2, 0, self._attributes, count - 1),
                *(base_timestamp_ms, max_timestamp_ms),
                *(self._producer_id, self._producer_epoch, sequence, count),
            )
            payload = memoryview(batch)
            at.UINT32.pack_into(batch, at.CRC_AT, crc32c(payload[at.CRC_START_AT :]))
        return EncodedBatch(
            *(partition, payload, count, order[first : first + count]),
            *(base_timestamp_ms, max_timestamp_ms, sequence),
        )
