"""Bytes of other writers decode to the records that were written (support/golden/records.py)."""

from collections import Counter
from typing import Any

import pytest

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import (
    ControlType,
    EndTransactionMarker,
    control_type_of,
    decode_end_transaction,
    end_transaction_batch,
)
from pyspark_klog.records.down_conversion import down_convert
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Header, Record, TimestampType
from pyspark_klog.records.record_sets import entries
from tests.support.golden.cases import CODECS, GOLDEN_DIR, START_MS, Expected, Golden
from tests.support.records.record_sets import empty_batch, iterate
from tests.support.records.up_conversion import up_convert

GOLDENS = [Golden.load(path) for path in sorted(GOLDEN_DIR.glob("*.json"))]
OLD_GOLDENS = [golden for golden in GOLDENS if "-v0-" in golden.name or "-v1-" in golden.name]
every_golden = pytest.mark.parametrize("golden", GOLDENS, ids=[golden.name for golden in GOLDENS])


def golden_named(name: str) -> Golden:
    return next(golden for golden in GOLDENS if golden.name == name)


def as_record(expected: Expected) -> Record:
    timestamp_type = TimestampType[expected.timestamp_type]
    headers = tuple(Header(name, value) for name, value in expected.headers)
    return Record(
        expected.offset,
        expected.timestamp_ms,
        timestamp_type,
        expected.key,
        expected.value,
        headers,
    )


def test_there_is_a_golden_for_every_writer_format_and_codec() -> None:
    by_writer = Counter(golden.name.split("-v")[0] for golden in GOLDENS if "-v" in golden.name)
    assert set(by_writer) == {"kafka-python", "aiokafka", "librdkafka", "java"}
    names = {golden.name for golden in GOLDENS}
    for writer in by_writer:
        for magic, codec in [(m, c) for m in (0, 1, 2) for c in CODECS]:
            # zstd came after v0 and v1; aiokafka refuses to write v0's wrong LZ4 checksum.
            can = not (magic < 2 and codec == "zstd")
            can = can and (writer, magic, codec) != ("aiokafka", 0, "lz4")
            assert (f"{writer}-v{magic}-{codec}" in names) == can, (writer, magic, codec)


@every_golden
def test_records_are_what_the_writer_was_asked_for(golden: Golden) -> None:
    found = list(iterate(golden.data, include_control=True, max_bytes=1 << 20))
    assert found == [as_record(expected) for expected in golden.records]


@every_golden
def test_crcs_and_codecs_are_what_the_writer_was_asked_for(golden: Golden) -> None:
    for entry in entries(golden.data):
        entry.check_crc()
        codecs = {"none", golden.codec} if golden.name == "java-mixed" else {golden.codec}
        assert entry.codec.name.lower() in codecs


@every_golden
def test_header_fields(golden: Golden) -> None:
    first = next(entries(golden.data))
    assert {name: getattr(first, name) for name in golden.header} == golden.header


@pytest.mark.parametrize("golden", OLD_GOLDENS, ids=[golden.name for golden in OLD_GOLDENS])
def test_up_conversion_keeps_what_the_old_formats_hold(golden: Golden) -> None:
    converted = up_convert(golden.data, max_bytes=1 << 20)
    batch = BatchView(converted.data)
    batch.check_crc()
    wanted = [
        as_record(expected)._replace(timestamp_type=TimestampType.CREATE_TIME)
        for expected in golden.records
    ]
    assert list(batch.records()) == wanted
    assert batch.codec.name.lower() == golden.codec
    assert converted.records_converted == len(wanted)


def test_what_klog_writes_is_kafkas_byte_for_byte() -> None:
    """Uncompressed there is one way to write records; codecs may differ by their releases."""
    append_ms = START_MS + 86_400_000
    cases: dict[str, dict[str, Any]] = {
        "v2-none": {},
        "v2-none-gaps": {},
        "v2-none-append-time": {"log_append_time_ms": append_ms},
        "v2-none-sequence-wraps": {
            "producer_id": 2**62,
            "producer_epoch": 32767,
            "base_sequence": 2**31 - 3,
            "is_transactional": True,
            "partition_leader_epoch": 5,
        },
    }
    for name, settings in cases.items():
        golden = golden_named(f"java-{name}")
        # Kafka wrote these timestamps; with append time a reader sees others.
        asked = golden.records if "append" not in name else golden_named("java-v2-none").records
        kind = TimestampType[golden.records[0].timestamp_type]
        batch = BatchBuilder(golden.records[0].offset, timestamp_type=kind, **settings)
        for one in asked:
            batch.append(one.key, one.value, one.timestamp_ms, one.headers, one.offset)
        assert batch.build() == golden.data, name
    for magic, name in ((0, "v0-none"), (1, "v1-none"), (1, "v1-none-gaps")):
        golden = golden_named(f"java-{name}")
        legacy = LegacyBuilder(magic, golden.records[0].offset)
        for one in golden.records:
            legacy.append(one.key, one.value, one.timestamp_ms, one.offset)
        assert legacy.build() == golden.data, name


def test_a_delete_horizon_is_written_as_kafka_does() -> None:
    golden = golden_named("java-v2-lz4-delete-horizon")
    theirs = BatchView(golden.data)
    batch = BatchBuilder(
        codec=Codec.LZ4,
        delete_horizon_ms=theirs.delete_horizon_ms,
        partition_leader_epoch=9,
    )
    for one in golden.records:
        batch.append(one.key, one.value, one.timestamp_ms, one.headers)
    ours = BatchView(batch.build())
    assert ours.records_section() == theirs.records_section()
    for name in ("attributes", "base_timestamp_ms", "max_timestamp_ms", "partition_leader_epoch"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_down_conversion_gives_kafkas_own_bytes() -> None:
    """Kafka wrote the same records in each format; uncompressed there is one way to do so."""
    for name in ("none", "none-append-time"):
        v2, v1 = golden_named(f"java-v2-{name}"), golden_named(f"java-v1-{name}")
        # The same records but for their offsets, which the cases keep apart.
        patched = bytearray(v2.data)
        BatchView(patched).set_base_offset(v1.records[0].offset)
        assert down_convert(patched, 1).data == v1.data
    v1, v0 = golden_named("java-v1-none"), golden_named("java-v0-none")
    shift = v1.records[0].offset - v0.records[0].offset
    converted = list(iterate(down_convert(v1.data, 0).data))
    moved = [record._replace(offset=record.offset - shift) for record in converted]
    assert moved == [as_record(expected) for expected in v0.records]


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_ends_of_transactions_are_kafkas_byte_for_byte(kind: ControlType) -> None:
    golden = golden_named(f"java-{kind.name.lower()}")
    marker = EndTransactionMarker(kind, coordinator_epoch=12)
    ours = end_transaction_batch(
        marker,
        producer_id=4711,
        producer_epoch=3,
        timestamp_ms=START_MS,
        base_offset=77,
        partition_leader_epoch=4,
    )
    assert ours == golden.data
    (record,) = BatchView(golden.data).records()
    assert control_type_of(record.key) is kind
    assert decode_end_transaction(record) == marker


def test_an_emptied_batch_is_kafkas_byte_for_byte() -> None:
    golden = golden_named("java-v2-empty")
    assert empty_batch(BatchView(golden.data)) == golden.data
    assert list(BatchView(golden.data).records()) == []
