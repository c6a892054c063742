"""Nanoseconds a record: batches to Arrow columns and back; the peers are aiokafka and kafka-python.

200-byte values and 10-byte keys, one core. klog returns Arrow columns; the peers, which have no
columnar reader or writer, use Python objects. Each figure is the best of several rounds, klog and
its peer in turns.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from kafka.partitioner.default import murmur2

from benchmarks.rows import Row
from pyspark_klog.records.arrow import ArrowDecoder, encode_from_arrow
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.kernels.partition import assign_partitions
from pyspark_klog.records.kernels.record_validation import RESULT_FIELDS, validate_records
from pyspark_klog.records.kernels.scan import STATE_FIELDS, TABLE_COLUMNS, scan_batches
from pyspark_klog.records.layout import INT64_MAX

RECORDS = 48_000
ROUNDS = 7
NOW_MS = 1_700_000_000_000
SIZES = {"16 KB": 16 << 10, "1 MB": 1 << 20}
Work = Callable[[], object]


def run(args: argparse.Namespace) -> list[Row]:
    """Return all rows; no option in ``args`` applies to this benchmark."""
    del args
    keys = pa.array([b"k%09d" % i for i in range(RECORDS)], pa.binary())
    values = pa.array([b"v" * 200] * RECORDS, pa.binary())
    rows: list[Row] = []
    for name, size in SIZES.items():
        rows += _decode_rows(name, _batches(keys, values, size, Codec.NONE))
    for codec in (Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP):
        data = _batches(keys, values, SIZES["16 KB"], codec)
        rows.append(_row(f"decode {codec.name.lower()}, 16 KB", partial(_decode, data)))
    for name, size in SIZES.items():
        rows += _encode_rows(name, keys, values, size)
    rows.append(_murmur2_row(keys))
    return rows


def _decode_rows(name: str, data: bytes) -> list[Row]:
    array = np.frombuffer(data, np.uint8)
    table = np.zeros(4096 * TABLE_COLUMNS, np.int64)
    state = np.zeros(STATE_FIELDS, np.int64)
    result = np.zeros(RESULT_FIELDS, np.int64)
    scan_batches(array, 0, len(data), 1, INT64_MAX, table, state)
    found = table[: state[0] * TABLE_COLUMNS].reshape(-1, TABLE_COLUMNS)[:, [0, 1, 6, 8]].tolist()

    def walk() -> None:
        for position, size, base_ms, count in found:
            validate_records(
                *(array, position + 61, position + size, count, base_ms),
                *(0, INT64_MAX, 0, result),
            )

    return [
        _row(f"decode, {name} batches", lambda: _decode(data, check_crc=False), bar=45.0),
        _row(f"decode with CRC, {name}", lambda: _decode(data), lambda: _aiokafka(data)),
        _row(
            f"scan with CRC, {name}",
            lambda: scan_batches(array, 0, len(data), 1, INT64_MAX, table, state),
        ),
        _row(f"walk (broker's validation), {name}", walk),
    ]


def _encode_rows(name: str, keys: pa.Array, values: pa.Array, size: int) -> list[Row]:
    step = 10_000  # the rows that Spark passes to a writer at once
    parts = [(keys.slice(at, step), values.slice(at, step)) for at in range(0, RECORDS, step)]
    objects = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))

    def encode() -> None:
        for part_keys, part_values in parts:
            encode_from_arrow(
                *(part_values,),
                key=part_keys,
                partition_count=6,
                now_ms=NOW_MS,
                max_batch_bytes=size,
            )

    return [_row(f"encode with CRC, {name}", encode, lambda: _aiokafka_build(objects, size), 63.0)]


def _murmur2_row(keys: pa.Array) -> Row:
    _, ends, data = keys.buffers()
    nothing = np.empty(0, np.uint8)
    arguments: tuple[Any, ...] = (
        *(RECORDS, 6, 0, np.frombuffer(ends, np.int32), np.frombuffer(data, np.uint8)),
        *(nothing, 0, np.empty(0, np.int32), nothing, 0),
        *(np.empty(RECORDS, np.int32), np.zeros(RECORDS, np.uint8)),
    )
    few = keys.slice(0, 2000).to_pylist()
    peer_ns = _best(lambda: [murmur2(key) % 6 for key in few]) / len(few)
    return Row(
        "partition by murmur2",
        "ns/record",
        klog=_best(lambda: assign_partitions(*arguments)) / RECORDS,
        peer=peer_ns,
        lower_is_better=True,
        note="peer: kafka-python",
    )


def _batches(keys: pa.Array, values: pa.Array, size: int, codec: Codec) -> bytes:
    encoded = encode_from_arrow(
        *(values,),
        key=keys,
        partition=pa.array(np.zeros(RECORDS, np.int32)),
        partition_count=1,
        now_ms=NOW_MS,
        max_batch_bytes=size,
        codec=codec,
    )
    data = bytearray()
    offset = 0
    for batch in encoded.batches:
        BatchView(batch.payload).set_base_offset(offset)
        data += batch.payload
        offset += batch.record_count
    return bytes(data)


def _decode(data: bytes, *, check_crc: bool = True) -> int:
    decoder = ArrowDecoder(topic="t", partition=0, check_crc=check_crc)
    rows: int = sum(batch.num_rows for batch in decoder.decode(data))
    rest = decoder.flush()
    return rows + (rest.num_rows if rest else 0)


def _aiokafka(data: bytes) -> int:
    records = MemoryRecords(data)
    count = 0
    while records.has_next():
        batch = records.next_batch()
        batch.validate_crc()
        for record in batch:
            count += len(record.value) > 0
    return count


def _aiokafka_build(objects: list[tuple[bytes, bytes]], size: int) -> int:
    built = 0
    at = 0
    while at < len(objects):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, size)
        index = 0
        while at < len(objects):
            key, value = objects[at]
            if builder.append(index, NOW_MS, key, value, []) is None:
                break
            index += 1
            at += 1
        built += len(builder.build())
    return built


def _row(work: str, klog: Work, peer: Work | None = None, bar: float | None = None) -> Row:
    """A row with the best of several rounds in turns; ``bar`` is for klog's own figure."""
    best_klog = best_peer = float("inf")
    for _ in range(ROUNDS):
        best_klog = min(best_klog, _once(klog))
        if peer is not None:
            best_peer = min(best_peer, _once(peer))
    note = "" if peer is None else "peer: aiokafka's C, to and from Python objects"
    return Row(
        work,
        "ns/record",
        klog=best_klog / RECORDS,
        peer=None if peer is None else best_peer / RECORDS,
        bar=None if peer is not None else bar,
        lower_is_better=True,
        note=note,
    )


def _best(work: Work) -> float:
    return min(_once(work) for _ in range(ROUNDS))


def _once(work: Work) -> float:
    work()  # a warm-up run: the peer has just had its turn, and changed the caches
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e9
