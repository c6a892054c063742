"""Views of v2 batches: fields, patches in place, and what is refused before it is read."""

import mmap
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, add_to_sequence, split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.errors import CorruptRecords, DecompressedTooLarge, UnsupportedCodec
from pyspark_klog.records.record import Header, Record, TimestampType

CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


def a_batch(base_offset: int = 10, codec: Codec = Codec.NONE, count: int = 3) -> bytearray:
    builder = BatchBuilder(
        base_offset,
        codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=100,
        partition_leader_epoch=4,
    )
    for index in range(count):
        builder.append(b"key", b"value %d" % index, 1000 + index, [("h", None)])
    return bytearray(builder.build())


def with_section(section: bytes, count: int, codec: Codec = Codec.NONE) -> BatchView:
    """A batch with a right CRC around any bytes as its records."""
    builder = BatchBuilder(codec=codec)
    builder.append(None, None, 0)
    packed = compress(codec, section)
    data = bytearray(builder.build()[: at.RECORDS_AT] + packed)
    at.INT32.pack_into(data, at.BATCH_LENGTH_AT, len(data) - at.LOG_OVERHEAD_BYTES)
    at.INT32.pack_into(data, at.RECORD_COUNT_AT, count)
    batch = BatchView(data)
    batch.update_crc()
    return batch


def test_fields() -> None:
    data = b"before" + a_batch(count=3)
    batch = BatchView(data, 6)
    assert batch.size_bytes == batch.batch_length + 12 == len(data) - 6
    assert (batch.base_offset, batch.last_offset_delta) == (10, 2)
    assert (batch.last_offset, batch.next_offset) == (12, 13)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1000, 1002)
    assert (batch.producer_id, batch.producer_epoch) == (7, 2)
    assert (batch.base_sequence, batch.last_sequence) == (100, 102)
    assert (batch.partition_leader_epoch, batch.magic, batch.record_count) == (4, 2, 3)
    assert (batch.codec, batch.timestamp_type) == (Codec.NONE, CREATE)
    flags = (batch.is_transactional, batch.is_control, batch.has_delete_horizon)
    assert flags == (False, False, False)
    assert batch.delete_horizon_ms is None
    assert batch.crc == crc32c(data[6 + 21 :])
    assert batch.to_bytes() == data[6:]
    assert "base_offset=10" in repr(batch)


def test_patches_outside_of_the_crc() -> None:
    data = a_batch()
    crc = BatchView(data).crc
    batch = BatchView(data)
    batch.set_base_offset(2**40)
    assert (batch.base_offset, batch.last_offset) == (2**40, 2**40 + 2)
    batch.set_base_offset(1000)
    assert [record.offset for record in batch.records()] == [1000, 1001, 1002]
    assert batch.crc == crc
    batch.check_crc()


def test_patches_inside_the_crc_recompute_it() -> None:
    data = a_batch()
    batch = BatchView(data)
    before = bytes(data)
    batch.set_max_timestamp(1002, CREATE)  # what it was
    assert data == before
    batch.set_max_timestamp(5555, APPEND)
    assert batch.is_crc_valid()
    assert data != before
    assert {(r.timestamp_ms, r.timestamp_type) for r in batch.records()} == {(5555, APPEND)}
    batch.set_max_timestamp(1002, CREATE)
    assert data == before
    batch.set_producer_state(2**40, 3, 2**31 - 1, is_transactional=True)
    batch.check_crc()
    assert (batch.producer_id, batch.producer_epoch) == (2**40, 3)
    assert (batch.base_sequence, batch.last_sequence) == (2**31 - 1, 1)
    assert batch.is_transactional
    with pytest.raises(ValueError, match="timestamp type"):
        batch.set_max_timestamp(1, TimestampType.NO_TIMESTAMP)


def test_a_read_only_buffer_cannot_be_patched() -> None:
    batch = BatchView(bytes(a_batch()))
    with pytest.raises(TypeError):
        batch.set_base_offset(1)


def test_a_wrong_crc_is_named() -> None:
    data = a_batch()
    data[-1] ^= 1
    batch = BatchView(data)
    assert not batch.is_crc_valid()
    with pytest.raises(CorruptRecords, match=rf"base offset 10\) carries CRC {batch.crc:#010x}"):
        batch.check_crc()


def test_a_mapped_file_can_be_closed_while_its_records_live(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(a_batch() + a_batch(13, Codec.LZ4)))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        records = [r for batch in split_batches(mapped) for r in batch.records()]
        first = BatchView(mapped)
        first.check_crc()
        first.set_base_offset(20)
    assert [record.offset for record in records] == [10, 11, 12, 13, 14, 15]
    assert records[0] == Record(10, 1000, CREATE, b"key", b"value 0", (Header("h", None),))


def test_sequences_wrap() -> None:
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(5, 3) == 8


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data[:60], "takes 61 bytes, at byte 0 only 60 are left"),
        (lambda data: b"", "takes 61 bytes, at byte 0 only 0 are left"),
        (lambda data: data[:16] + b"\x01" + data[17:], "has magic 1, expected 2"),
        (lambda data: data[:-1], "gives its length as 109, expected 49 to 108"),
        (lambda data: data[:8] + b"\x00\x00\x00\x30" + data[12:], "length as 48, expected 49 to"),
        (lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:], "length as -1, expected 49 to"),
        (lambda data: data[:8] + b"\x7f\xff\xff\xff" + data[12:], "length as 2147483647"),
    ],
)
def test_what_is_no_batch_is_refused(change: Callable[[bytes], bytes], text: str) -> None:
    with pytest.raises(CorruptRecords, match=text):
        BatchView(change(bytes(a_batch())))


def test_walking_batches() -> None:
    data = bytes(a_batch(10) + a_batch(13, Codec.ZSTD) + a_batch(16, count=1))
    batches = list(split_batches(data))
    assert [batch.base_offset for batch in batches] == [10, 13, 16]
    assert [batch.position for batch in batches] == [0, 121, 121 + batches[1].size_bytes]
    assert [b.base_offset for b in split_batches(data, batches[1].position)] == [13, 16]
    assert [b.base_offset for b in split_batches(data, 0, batches[2].position)] == [10, 13]
    for cut in (1, 16, 60, batches[2].size_bytes - 1):
        partial = data[: batches[2].position + cut]
        assert len(list(split_batches(partial, allow_partial=True))) == 2
        with pytest.raises(CorruptRecords):
            list(split_batches(partial))
    broken = data[: batches[2].position + 8] + b"\xff" * 8 + b"\x02" + bytes(44)
    with pytest.raises(CorruptRecords, match="length as -1"):
        list(split_batches(broken, allow_partial=True))


RECORD = bytes.fromhex("0e 00 00 00 02 61 00 00".replace(" ", ""))  # length 7: key "a", value ""


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("section", "count", "text"),
    [
        (RECORD, 2, "counts 2 records, but its 8 bytes of records hold at most 1"),
        (RECORD, -1, "counts -1 records"),
        (RECORD + b"\x00", 1, "after the 1 records of the batch 1 bytes are left over"),
        (RECORD[:-1], 1, "gives its length as 7, but 6 bytes are left"),
        (b"\x00" * 8, 1, "record at byte 0 is empty"),
        (b"\x01" * 8, 1, "gives its length as -1"),
        (b"\xff" * 8, 1, "number at byte 0 is longer than 5 bytes"),
        (b"\x0e\x00" + b"\xff" * 6, 1, "number at byte 2 does not end before byte 8"),
        (b"\x18\x00" + b"\xff" * 11, 1, "number at byte 2 is longer than 10 bytes"),
        (b"\x0e\x00\x00\x00\x14a\x00\x00", 1, "field of 10 bytes at byte 5 passes its record"),
        (
            b"\x10\x00\x00\x00\x00\x00\x00\x00\x00",
            1,
            "should end at byte 9, but its fields end at byte 7",
        ),
        (b"\x0e\x00\x00\x00\x00\x00\x01\x00", 1, "counts -1 headers, but only 1 bytes are left"),
        (b"\x0e\x00\x00\x00\x00\x00\x02\x00", 1, "counts 1 headers, but only 1 bytes are left"),
        (b"\x10\x00\x00\x00\x00\x00\x02\x01\x01", 1, "header before byte 8 has no name"),
        (b"\x10\x00\x00\x00\x00\x00\x02\x04\x01", 1, "field of 2 bytes at byte 8 passes its"),
        (b"\x10\x00\x00\x00\x00\x00\x02\x02\x01", 1, "number at byte 9 does not end before byte"),
    ],
)
def test_damaged_records_are_refused(codec: Codec, section: bytes, count: int, text: str) -> None:
    batch = with_section(section, count, codec)
    batch.check_crc()
    with pytest.raises(CorruptRecords, match=text):
        list(batch.records())


def test_as_in_kafka() -> None:
    """Lengths below -1 are null, long varints are read, names that are no UTF-8 are patched up."""
    odd = b"\x1e\x00\x80\x00\x80\x80\x00\x05\x03\x02\x04\xc3\x28\x02\xff"
    record = odd[:-1] + b"\xff"
    section = bytes([2 * (len(record) - 1)]) + record[1:]
    (found,) = with_section(section, 1).records()
    assert found == Record(0, 0, CREATE, None, None, (Header("\ufffd(", b"\xff"),))
    # An emptied batch has no records, whatever follows.
    assert list(with_section(b"garbage", 0).records()) == []


def test_inflating_is_bounded() -> None:
    batch = BatchView(a_batch(codec=Codec.GZIP, count=100))
    size = len(batch.records_section())
    assert len(list(batch.records(max_bytes=size))) == 100
    with pytest.raises(DecompressedTooLarge, match=f"limit of {size - 1} bytes"):
        batch.records(max_bytes=size - 1)


def test_an_unknown_codec_is_refused() -> None:
    data = a_batch()
    data[22] |= 5
    with pytest.raises(UnsupportedCodec, match="codec 5"):
        BatchView(data).records()
