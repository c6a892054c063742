"""Records that the builders refuse; a refusal leaves the builder as it was."""

from collections.abc import Callable

import pytest

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder, plain_batch
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import BatchTooLarge, InvalidRecords, UnsupportedCodec
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import TimestampType
from tests.support.records.record_sets import iterate

Builder = BatchBuilder | LegacyBuilder
MAKERS: list[Callable[..., Builder]] = [
    BatchBuilder,
    lambda **settings: LegacyBuilder(0, **settings),
    lambda **settings: LegacyBuilder(1, **settings),
]
every_builder = pytest.mark.parametrize("make", MAKERS, ids=["v2", "v0", "v1"])


@every_builder
def test_the_size_is_known_before_building(make: Callable[..., Builder]) -> None:
    builder = make(base_offset=5)
    for size in (0, 1, 63, 64, 8191, 8192):
        builder.append(b"k" * size, None, 10_000 - size)
        builder.append(None, b"v" * size, 10_000 + size)
        assert len(builder.build()) == builder.size_bytes
    assert builder.record_count == 12
    assert builder.next_offset == 17


@every_builder
def test_a_full_builder_refuses_and_stays_as_it_was(make: Callable[..., Builder]) -> None:
    builder = make(base_offset=0, max_bytes=200)
    builder.append(b"key", b"value", 1)
    size, data = builder.size_bytes, builder.build()
    with pytest.raises(BatchTooLarge, match="the limit is 200"):
        builder.append(None, bytes(200), 10**6)
    assert (builder.size_bytes, builder.record_count, builder.next_offset) == (size, 1, 1)
    assert builder.build() == data
    builder.append(None, b"small", 2)
    assert [record.value for record in iterate(builder.build())] == [b"value", b"small"]


def test_the_remaining_space_is_exact() -> None:
    builder = BatchBuilder(max_bytes=100)
    value = b"v" * 20
    while builder.has_room_for(b"k", value, 5, [("h", b"x")]):
        builder.append(b"k", value, 5, [("h", b"x")])
    with pytest.raises(BatchTooLarge):
        builder.append(b"k", value, 5, [("h", b"x")])
    assert builder.record_count == 1
    # 61 + 32 bytes; a record of null and null takes 7 more.
    assert builder.size_bytes == 93
    assert builder.has_room_for(None, None, 5)
    builder.append(None, None, 5)
    assert not builder.has_room_for(None, None, 5)


@every_builder
def test_offsets_must_rise(make: Callable[..., Builder]) -> None:
    builder = make(base_offset=10)
    with pytest.raises(InvalidRecords, match="offsets rise"):
        builder.append(None, b"", 1, offset=9)
    builder.append(None, b"", 1, offset=12)
    for offset in (11, 12, 2**63):
        with pytest.raises(InvalidRecords, match="offsets rise"):
            builder.append(None, b"", 1, offset=offset)
    assert builder.append(None, b"", 1) == 13
    assert [record.offset for record in iterate(builder.build())] == [12, 13]


def test_a_batch_spans_at_most_2_31_offsets() -> None:
    builder = BatchBuilder(10)
    builder.append(None, b"", 1)
    with pytest.raises(InvalidRecords, match="at most 2147483647 above the base offset"):
        builder.append(None, b"", 1, offset=10 + 2**31)
    builder.append(None, b"", 1, offset=9 + 2**31)
    assert BatchView(builder.build()).last_offset_delta == 2**31 - 1


@every_builder
def test_timestamps(make: Callable[..., Builder]) -> None:
    builder = make()
    for timestamp_ms in (-2, 2**63):
        with pytest.raises(InvalidRecords, match="expected -1"):
            builder.append(None, b"", timestamp_ms)
    extremes = [-1, 2**63 - 1, 0]
    for timestamp_ms in extremes:
        builder.append(None, b"", timestamp_ms)
    found = [record.timestamp_ms for record in iterate(builder.build())]
    has_none = isinstance(builder, LegacyBuilder) and builder.magic == 0
    assert found == ([-1] * 3 if has_none else extremes)


@every_builder
def test_an_empty_builder_builds_nothing(make: Callable[..., Builder]) -> None:
    with pytest.raises(InvalidRecords, match="needs at least one record"):
        make().build()


@every_builder
def test_append_time_and_its_type_go_together(make: Callable[..., Builder]) -> None:
    with pytest.raises(ValueError, match="log_append_time_ms must be set with LOG_APPEND_TIME"):
        make(timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(ValueError, match="log_append_time_ms must be set with LOG_APPEND_TIME"):
        make(log_append_time_ms=1)


def test_v2_always_has_a_timestamp_type() -> None:
    with pytest.raises(ValueError, match="has a timestamp type"):
        BatchBuilder(timestamp_type=TimestampType.NO_TIMESTAMP)


def test_the_old_formats_are_0_and_1_and_have_no_zstd() -> None:
    with pytest.raises(ValueError, match="magic 2"):
        LegacyBuilder(2)
    with pytest.raises(UnsupportedCodec):
        LegacyBuilder(1, codec=Codec.ZSTD)


def test_one_may_go_on_after_building() -> None:
    builder = BatchBuilder(codec=Codec.GZIP, compression_level=9)
    builder.append(b"a", None, 1)
    first = builder.build()
    builder.append(b"b", None, 2)
    assert [r.key for r in iterate(first)] == [b"a"]
    assert [r.key for r in iterate(builder.build())] == [b"a", b"b"]
    assert BatchView(builder.build()).max_timestamp_ms == 2


def test_a_plain_batch_needs_a_record() -> None:
    with pytest.raises(InvalidRecords, match="needs at least one record"):
        plain_batch([], 0)


def test_a_plain_batch_numbers_many_records() -> None:
    batch = plain_batch([(b"k", None)] * 9_000, 5)
    assert [record.offset for record in iterate(bytes(batch))] == list(range(9_000))
