"""Formats v0 and v1: wrappers and their offsets, timestamps, and what is refused."""

import pytest

from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    UnsupportedCodec,
)
from pyspark_klog.records.legacy import LegacyView, encode_message, message_size, split_messages
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Record, TimestampType

NONE, CREATE, APPEND = TimestampType
APPEND_BIT = 8


def wrap(
    magic: int,
    offset: int,
    inner: bytes | None,
    *,
    codec: Codec = Codec.GZIP,
    timestamp_ms: int = 0,
    attributes: int = 0,
) -> LegacyView:
    value = None if inner is None else compress(codec, inner, magic=magic)
    return LegacyView(encode_message(magic, offset, timestamp_ms, None, value, codec | attributes))


def messages(magic: int, offsets: list[int], attributes: int = 0) -> bytes:
    return b"".join(
        encode_message(magic, offset, 100 + offset, b"k", b"%d" % offset, attributes)
        for offset in offsets
    )


@pytest.mark.parametrize(("magic", "size"), [(0, 26 + 3), (1, 34 + 3)])
def test_a_plain_message(magic: int, size: int) -> None:
    data = b"x" + encode_message(magic, 7, 1234, b"k", b"vv")
    view = LegacyView(data, 1)
    view.check_crc()
    assert view.size_bytes == size == message_size(magic, b"k", b"vv")
    assert (view.offset, view.last_offset, view.next_offset) == (7, 7, 8)
    kind, timestamp_ms = (NONE, -1) if magic == 0 else (CREATE, 1234)
    assert (view.timestamp_type, view.timestamp_ms, view.max_timestamp_ms) == (
        kind,
        timestamp_ms,
        timestamp_ms,
    )
    assert list(view.records()) == [Record(7, timestamp_ms, kind, b"k", b"vv")]
    assert view.to_bytes() == data[1:]
    assert (view.is_control, view.partition_leader_epoch) == (False, -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_null_and_empty_differ(magic: int) -> None:
    data = encode_message(magic, 0, 0, None, b"") + encode_message(magic, 1, 0, b"", None)
    first, second = [record for view in split_messages(data) for record in view.records()]
    assert (first.key, first.value) == (None, b"")
    assert (second.key, second.value) == (b"", None)


def test_offsets_in_a_wrapper() -> None:
    absolute = wrap(0, 12, messages(0, [10, 11, 12]))
    assert [record.offset for record in absolute.records()] == [10, 11, 12]
    relative = wrap(1, 112, messages(1, [0, 1, 5]))
    assert [record.offset for record in relative.records()] == [107, 108, 112]
    assert (relative.last_offset, relative.next_offset) == (112, 113)
    # Absolute offsets inside of v1 work out too: the difference is then 0.
    assert [r.offset for r in wrap(1, 12, messages(1, [10, 11, 12])).records()] == [10, 11, 12]
    from_zero = wrap(1, 0, messages(1, [0, 1, 2]))
    assert [record.offset for record in from_zero.records()] == [0, 1, 2]


def test_a_wrapper_decides_about_timestamps() -> None:
    inner = messages(1, [0, 1])
    own = list(wrap(1, 1, inner, timestamp_ms=999).records())
    assert [(r.timestamp_ms, r.timestamp_type) for r in own] == [(100, CREATE), (101, CREATE)]
    appended = wrap(1, 1, inner, timestamp_ms=999, attributes=APPEND_BIT)
    assert [(r.timestamp_ms, r.timestamp_type) for r in appended.records()] == [(999, APPEND)] * 2
    # The timestamp type of the inner messages is ignored.
    typed = wrap(1, 1, messages(1, [0, 1], APPEND_BIT), timestamp_ms=999)
    assert [(r.timestamp_ms, r.timestamp_type) for r in typed.records()] == [
        (100, CREATE),
        (101, CREATE),
    ]
    old = wrap(0, 1, messages(0, [0, 1]), attributes=APPEND_BIT)
    assert {(r.timestamp_ms, r.timestamp_type) for r in old.records()} == {(-1, NONE)}


def test_append_time_without_a_wrapper() -> None:
    view = LegacyView(encode_message(1, 0, 55, None, None, APPEND_BIT))
    assert next(view.records()).timestamp_type is APPEND
    builder = LegacyBuilder(1, 3, Codec.LZ4, APPEND, log_append_time_ms=77)
    builder.append(b"a", b"b", 5)
    wrapper = LegacyView(builder.build())
    assert (wrapper.timestamp_ms, wrapper.timestamp_type, wrapper.codec) == (77, APPEND, Codec.LZ4)
    assert list(wrapper.records()) == [Record(3, 77, APPEND, b"a", b"b")]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_that_are_not_allowed(magic: int) -> None:
    other = 1 - magic
    good = messages(magic, [0, 1])
    nested = wrap(magic, 1, good).to_bytes()
    for view, text in (
        (wrap(magic, 1, None), "has a null value"),
        (wrap(magic, 1, b""), "holds no message"),
        (wrap(magic, 1, nested), "holds another wrapper"),
        (wrap(magic, 1, good + nested), "holds another wrapper"),
        (
            wrap(magic, 1, messages(other, [0, 1])),
            f"format {magic}, but a message in it is of format",
        ),
    ):
        with pytest.raises(InvalidRecords, match=text):
            list(view.records())
    with pytest.raises(CorruptRecords):
        list(wrap(magic, 1, good[:-1]).records())


def test_a_wrapper_offset_below_its_messages_is_refused() -> None:
    with pytest.raises(InvalidRecords, match="has offset 1, less than the relative offset 2"):
        list(wrap(1, 1, messages(1, [0, 1, 2])).records())


def test_a_wrapper_is_bounded() -> None:
    view = wrap(1, 1, messages(1, [0, 1]) + encode_message(1, 2, 0, None, bytes(10_000)))
    with pytest.raises(DecompressedTooLarge, match="the limit of 10000 bytes"):
        list(view.records(max_bytes=10_000))


def test_inner_crcs_are_checked_on_demand() -> None:
    inner = bytearray(messages(1, [0, 1]))
    inner[-1] ^= 1
    view = wrap(1, 1, bytes(inner))
    view.check_crc()
    assert len(list(view.records())) == 2
    with pytest.raises(CorruptRecords, match=r"offset 1\) carries CRC"):
        list(view.records(check_inner_crcs=True))


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_and_unknown_codecs_are_refused(magic: int) -> None:
    for number in (4, 5, 7):
        view = LegacyView(encode_message(magic, 0, 0, None, b"x", number))
        with pytest.raises(UnsupportedCodec):
            view.records()


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_no_message_is_refused(magic: int) -> None:
    data = encode_message(magic, 0, 0, b"key", b"value")
    key_at = 18 + 8 * magic
    huge, negative = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"
    least = (14, 22)[magic]
    for damaged, text in (
        (data[:16], "cut off after 16 bytes"),
        (data[:-1], f"gives its size as {len(data) - 12}, expected {least} to {len(data) - 13}"),
        (data[:8] + huge + data[12:], "gives its size as 2147483647"),
        (data[:8] + negative + data[12:], "gives its size as -1"),
        (data[:8] + bytes([0, 0, 0, least - 1]) + data[12:], f"expected {least} to"),
        (data[:16] + b"\x02" + data[17:], "has magic 2, not 0 or 1"),
        (data[:16] + b"\xff" + data[17:], "has magic -1, not 0 or 1"),
        (data[:key_at] + huge + data[key_at + 4 :], "has a field of 2147483647 bytes"),
        (
            data[:key_at] + b"\0\0\0\x0b" + data[key_at + 4 :],
            "ends before the length of its key or value",
        ),
        (data[:key_at] + negative + data[key_at + 4 :], "has a field of|should end at"),
        (data[: key_at + 7] + negative + data[key_at + 11 :], "should end at byte"),
    ):
        with pytest.raises(CorruptRecords, match=text):
            LegacyView(damaged)


def test_a_wrong_crc_is_named() -> None:
    data = bytearray(encode_message(1, 42, 0, None, b"value"))
    data[-1] ^= 1
    view = LegacyView(data)
    assert not view.is_crc_valid()
    with pytest.raises(CorruptRecords, match=rf"offset 42\) carries CRC {view.crc:#010x}"):
        view.check_crc()
