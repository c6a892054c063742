"""Rows of entries in any mix of formats."""

import pytest

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.errors import CorruptRecords, DecompressedTooLarge
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record_sets import EntryHead, entries, entry_at, read_entry_head
from tests.support.records.record_sets import iterate


def make(magic: int, base_offset: int, codec: Codec = Codec.NONE) -> bytes:
    builder: BatchBuilder | LegacyBuilder = (
        BatchBuilder(base_offset, codec) if magic == 2 else LegacyBuilder(magic, base_offset, codec)
    )
    for _ in range(2):
        builder.append(b"k", b"v", 5)
    return builder.build()


MARKER = end_transaction_batch(
    EndTransactionMarker(ControlType.ABORT, 1),
    producer_id=1,
    producer_epoch=1,
    timestamp_ms=1,
    base_offset=6,
)
MIXED = make(0, 0, Codec.GZIP) + make(1, 2) + make(2, 4, Codec.ZSTD) + MARKER + make(2, 7)


def test_one_look_for_all_formats() -> None:
    heads = []
    position = 0
    while position < len(MIXED):
        head = read_entry_head(MIXED, position)
        heads.append((head.offset, head.magic))
        position += head.size_bytes
    assert position == len(MIXED)
    assert heads == [(1, 0), (2, 1), (3, 1), (4, 2), (6, 2), (7, 2)]
    # 17 bytes are enough.
    assert read_entry_head(MARKER[:17]) == EntryHead(6, len(MARKER), 2)


def test_views_of_each_format() -> None:
    kinds = [type(entry) for entry in entries(MIXED)]
    assert kinds == [LegacyView] * 3 + [BatchView] * 3
    assert isinstance(entry_at(MARKER), BatchView)
    assert [entry.next_offset for entry in entries(MIXED)] == [2, 3, 4, 6, 7, 9]


def test_records_of_all_entries() -> None:
    assert [record.offset for record in iterate(MIXED)] == [0, 1, 2, 3, 4, 5, 7, 8]
    with_control = iterate(MIXED, include_control=True)
    assert [record.offset for record in with_control] == list(range(9))
    start = read_entry_head(MIXED).size_bytes
    end = start + 2 * read_entry_head(MIXED, start).size_bytes
    assert [record.offset for record in iterate(MIXED, start, end)] == [2, 3]
    assert list(iterate(b"")) == []


def test_an_end_that_is_cut_off() -> None:
    last = len(make(2, 7))
    for missing in range(1, last):
        partial = MIXED[:-missing]
        kept = [record.offset for record in iterate(partial, allow_partial=True)]
        assert kept == [0, 1, 2, 3, 4, 5]
        with pytest.raises(CorruptRecords):
            list(iterate(partial))


def test_crcs_are_checked_by_default() -> None:
    for magic in (0, 1, 2):
        data = bytearray(make(magic, 0))
        data[-8 if magic == 2 else -1] ^= 1  # the last record's key or value
        with pytest.raises(CorruptRecords, match="CRC"):
            list(iterate(data))
        assert len(list(iterate(data, check_crc=False))) == 2


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_inflating_is_bounded(magic: int) -> None:
    with pytest.raises(DecompressedTooLarge, match="limit of 3 bytes"):
        list(iterate(make(magic, 0, Codec.SNAPPY), max_bytes=3))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (bytes(16), "cut off after 16 bytes"),
        (bytes(8) + b"\0\0\0\x0d" + bytes(4) + b"\x00", "size as 13, the least is 14"),
        (bytes(8) + b"\0\0\0\x15" + bytes(4) + b"\x01", "size as 21, the least is 22"),
        (bytes(8) + b"\0\0\0\x30" + bytes(4) + b"\x02", "size as 48, the least is 49"),
        (bytes(8) + b"\xff\xff\xff\xff" + bytes(4) + b"\x02", "size as -1, the least is 49"),
        (bytes(8) + b"\0\0\0\x60" + bytes(4) + b"\x03", "magic 3, known are 0 to 2"),
        (bytes(8) + b"\0\0\0\x60" + bytes(4) + b"\xff", "magic -1, known are 0 to 2"),
    ],
)
def test_what_is_no_entry_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(CorruptRecords, match=text):
        read_entry_head(data)
    with pytest.raises(CorruptRecords):
        list(entries(data + bytes(100)))
