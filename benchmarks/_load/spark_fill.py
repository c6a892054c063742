"""Topics filled with records through klog's own producer, on either broker, before a run."""

import random
import time
from dataclasses import dataclass

import pyarrow as pa

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.arrow import EncodedBatch, encode_from_arrow
from pyspark_klog.records.compression import Codec

# The number of different rows; a topic repeats them.
_BLOCK_ROWS = 20_000
_BLOCK_BYTES = 8_000_000
_BATCH_BYTES = 16_384
_MOST_BATCH_BYTES = 1_048_000
_HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Records:
    """The records of a topic, spread evenly over its partitions. Half of each value is noise."""

    count: int
    partitions: int = 4
    value_bytes: int = 200
    key_bytes: int = 10
    headers: int = 0
    """The headers of each record, with keys and values of 8 bytes."""
    codec: str = "none"
    batch_bytes: int = _BATCH_BYTES
    """The size before compression, that of a producer with default settings."""


def block_rows(records: Records) -> int:
    """The number of rows that are encoded once.

    A topic holds whole blocks of them, with equal counts in each partition.
    """
    rows = min(_BLOCK_ROWS, _BLOCK_BYTES // records.value_bytes, records.count)
    return max(rows - rows % records.partitions, records.partitions)


def whole(records: Records) -> int:
    """The number of records that a topic really gets: whole blocks."""
    rows = block_rows(records)
    return max(1, round(records.count / rows)) * rows


def encode_block(records: Records) -> list[EncodedBatch]:
    """The batches of one block."""
    rows = block_rows(records)
    noise = random.Random(records.value_bytes)
    half = records.value_bytes // 2
    rest = b"x" * (records.value_bytes - half)
    values = [noise.randbytes(half) + rest for _ in range(rows)]
    keys = [noise.randbytes(records.key_bytes) for _ in range(rows)] if records.key_bytes else None
    headers = None
    if records.headers:
        one = [{"key": f"header-{n}", "value": b"%08d" % n} for n in range(records.headers)]
        headers = pa.array([one] * rows, _HEADER_TYPE)
    each = rows // records.partitions
    found = encode_from_arrow(
        pa.array(values, pa.binary()),
        key=None if keys is None else pa.array(keys, pa.binary()),
        headers=headers,
        partition=pa.array([row // each for row in range(rows)], pa.int32()),
        partition_count=records.partitions,
        now_ms=time.time_ns() // 1_000_000,
        max_batch_bytes=min(max(records.batch_bytes, 2 * records.value_bytes), _MOST_BATCH_BYTES),
        codec=Codec[records.codec.upper()],
    )
    if found.rejected:
        raise ValueError(f"{len(found.rejected)} of {rows} records are too large for a batch")
    return found.batches


def fill(bootstrap_servers: str, topic: str, records: Records) -> int:
    """Write the records, rounded to whole blocks, to an existing topic; return their number."""
    count = whole(records)
    batches = encode_block(records)
    with BlockingClient({"bootstrap.servers": bootstrap_servers}) as client:
        producer = Producer(client)
        producer.partition_count(topic)
        for _ in range(count // block_rows(records)):
            # The producer writes its own fields into a batch, so each pass uses copies.
            producer.add_all(
                (TopicPartition(topic, each.partition), bytearray(each.payload), each.record_count)
                for each in batches
            )
        producer.flush()
    return count
