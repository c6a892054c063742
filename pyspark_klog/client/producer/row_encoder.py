"""Encodes rows of one topic, given as Arrow columns, as batches. Chooses the rows' partitions, and
the size limit and the codec of the batches."""

from typing import TYPE_CHECKING

from pyspark_klog.client import chance
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.settings.partitioners import RowsWithoutPartition, partitioner_for

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

    from pyspark_klog.client.producer.batches import Identity
    from pyspark_klog.client.producer.producer import Producer
    from pyspark_klog.records.arrow import EncodedRows

_LEAST_BATCH_BYTES = 62
"""A batch's header and one byte: the smallest size limit that the encoder accepts."""


class RowEncoder:
    """Encodes Arrow rows as v2 batches, with the partitioner, size limits and codec of the client's
    settings. The first call of `encode` imports pyarrow and klog's kernels (functions that numba
    compiles)."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        partitioner = settings["partitioner.class"]
        self._partitioner = partitioner_for(
            None if partitioner is None else str(partitioner),
            ignore_keys=settings.flag("partitioner.ignore.keys"),
        )
        self._sticky: dict[str, int] = {}
        self._level = compression_level(settings)

    def encode(
        self,
        producer: "Producer",
        topic: str,
        rows: "RecordBatch",
        partition_count: int,
        *,
        headers: "Array | None",
        timestamp: "Array | None",
    ) -> "EncodedRows":
        """Encode the rows as batches of at most batch.size bytes before compression (never more
        than max.request.size). Once the topic has refused a batch of several records as too large,
        this limit is multiplied by `Producer.size_factor`, which is then at most 0.5.

        If a single row is larger than the limit, all rows are encoded again with the limit
        max.request.size, multiplied by the same factor; and if a row is larger than that, too,
        with the whole max.request.size. A row that is larger than that is rejected.

        ``rows`` has a column value, and may have columns key and partition.
        """
        from pyspark_klog.records.arrow import RowProblem

        sticky = self._next_sticky(topic, partition_count)
        partition = self._partitions(topic, rows, partition_count, sticky)
        share = producer.size_factor(topic)
        request_bytes = self._settings.number("max.request.size")
        batch_bytes = min(self._settings.number("batch.size"), request_bytes)
        bounds = (int(batch_bytes * share), int(request_bytes * share), request_bytes)
        for bound in dict.fromkeys(bounds):
            encoded = self._encode_once(
                *(producer, rows, headers, timestamp, partition, partition_count, sticky, bound),
                *producer.expected_sequences(topic, partition_count),
            )
            if all(problem is not RowProblem.TOO_LARGE for _, problem in encoded.rejected):
                break
        return encoded

    def _encode_once(
        self,
        producer: "Producer",
        rows: "RecordBatch",
        headers: "Array | None",
        timestamp: "Array | None",
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
            key=_column(rows, "key"),
            headers=headers,
            timestamp=timestamp,
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
        """The partition of each row, null for a row that the default partitioner places: by its
        key, or without a key in the partition ``sticky``. The method returns None only if the
        default partitioner places all rows."""
        given = _column(rows, "partition")
        if self._partitioner is None or (given is not None and not given.null_count):
            return given
        if given is None:
            return self._partitioner(RowsWithoutPartition(topic, rows, partition_count, sticky))
        import pyarrow.compute as pc

        missing = pc.is_null(given)
        rest = RowsWithoutPartition(topic, rows.filter(missing), partition_count, sticky)
        chosen = self._partitioner(rest)
        return pc.replace_with_mask(given, missing, chosen)

    def _next_sticky(self, topic: str, partition_count: int) -> int:
        """The partition for the rows of one call of `encode` that have neither a partition nor a
        key: a random one for a topic's first call, and in each further call the next partition
        (KIP-480)."""
        last = self._sticky.get(topic)
        chosen = chance.below(partition_count) if last is None else (last + 1) % partition_count
        self._sticky[topic] = chosen
        return chosen


def compression_level(settings: ClientSettings) -> int | None:
    """The configured level for the codec of compression.type; None for the codec's default, which
    is -1 for gzip. For zstd, -1 is a level."""
    name = f"compression.{settings.text('compression.type')}.level"
    if name not in ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"):
        return None
    level = settings.number(name)
    is_default = not settings.is_given(name) or (name == "compression.gzip.level" and level == -1)
    return None if is_default else level


def _column(rows: "RecordBatch", name: str) -> "Array | None":
    return rows.column(name) if name in rows.schema.names else None
