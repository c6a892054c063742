"""Conversion down and up, as Kafka 3.9 does it (compared with Kafka's own in tests/peers)."""

import pytest

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.down_conversion import down_convert, overflow_message
from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    UnsupportedCodec,
)
from pyspark_klog.records.legacy import LegacyView, encode_message
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_sets import entries, read_entry_head
from tests.support.records.record_sets import iterate
from tests.support.records.up_conversion import up_convert

NONE, CREATE, APPEND = TimestampType
OLD_CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]
every_old_codec = pytest.mark.parametrize("codec", OLD_CODECS)


def v2(codec: Codec = Codec.NONE, base_offset: int = 10, append_ms: int | None = None) -> bytes:
    builder = BatchBuilder(
        base_offset,
        codec,
        CREATE if append_ms is None else APPEND,
        log_append_time_ms=append_ms,
        producer_id=1,
        producer_epoch=1,
        base_sequence=0,
        is_transactional=True,
    )
    builder.append(b"a", b"1", 1000, [("gone", b"x")])
    builder.append(None, None, 900)
    builder.append(b"c", b"", 1100, offset=base_offset + 5)
    return builder.build()


def old(magic: int, codec: Codec = Codec.NONE, base_offset: int = 10) -> bytes:
    builder = LegacyBuilder(magic, base_offset, codec)
    builder.append(b"a", b"1", 1000)
    builder.append(None, None, 900)
    return builder.build()


MARKER = end_transaction_batch(
    EndTransactionMarker(ControlType.COMMIT, 1), producer_id=1, producer_epoch=1, timestamp_ms=1
)


@every_old_codec
@pytest.mark.parametrize("magic", [0, 1])
def test_down_keeps_offsets_codec_and_timestamps(codec: Codec, magic: int) -> None:
    converted = down_convert(v2(codec), magic)
    kind = CREATE if magic else NONE
    times = [1000, 900, 1100] if magic else [-1, -1, -1]
    assert list(iterate(converted.data)) == [
        Record(10, times[0], kind, b"a", b"1"),
        Record(11, times[1], kind, None, None),
        Record(15, times[2], kind, b"c", b""),
    ]
    assert converted.records_converted == 3
    found = list(entries(converted.data))
    assert len(found) == (3 if codec is Codec.NONE else 1)
    assert {(entry.magic, entry.codec) for entry in found} == {(magic, codec)}
    assert found[-1].last_offset == 15
    if magic:
        assert found[-1].max_timestamp_ms == 1100


@every_old_codec
def test_down_keeps_append_time(codec: Codec) -> None:
    converted = down_convert(v2(codec, append_ms=5000), 1).data
    assert {(r.timestamp_ms, r.timestamp_type) for r in iterate(converted)} == {(5000, APPEND)}
    again = down_convert(converted, 0).data
    assert {(r.timestamp_ms, r.timestamp_type) for r in iterate(again)} == {(-1, NONE)}


def test_down_leaves_what_is_old_enough() -> None:
    data = old(0, Codec.GZIP) + old(1, Codec.LZ4, 20) + v2(base_offset=30)
    converted = down_convert(data, 1)
    unchanged = old(0, Codec.GZIP) + old(1, Codec.LZ4, 20)
    assert converted.data.startswith(unchanged)
    assert converted.records_converted == 3
    all_v0 = down_convert(data, 0)
    assert all_v0.data.startswith(old(0, Codec.GZIP))
    assert {entry.magic for entry in entries(all_v0.data)} == {0}
    assert [r.offset for r in iterate(all_v0.data)] == [10, 11, 20, 21, 30, 31, 35]
    assert all_v0.records_converted == 5


def test_down_drops_control_batches() -> None:
    assert down_convert(MARKER, 1).data == b""
    converted = down_convert(MARKER + v2() + MARKER, 0)
    assert [record.offset for record in iterate(converted.data)] == [10, 11, 15]


@pytest.mark.parametrize("magic", [0, 1])
def test_down_starts_at_the_offset_asked_for(magic: int) -> None:
    plain = down_convert(v2(), magic, first_offset=11)
    assert [record.offset for record in iterate(plain.data)] == [11, 15]
    assert plain.records_converted == 2
    packed = down_convert(v2(Codec.LZ4), magic, first_offset=11)
    assert [record.offset for record in iterate(packed.data)] == [10, 11, 15]
    assert down_convert(v2(), magic, first_offset=16).data == b""
    # Entries that are not converted are not filtered either.
    assert down_convert(old(0), 0, first_offset=99).data == old(0)


def test_down_refuses_zstd() -> None:
    with pytest.raises(UnsupportedCodec, match=r"zstd cannot be converted down.*version 10"):
        down_convert(v2() + v2(Codec.ZSTD), 1, first_offset=10**6)


def test_down_of_a_part() -> None:
    data = v2() + v2(base_offset=20)
    size = read_entry_head(data).size_bytes
    assert [r.offset for r in iterate(down_convert(data, 1, start=size).data)] == [20, 21, 25]
    with pytest.raises(CorruptRecords):
        down_convert(data, 1, end=size + 30)
    cut = down_convert(data, 1, end=size + 30, allow_partial=True)
    assert [r.offset for r in iterate(cut.data)] == [10, 11, 15]


def test_down_goes_to_0_or_1_and_is_bounded() -> None:
    with pytest.raises(ValueError, match="magic 2"):
        down_convert(v2(), 2)
    with pytest.raises(DecompressedTooLarge):
        down_convert(v2(Codec.GZIP), 1, max_bytes=10)


@every_old_codec
@pytest.mark.parametrize("magic", [0, 1])
def test_up_gives_one_batch(codec: Codec, magic: int) -> None:
    converted = up_convert(
        old(magic, codec), base_offset=500, partition_leader_epoch=3, compression_level=None
    )
    batch = BatchView(converted.data)
    batch.check_crc()
    assert batch.size_bytes == len(converted.data)
    assert (batch.codec, batch.partition_leader_epoch) == (codec, 3)
    times = [1000, 900] if magic else [-1, -1]
    assert list(batch.records()) == [
        Record(500, times[0], CREATE, b"a", b"1"),
        Record(501, times[1], CREATE, None, None),
    ]
    assert batch.max_timestamp_ms == times[0]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert converted.records_converted == 2


def test_up_conversion_keeps_offsets_by_default() -> None:
    assert [r.offset for r in iterate(up_convert(old(1)).data)] == [10, 11]
    # Producers put any offsets; given a base they do not count.
    zeros = encode_message(0, 0, 0, None, b"x") * 3
    assert [r.offset for r in iterate(up_convert(zeros, base_offset=7).data)] == [7, 8, 9]
    with pytest.raises(InvalidRecords, match="offsets rise"):
        up_convert(zeros)


def test_up_with_another_codec_and_append_time() -> None:
    converted = up_convert(
        old(1, Codec.GZIP), base_offset=0, codec=Codec.ZSTD, log_append_time_ms=7777
    )
    batch = BatchView(converted.data)
    assert (batch.codec, batch.timestamp_type) == (Codec.ZSTD, APPEND)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1000, 7777)
    assert {record.timestamp_ms for record in batch.records()} == {7777}


def test_up_refuses_what_kafka_refuses() -> None:
    wrapper, plain = old(1, Codec.GZIP), old(1)
    for data in (wrapper + wrapper, wrapper + plain, plain + wrapper):
        with pytest.raises(InvalidRecords, match="a set holds one wrapper and nothing else"):
            up_convert(data)
    with pytest.raises(InvalidRecords, match="no record to convert"):
        up_convert(b"")
    with pytest.raises(CorruptRecords, match="magic 2"):
        up_convert(v2())
    with pytest.raises(DecompressedTooLarge):
        up_convert(wrapper, max_bytes=10)
    for magic in (0, 1):
        with pytest.raises(UnsupportedCodec):
            up_convert(encode_message(magic, 0, 0, None, b"x", Codec.ZSTD))


def test_up_checks_every_crc() -> None:
    plain = bytearray(old(1))
    plain[-5] ^= 1  # the second message's key length, which was null
    with pytest.raises(CorruptRecords):
        up_convert(plain)
    damaged = bytearray(old(1))
    damaged[12] ^= 1
    with pytest.raises(CorruptRecords, match="CRC"):
        up_convert(damaged)
    inner = bytearray(old(1, base_offset=0))
    inner[12] ^= 1
    packed = compress(Codec.GZIP, inner, magic=1)
    wrapper = encode_message(1, 1, 1000, None, packed, Codec.GZIP)
    LegacyView(wrapper).check_crc()
    with pytest.raises(CorruptRecords, match="CRC"):
        up_convert(wrapper)


def test_the_overflow_message_is_larger_than_its_space() -> None:
    for room, size in ((0, 61), (60, 61), (1000, 1001)):
        assert read_entry_head(overflow_message(room) + b"\0\0\0\0\x01").size_bytes == size + 12
        assert list(iterate(overflow_message(room), allow_partial=True)) == []
