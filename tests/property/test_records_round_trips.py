"""Records survive a round trip through each format and codec; checksums against crcmod."""

import crcmod.predefined
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.builder import BatchBuilder, plain_batch
from pyspark_klog.records.checksums import crc32, crc32c
from pyspark_klog.records.compression import Codec, compress, decompress
from pyspark_klog.records.down_conversion import down_convert
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Header, Record, TimestampType
from pyspark_klog.records.record_section import append_record, record_size
from pyspark_klog.records.varint import append_varint, read_varint, read_varlong, varint_size
from tests.support.records.record_sets import iterate
from tests.support.records.up_conversion import up_convert

CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

Headers = tuple[Header, ...]
Items = list[tuple[int, int, bytes | None, bytes | None, Headers]]

nullable = st.none() | st.binary(max_size=40) | st.sampled_from([b"", bytes(70), b"ab" * 5000])
headers = st.lists(st.builds(Header, st.text(max_size=8), nullable), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**63 - 1) | st.integers(10**12, 10**12 + 1000)
steps = st.just(1) | st.integers(1, 5000)  # from one offset to the next
asked = st.lists(st.tuples(steps, timestamps, nullable, nullable, headers), min_size=1, max_size=8)
codecs = st.sampled_from(list(Codec))
old_codecs = st.sampled_from([codec for codec in Codec if codec is not Codec.ZSTD])
base_offsets = st.integers(0, 2**62)
append_times = st.none() | st.integers(0, 2**63 - 1)

quick = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def records_from(items: Items, base_offset: int, magic: int, append_ms: int | None) -> list[Record]:
    found = []
    offset = base_offset - 1
    for step, timestamp_ms, key, value, own_headers in items:
        offset += step
        kind = CREATE if append_ms is None else APPEND
        if magic == 0:
            kind, timestamp_ms = TimestampType.NO_TIMESTAMP, -1
        elif append_ms is not None:
            timestamp_ms = append_ms
        kept = own_headers if magic == 2 else ()
        found.append(Record(offset, timestamp_ms, kind, key, value, kept))
    return found


@quick
@given(asked, codecs, base_offsets, append_times, st.booleans())
def test_v2(
    items: Items, codec: Codec, base_offset: int, append_ms: int | None, is_transactional: bool
) -> None:
    expected = records_from(items, base_offset, 2, append_ms)
    builder = BatchBuilder(
        base_offset,
        codec,
        CREATE if append_ms is None else APPEND,
        log_append_time_ms=append_ms,
        is_transactional=is_transactional,
    )
    for (_, timestamp_ms, key, value, own), record in zip(items, expected, strict=True):
        builder.append(key, value, timestamp_ms, own, record.offset)
    data = builder.build()
    (batch,) = split_batches(data)
    batch.check_crc()
    assert list(batch.records()) == expected == list(iterate(data))
    assert batch.record_count == len(expected)
    assert (batch.base_offset, batch.last_offset) == (base_offset, expected[-1].offset)
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in expected)
    assert batch.is_transactional == is_transactional
    if codec is Codec.NONE:
        assert len(data) == builder.size_bytes


@quick
@given(st.lists(st.tuples(nullable, nullable), min_size=1, max_size=300), timestamps)
def test_a_plain_batch_is_what_the_builder_makes(
    items: list[tuple[bytes | None, bytes | None]], timestamp_ms: int
) -> None:
    builder = BatchBuilder()
    for key, value in items:
        builder.append(key, value, timestamp_ms)
    assert plain_batch(items, timestamp_ms) == builder.build()


@quick
@given(st.sampled_from([0, 1]), asked, old_codecs, base_offsets, append_times)
def test_v0_and_v1(
    magic: int, items: Items, codec: Codec, base_offset: int, append_ms: int | None
) -> None:
    # An offset of 0 in a wrapper means "from 0", so gaps before it are lost.
    base_offset = max(base_offset, 1)
    expected = records_from(items, base_offset, magic, append_ms)
    builder = LegacyBuilder(
        magic,
        base_offset,
        codec,
        CREATE if append_ms is None else APPEND,
        log_append_time_ms=append_ms,
    )
    for (_, timestamp_ms, key, value, _own), record in zip(items, expected, strict=True):
        builder.append(key, value, timestamp_ms, record.offset)
    data = builder.build()
    assert list(iterate(data)) == expected
    if codec is Codec.NONE:
        assert len(data) == builder.size_bytes


@quick
@given(st.sampled_from([0, 1]), asked, old_codecs, base_offsets)
def test_down_and_up_again(magic: int, items: Items, codec: Codec, base_offset: int) -> None:
    base_offset = max(base_offset, 1)
    builder = BatchBuilder(base_offset, codec)
    expected = records_from(items, base_offset, 2, None)
    for record in expected:
        builder.append(*record[3:5], record.timestamp_ms, record.headers, record.offset)
    down = down_convert(builder.build(), magic)
    assert down.records_converted == len(expected)
    assert list(iterate(down.data)) == records_from(items, base_offset, magic, None)
    up = BatchView(up_convert(down.data).data)
    assert up.codec is codec
    assert list(up.records()) == [
        record._replace(headers=(), timestamp_ms=record.timestamp_ms if magic else -1)
        for record in expected
    ]


@quick
@given(st.binary(max_size=3000), st.integers(1, 100), st.sampled_from(list(Codec)[1:]))
def test_codecs(piece: bytes, times: int, codec: Codec) -> None:
    data = piece * times
    for magic in (0, 1, 2) if codec is not Codec.ZSTD else (2,):
        packed = compress(codec, data, magic=magic)
        assert decompress(codec, packed, magic=magic, max_bytes=len(data)) == data


@given(INT64)
def test_varlongs(value: int) -> None:
    out = bytearray(b"x")
    append_varint(out, value)
    assert read_varlong(out, 1, len(out)) == (value, len(out))
    assert varint_size(value) == len(out) - 1 <= 10


@given(INT32)
def test_varints(value: int) -> None:
    out = bytearray()
    append_varint(out, value)
    assert read_varint(out, 0, len(out)) == (value, len(out))
    assert varint_size(value) == len(out) <= 5
    # Padded with zeros a number is longer than needed, and still the same.
    padded = out[:-1] + bytes([out[-1] | 0x80]) + b"\x80" * (4 - len(out)) + b"\x00"
    if len(out) < 5:
        assert read_varint(padded, 0, len(padded)) == (value, 5)


@given(st.integers(0, 2**31 - 1), INT64, nullable, nullable, headers)
def test_the_size_of_a_record_is_known(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, own: Headers
) -> None:
    out = bytearray()
    append_record(out, offset_delta, timestamp_delta, key, value, own)
    assert record_size(offset_delta, timestamp_delta, key, value, own) == len(out)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_checksums_are_crcmods(piece: bytes, times: int) -> None:
    data = piece * times
    for source in (data, bytearray(data), memoryview(b"?" + data)[1:]):
        assert crc32c(source) == crcmod.predefined.mkCrcFun("crc-32c")(data)
        assert crc32(source) == crcmod.predefined.mkCrcFun("crc-32")(data)


def test_checksums_of_the_standard_text() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32(b"123456789") == 0xCBF43926
    assert crc32c(b"") == crc32(b"") == 0
