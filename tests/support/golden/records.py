"""Make the golden record files again: python -m tests.support.golden.records [FOLDER].

Run from the top of the checkout, in an environment with kafka-python, aiokafka, confluent-kafka,
python-snappy and xxhash (kafka-python needs the last two for snappy and for lz4 in format v0), with
Java 17 and the jars of Kafka 3.9.1 where tests/support/peers.py looks. No code of klog is used.
A second run changes only the bytes of gzip, which contain the time. The files are committed, so the
tests that read them need none of these packages.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.golden.cases import CODECS, GOLDEN_DIR, Golden, sample
from tests.support.golden.java_records import java_goldens
from tests.support.golden.librdkafka import librdkafka_goldens

_BATCH_BYTES = 1 << 20


def main(folder: Path) -> None:
    count = 0
    for make in (kafka_python_goldens, aiokafka_goldens, librdkafka_goldens, java_goldens):
        for golden in make():
            golden.save(folder)
            count += 1
    print(f"{count} files in {folder}")


def kafka_python_goldens() -> Iterator[Golden]:
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    yield from _python_goldens("kafka-python", LegacyRecordBatchBuilder, DefaultRecordBatchBuilder)


def aiokafka_goldens() -> Iterator[Golden]:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

    yield from _python_goldens("aiokafka", LegacyRecordBatchBuilder, DefaultRecordBatchBuilder)


def _python_goldens(name: str, legacy_builder: Any, batch_builder: Any) -> Iterator[Golden]:
    """kafka-python and aiokafka have the same two builders: one code base comes from the other."""
    written_by = f"{name} {version(name)}"
    for magic, (codec_number, codec) in product((0, 1), enumerate(CODECS[:4])):
        if name == "aiokafka" and magic == 0 and codec == "lz4":
            continue  # it refuses to write the wrong checksum
        builder = legacy_builder(magic, codec_number, _BATCH_BYTES)
        records = sample(magic)
        for record in records:
            timestamp = None if magic == 0 else record.timestamp_ms
            builder.append(record.offset, timestamp, record.key, record.value)
        data = bytes(builder.build())
        yield Golden(f"{name}-v{magic}-{codec}", written_by, codec, data, records)
    for (codec_number, codec), is_transactional in product(enumerate(CODECS), (False, True)):
        producer = (4711, 3, 17) if is_transactional else (-1, -1, -1)
        builder = batch_builder(2, codec_number, is_transactional, *producer, _BATCH_BYTES)
        records = sample(2)
        for record in records:
            builder.append(
                record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
            )
        kind = "-transactional" if is_transactional else ""
        yield Golden(
            f"{name}-v2-{codec}{kind}",
            written_by,
            codec,
            bytes(builder.build()),
            records,
            {
                "base_offset": 0,
                "last_offset": 5,
                "record_count": 6,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "base_sequence": producer[2],
                "last_sequence": producer[2] + 5 if is_transactional else -1,
                "is_transactional": is_transactional,
                "is_control": False,
                "max_timestamp_ms": max(record.timestamp_ms for record in records),
            },
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN_DIR)
