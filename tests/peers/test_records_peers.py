"""Kafka's own record classes read what klog writes, convert alike, and refuse the same damage."""

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.down_conversion import down_convert
from pyspark_klog.records.errors import RecordsError, UnsupportedCodec
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Record, TimestampType
from tests.support.golden.cases import GOLDEN_DIR, Golden, large, sample
from tests.support.golden.java_records import run_java
from tests.support.records.record_sets import iterate
from tests.support.records.up_conversion import up_convert

pytestmark = pytest.mark.peers

MAX_BYTES = 1 << 22
APPEND_MS = 1_500_000_000_000
OLD_CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]


def as_line(records: Sequence[Record]) -> str:
    """Records as JavaRecords.java prints them."""
    return " ".join(["records", *(_one(record) for record in records)])


def _one(record: Record) -> str:
    fields = [str(record.offset), str(record.timestamp_ms), str(int(record.timestamp_type))]
    fields += [_text(record.key), _text(record.value)]
    fields += [f"{name.encode().hex()}:{_text(value)}" for name, value in record.headers]
    return ",".join(fields)


def _text(data: bytes | None) -> str:
    return "null" if data is None else "x" + data.hex()


def written_by_klog() -> Iterator[bytes]:
    """One set for each format, codec, timestamp type and kind of records."""
    for magic, codec, is_append_time in product((0, 1, 2), Codec, (False, True)):
        if (magic < 2 and codec is Codec.ZSTD) or (magic == 0 and is_append_time):
            continue
        kind = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        append_ms = APPEND_MS if is_append_time else None
        for asked in (sample(magic, 500), large(magic)):
            base = asked[0].offset
            if magic == 2:
                batch = BatchBuilder(base, codec, kind, log_append_time_ms=append_ms)
                for one in asked:
                    batch.append(one.key, one.value, one.timestamp_ms, one.headers, one.offset)
                yield batch.build()
            else:
                legacy = LegacyBuilder(magic, base, codec, kind, log_append_time_ms=append_ms)
                for one in asked:
                    legacy.append(one.key, one.value, one.timestamp_ms, one.offset)
                yield legacy.build()


def test_kafka_reads_what_klog_writes() -> None:
    sets = list(written_by_klog())
    lines = run_java([f"read true {data.hex()}" for data in sets])
    assert lines == [as_line(list(iterate(data))) for data in sets]
    assert len(sets) == 2 * (4 + 8 + 10)


def test_conversion_down_gives_what_kafkas_gives() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 1)
    control = end_transaction_batch(
        marker, producer_id=1, producer_epoch=0, timestamp_ms=1, base_offset=700
    )
    sources = [data for data in written_by_klog() if heads(data)[0][-1] != Codec.ZSTD]
    sources = [data + control for data in sources]
    sources += [golden.data for golden in goldens() if golden.codec != "zstd"]
    cases = list(product((0, 1), (0, 3, 502, 10_000), sources))
    lines = run_java([f"down {magic} {first} {data.hex()}" for magic, first, data in cases])
    compared = 0
    for (magic, first, data), line in zip(cases, lines, strict=True):
        theirs = bytes.fromhex(line[1:])
        ours = down_convert(data, magic, first_offset=first, max_bytes=MAX_BYTES).data
        # Compressed bytes may differ; what is in them may not.
        assert list(iterate(ours)) == list(iterate(theirs))
        assert heads(ours) == heads(theirs)
        if all(head[-1] == 0 for head in heads(theirs)):
            assert ours == theirs
            compared += 1
    assert compared > 100


def heads(data: bytes) -> list[tuple[int, int, int]]:
    """Stored offset, magic and codec of each entry."""
    found = []
    position = 0
    while position < len(data):
        magic = data[position + 16]
        attributes = data[position + (22 if magic == 2 else 17)]
        found.append((int.from_bytes(data[position : position + 8], "big"), magic, attributes & 7))
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


def goldens() -> list[Golden]:
    return [Golden.load(path) for path in sorted(GOLDEN_DIR.glob("*.json"))]


def test_conversion_down_refuses_zstd_as_kafka_does() -> None:
    (data,) = [golden.data for golden in goldens() if golden.name == "java-v2-zstd"]
    assert run_java([f"down 1 0 {data.hex()}"]) == ["UnsupportedCompressionTypeException"]
    with pytest.raises(UnsupportedCodec):
        down_convert(data, 1)


def test_conversion_up_gives_what_kafkas_log_appends() -> None:
    old = [
        golden.data for golden in goldens() if golden.data[16] < 2 and "mixed" not in golden.name
    ]
    old += [data for data in written_by_klog() if data[16] < 2]
    wrapper = next(data for data in old if heads(data)[0][-1] == Codec.GZIP)
    plain = next(data for data in old if heads(data)[0][-1] == Codec.NONE)
    refused = [wrapper + wrapper, plain + wrapper, wrapper + plain]
    cases = list(product((0, 12_345), (-1, APPEND_MS), old + refused))
    # Kafka refuses producers' sets that claim append time; that belongs to the log's validation.
    cases = [case for case in cases if not claims_append_time(case[2])]
    lines = run_java([f"up {base} 7 {ms} {data.hex()}" for base, ms, data in cases])
    for (base, append_ms, data), line in zip(cases, lines, strict=True):
        try:
            ours = up_convert(
                data,
                base_offset=base,
                partition_leader_epoch=7,
                log_append_time_ms=None if append_ms < 0 else append_ms,
                max_bytes=MAX_BYTES,
            ).data
        except RecordsError:
            assert not line.startswith("x"), data.hex()
            continue
        theirs = bytes.fromhex(line[1:])
        # All of the header but length and CRC, which follow from what the codec gives.
        assert ours[12:17] + ours[21:61] == theirs[12:17] + theirs[21:61], data.hex()
        assert list(iterate(ours)) == list(iterate(theirs))
        assert heads(ours) == heads(theirs)
        if heads(ours)[0][-1] == Codec.NONE:
            assert ours == theirs
    assert sum(not line.startswith("x") for line in lines) == 4 * len(refused)


def claims_append_time(data: bytes) -> bool:
    return data[16] == 1 and bool(data[17] & 8)


def test_damage_that_kafka_refuses_is_refused() -> None:
    """Bytes are changed at random, CRCs are not looked at: what Kafka refuses, klog must refuse.

    klog may refuse more (it holds lengths to be exact where Kafka passes over a rest), never read
    something else from what both accept.
    """
    rng = random.Random(1)
    small = [g.data for g in goldens() if len(g.data) < 700 and "mixed" not in g.name]
    mutated = []
    for _ in range(3000):
        data = bytearray(rng.choice(small))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data[rng.randrange(8, len(data))] = rng.choice(
                (0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
        mutated.append(bytes(data))
    lines = run_java([f"read false {data.hex()}" for data in mutated])
    verdicts = {"both": 0, "neither": 0, "kafka only": 0}
    for changed, line in zip(mutated, lines, strict=True):
        try:
            ours = as_line(
                list(iterate(changed, check_crc=False, include_control=True, max_bytes=MAX_BYTES))
            )
        except RecordsError:
            verdicts["kafka only" if line.startswith("records") else "neither"] += 1
            continue
        assert ours == line, changed.hex()
        verdicts["both"] += 1
    assert verdicts["both"] > 1000
    assert verdicts["neither"] > 1000
