"""A log of random keys whose batches are made once in a file and produced to both brokers."""

import math
import mmap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks._brokers import Side
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.arrow import encode_from_arrow
from pyspark_klog.records.compression import Codec

_BLOCK_RECORDS = 100_000
_BATCH_BYTES = 16_384
_SEGMENTS = 8
# Apache Kafka accepts no smaller segments.
_LEAST_SEGMENT_BYTES = 1 << 20
_KEY_DIGITS = 11
_KEY_PREFIX = b"user-"
_LEAST_VALUE_BYTES, _VALUE_BYTES_END = 100, 201
_WORDS = 4_000
_TEXT_WORDS = 1_000_000
_SEED = 7
_PRODUCER_SETTINGS = {"connections.max.idle.ms": "600000"}


@dataclass(frozen=True)
class KeyedLog:
    """Batches of some 16 KB before compression, in a file.

    Keys have 16 bytes, values 100 to 200; the values are text of a language with 4,000 words.
    """

    path: Path
    codec: Codec
    surviving: float
    """The share of records with the last value of their key."""
    plain_bytes: int
    """The bytes of keys and values before compression, without the batches' headers."""
    keys: Any
    """Each record's key, as a number."""
    key_count: int
    sizes: list[int]
    """Each batch's bytes."""
    counts: list[int]
    """Each batch's records."""

    @property
    def segment_bytes(self) -> int:
        """The segment size that gives the log eight closed segments and a small active one."""
        return max(_LEAST_SEGMENT_BYTES, (sum(self.sizes) - 1) // _SEGMENTS)

    def kept(self, cleaned_end: int) -> int:
        """How many records are left when all before an offset are clean."""
        is_there = np.zeros(self.key_count, np.bool_)
        is_there[self.keys[:cleaned_end]] = True
        return int(is_there.sum()) + len(self.keys) - cleaned_end

    def produce(self, side: Side, topic: str) -> None:
        """Write all batches, in order, to partition 0 of a topic."""
        with BlockingClient(
            {"bootstrap.servers": side.bootstrap_servers, **_PRODUCER_SETTINGS}
        ) as client:
            producer = Producer(client)
            producer.partition_count(topic)
            partition = TopicPartition(topic, 0)
            producer.add_all((partition, *each) for each in self._batches())
            producer.flush()
        side.expect_records(topic, len(self.keys))

    def _batches(self) -> Iterator[tuple[bytearray, int]]:
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            at = 0
            for size, count in zip(self.sizes, self.counts, strict=True):
                # The producer writes its own fields into a batch, so each one is copied.
                yield bytearray(mapped[at : at + size]), count
                at += size


def make(path: Path, codec: Codec, surviving: float, records: int) -> KeyedLog:
    """Write the batches to a new file."""
    random = np.random.default_rng(_SEED)
    key_count = max(1, round(records / _records_a_key(surviving)))
    keys = random.integers(0, key_count, records, dtype=np.int64)
    text = _text(random)
    now_ms = time.time_ns() // 1_000_000
    sizes: list[int] = []
    counts: list[int] = []
    plain_bytes = 0
    with path.open("wb") as file:
        for start in range(0, records, _BLOCK_RECORDS):
            block = keys[start : start + _BLOCK_RECORDS]
            key_column, value_column = _key_column(block), _value_column(random, text, len(block))
            plain_bytes += key_column.nbytes + value_column.nbytes
            encoded = encode_from_arrow(
                value_column,
                key=key_column,
                partition=pa.array(np.zeros(len(block), np.int32)),
                partition_count=1,
                now_ms=now_ms,
                max_batch_bytes=_BATCH_BYTES,
                codec=codec,
            )
            for batch in encoded.batches:
                file.write(batch.payload)
                sizes.append(len(batch.payload))
                counts.append(batch.record_count)
    assert sum(counts) == records
    return KeyedLog(path, codec, surviving, plain_bytes, keys, key_count, sizes, counts)


def _records_a_key(surviving: float) -> float:
    """How many records each key must have, on average, for this share of last records.

    Keys are drawn with equal probability, so that the share is (1 - e^-x) / x.
    """
    low, high = 1e-6, 1e6
    for _ in range(200):
        x = (low + high) / 2
        if -math.expm1(-x) / x > surviving:
            low = x
        else:
            high = x
    return low


def _text(random: Any) -> Any:
    """Bytes of words, some of which are much more frequent than others."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    odds = 1.0 / np.arange(1, len(letters) + 1)
    words = [
        random.choice(letters, random.integers(2, 10), p=odds / odds.sum()).tobytes()
        for _ in range(_WORDS)
    ]
    ranks = 1.0 / np.arange(1, _WORDS + 1)
    chosen = random.choice(_WORDS, _TEXT_WORDS, p=ranks / ranks.sum())
    return np.frombuffer(b" ".join(words[number] for number in chosen), np.uint8)


def _key_column(keys: Any) -> pa.Array:
    digits = np.empty((len(keys), len(_KEY_PREFIX) + _KEY_DIGITS), np.uint8)
    digits[:, : len(_KEY_PREFIX)] = np.frombuffer(_KEY_PREFIX, np.uint8)
    rest = keys.copy()
    for column in range(digits.shape[1] - 1, len(_KEY_PREFIX) - 1, -1):
        digits[:, column] = rest % 10 + ord("0")
        rest //= 10
    return _binary(digits.reshape(-1), np.full(len(keys), digits.shape[1]))


def _value_column(random: Any, text: Any, count: int) -> pa.Array:
    """Values that are pieces of the text."""
    sizes = random.integers(_LEAST_VALUE_BYTES, _VALUE_BYTES_END, count)
    starts = random.integers(0, len(text) - _VALUE_BYTES_END, count)
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
    return _binary(text[places], sizes)


def _binary(data: Any, sizes: Any) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
