"""Batches to Arrow columns: decoded and skipped records, cuts, and refused batches."""

import io

import numpy as np
import pyarrow as pa
import pytest

from pyspark_klog.records import record
from pyspark_klog.records.arrow import (
    COLUMN_TYPES,
    ArrowDecoder,
    MalformedTimestamp,
    schema_for,
)
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    RecordsError,
    UnsupportedCodec,
)
from pyspark_klog.records.layout import BASE_TIMESTAMP_AT, INT64
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.records.decoding import decode_to_arrow
from tests.support.records.kernel_cases import ALL_COLUMNS, rows_of

Headers = list[tuple[str, bytes | None]]


def batch(
    base_offset: int,
    values: list[bytes | None],
    *,
    key: bytes | None = b"k",
    headers: Headers | None = None,
    timestamp_ms: int = 1000,
    **options: object,
) -> bytes:
    builder = BatchBuilder(base_offset, **options)  # type: ignore[arg-type]
    for value in values:
        builder.append(key, value, timestamp_ms, headers or [])
    return builder.build()


def values_of(batches: list[pa.RecordBatch]) -> list[bytes | None]:
    return [value for b in batches for value in b.column("value").to_pylist()]


def decode(*buffers: bytes, **options: object) -> list[bytes | None]:
    return values_of(decode_to_arrow(buffers, topic="t", partition=1, **options).batches)  # type: ignore[arg-type]


# --- columns -------------------------------------------------------------------------------------
def test_all_columns_of_a_record() -> None:
    data = batch(7, [b"v"], headers=[("a", b"1"), ("é", None), ("a", b"")], timestamp_ms=1234)
    decoded = decode_to_arrow(data, topic="flights", partition=5, columns=ALL_COLUMNS)
    (rows,) = decoded.batches
    assert rows.schema.equals(schema_for(ALL_COLUMNS))
    assert rows.column("topic").to_pylist() == ["flights"]
    assert rows.column("partition").to_pylist() == [5]
    headers = ((("a", b"1"), ("é", None), ("a", b"")),)
    assert rows_of([rows]) == [(7, 1_234_000, 0, b"k", b"v", *headers)]
    assert decoded.next_offset == 8


def test_columns_come_as_asked_for_and_the_rest_is_not_there() -> None:
    (rows,) = decode_to_arrow(
        batch(0, [b"v"]), topic="t", partition=1, columns=["offset", "topic", "key"]
    ).batches
    assert rows.schema.names == ["offset", "topic", "key"]
    assert rows.to_pylist() == [{"offset": 0, "topic": "t", "key": b"k"}]


@pytest.mark.parametrize("name", COLUMN_TYPES)
def test_each_column_by_itself(name: str) -> None:
    data = batch(0, [b"v", None], headers=[("h", b"x")])
    (rows,) = decode_to_arrow(data, topic="t", partition=1, columns=[name]).batches
    rows.validate(full=True)
    (whole,) = decode_to_arrow(data, topic="t", partition=1, columns=ALL_COLUMNS).batches
    assert rows.column(name).equals(whole.column(name))


@pytest.mark.parametrize("columns", [["offsets"], [], ["key", "key"]])
def test_columns_that_do_not_exist_are_named(columns: list[str]) -> None:
    with pytest.raises(ValueError, match=r"expected some of \['key', 'value', 'topic'"):
        schema_for(columns)


def test_null_is_not_empty() -> None:
    assert decode(batch(0, [None, b"", b"x", None])) == [None, b"", b"x", None]
    (rows,) = decode_to_arrow(batch(0, [b""], key=None), topic="t", partition=1).batches
    assert rows.column("key").to_pylist() == [None]


def test_a_batch_survives_arrows_own_wire_format() -> None:
    data = batch(0, [b"a", None, b"c"], headers=[("h", b"x")])
    decoded = decode_to_arrow(data * 3, topic="t", partition=1, columns=ALL_COLUMNS).batches
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, decoded[0].schema) as writer:
        for rows in decoded:
            writer.write_batch(rows)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        assert rows_of(list(reader)) == rows_of(decoded)


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_and_many_small_batches(codec: Codec) -> None:
    data = b"".join(batch(3 * i, [b"%d" % i] * 3, codec=codec) for i in range(50))
    decoded = decode_to_arrow(data, topic="t", partition=1)
    assert len(decoded.batches) == 1
    assert values_of(decoded.batches) == [b"%d" % i for i in range(50) for _ in range(3)]
    assert decoded.batches[0].column("offset").to_pylist() == list(range(150))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(kind: type) -> None:
    assert decode(kind(batch(0, [b"v"]))) == [b"v"]


# --- timestamps ----------------------------------------------------------------------------------
def test_log_append_time_is_every_records() -> None:
    data = batch(
        *(0, [b"a", b"b"]),
        timestamp_type=record.TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=777,
    )
    (rows,) = decode_to_arrow(data, topic="t", partition=1).batches
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [777_000] * 2
    assert rows.column("timestampType").to_pylist() == [1, 1]


@pytest.mark.parametrize("ms", [2**63 // 1000 + 1, -(2**63) // 1000 - 1, 2**63 - 1])
def test_a_timestamp_that_microseconds_cannot_hold(ms: int) -> None:
    data = bytearray(batch(41, [b"v"]))
    INT64.pack_into(data, BASE_TIMESTAMP_AT, ms)
    BatchView(data).update_crc()
    expected = "t-1, record 0 of 1 in the batch at offset 41: KAFKA_MALFORMED_RECORD_TIMESTAMP"
    with pytest.raises(MalformedTimestamp, match=expected):
        decode(bytes(data))
    (rows,) = decode_to_arrow(data, topic="t", partition=1, columns=["value"]).batches
    assert rows.num_rows == 1


@pytest.mark.parametrize("ms", [(2**63 - 1) // 1000, -((2**63 - 1) // 1000), -1])
def test_the_outermost_timestamps(ms: int) -> None:
    data = bytearray(batch(0, [b"v"]))
    INT64.pack_into(data, BASE_TIMESTAMP_AT, ms)
    BatchView(data).update_crc()
    (rows,) = decode_to_arrow(data, topic="t", partition=1).batches
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [ms * 1000]


# --- offsets -------------------------------------------------------------------------------------
def test_records_outside_the_range_are_left_out() -> None:
    data = batch(0, [b"0", b"1", b"2"]) + batch(3, [b"3", b"4", b"5"]) + batch(6, [b"6"])
    decoder = ArrowDecoder(topic="t", partition=1, start_offset=1, end_offset=5)
    assert list(decoder.decode(data)) == []
    rest = decoder.flush()
    assert rest is not None
    assert values_of([rest]) == [b"1", b"2", b"3", b"4"]
    assert decoder.is_done
    assert decoder.flush() is None


def test_the_end_inside_a_batch_and_the_next_offset_behind_it() -> None:
    data = batch(0, [b"0", b"1", b"2"])
    decoder = ArrowDecoder(topic="t", partition=1, end_offset=4)
    list(decoder.decode(data))
    assert (decoder.next_offset, decoder.is_done) == (3, False)
    list(decoder.decode(batch(3, [b"3", b"4"])))
    assert (decoder.next_offset, decoder.is_done) == (5, True)
    rest = decoder.flush()
    assert rest is not None
    assert values_of([rest]) == [b"0", b"1", b"2", b"3"]


def test_what_lies_behind_the_end_is_not_even_looked_at() -> None:
    # More than one scan, so that the damage is in a part that need not be read.
    good = batch(0, [bytes(2 << 20)])
    assert len(decode(good + b"garbage" * 20, end_offset=1)) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_comes_again_is_left_out(codec: Codec) -> None:
    first, second = batch(0, [b"0", b"1"], codec=codec), batch(2, [b"2", b"3"], codec=codec)
    wider = batch(1, [b"1'", b"2'", b"3'", b"4"], codec=codec)
    assert decode(first + second + first + wider) == [b"0", b"1", b"2", b"3", b"4"]
    assert decode(first + second, first, wider) == [b"0", b"1", b"2", b"3", b"4"]


def test_old_messages_that_come_again_are_left_out() -> None:
    builders = [LegacyBuilder(1, base) for base in (0, 1)]
    for builder in builders:
        for value in (b"a", b"b"):
            builder.append(None, value, 1)
    first, second = (builder.build() for builder in builders)
    assert decode(first + second) == [b"a", b"b", b"b"]


def test_skipping_ahead() -> None:
    decoder = ArrowDecoder(topic="t", partition=1)
    decoder.skip_to(1)
    data = batch(0, [b"0", b"1"]) + batch(2, [b"2", b"3"])
    batches = list(decoder.decode(data[:-1]))
    decoder.skip_to(3)
    batches += decoder.decode(data)
    rest = decoder.flush()
    assert rest is not None
    assert values_of([*batches, rest]) == [b"1", b"3"]


def test_gaps_between_and_inside_batches() -> None:
    builder = BatchBuilder(10)
    builder.append(None, b"a", 0, offset=12)
    builder.append(None, b"b", 0, offset=19)
    decoded = decode_to_arrow(builder.build() + batch(40, [b"c"]), topic="t", partition=1)
    (rows,) = decoded.batches
    assert rows.column("offset").to_pylist() == [12, 19, 40]
    assert decoded.next_offset == 41


def test_an_empty_batch_moves_the_next_offset_on() -> None:
    # The cleaner keeps such empty batches, because they hold a producer's last sequence.
    data = bytearray(batch(5, [b"v", b"w"]))
    empty = data[:61]
    empty[8:12] = (49).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    BatchView(empty).update_crc()
    decoded = decode_to_arrow(empty, topic="t", partition=1)
    assert (decoded.batches, decoded.next_offset) == ([], 7)


# --- transactions --------------------------------------------------------------------------------
def transactional(offset: int, value: bytes, producer_id: int) -> bytes:
    return batch(offset, [value], producer_id=producer_id, is_transactional=True)


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return end_transaction_batch(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=offset,
    )


TRANSACTIONS = b"".join(
    [
        transactional(0, b"first of 1, aborted", 1),
        transactional(1, b"of 2, committed", 2),
        batch(2, [b"no transaction"], producer_id=1),
        marker(3, 1, ControlType.ABORT),
        transactional(4, b"second of 1, committed", 1),
        marker(5, 2, ControlType.COMMIT),
        marker(6, 1, ControlType.COMMIT),
        transactional(7, b"third of 1, aborted", 1),
        marker(8, 1, ControlType.ABORT),
    ]
)


def test_control_records_are_never_shown() -> None:
    assert len(decode(TRANSACTIONS)) == 5
    assert decode_to_arrow(TRANSACTIONS, topic="t", partition=1).next_offset == 9


@pytest.mark.parametrize("order", [[(1, 0), (1, 7)], [(1, 7), (1, 0)]])
def test_aborted_transactions_are_left_out(order: list[tuple[int, int]]) -> None:
    assert decode(TRANSACTIONS, aborted=order) == [
        b"of 2, committed",
        b"no transaction",
        b"second of 1, committed",
    ]


def test_an_aborted_transaction_without_its_marker_reaches_to_the_end() -> None:
    data = transactional(0, b"a", 1) + transactional(1, b"b", 2) + transactional(2, b"c", 1)
    assert decode(data, aborted=[(1, 0)]) == [b"b"]
    assert decode(data, aborted=[(1, 1)]) == [b"a", b"b"]


def test_a_reply_of_aborted_records_only_moves_on() -> None:
    data = transactional(0, b"a", 1) + marker(1, 1, ControlType.ABORT)
    decoded = decode_to_arrow(data, topic="t", partition=1, aborted=[(1, 0)])
    assert (decoded.batches, decoded.next_offset) == ([], 2)


# --- sizes ---------------------------------------------------------------------------------------
def test_batches_of_bounded_rows() -> None:
    data = b"".join(batch(10 * i, [b"%d" % i] * 10) for i in range(10))
    decoded = decode_to_arrow(data, topic="t", partition=1, max_rows=33)
    assert [rows.num_rows for rows in decoded.batches] == [33, 33, 33, 1]
    assert values_of(decoded.batches) == [b"%d" % i for i in range(10) for _ in range(10)]
    assert [o for rows in decoded.batches for o in rows.column("offset").to_pylist()] == list(
        range(100)
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_batches_of_bounded_bytes_and_one_large_record_by_itself(codec: Codec) -> None:
    values = [b"a" * 400, b"b" * 400, b"c" * 400, b"D" * 5000, b"e", b"f"]
    data = batch(0, list(values), codec=codec)
    decoded = decode_to_arrow(data, topic="t", partition=1, target_bytes=1000, columns=ALL_COLUMNS)
    assert values_of(decoded.batches) == values
    assert [rows.num_rows for rows in decoded.batches] == [2, 1, 3]
    for rows in decoded.batches:
        rows.validate(full=True)


def test_headers_larger_than_a_batch_of_rows() -> None:
    many: Headers = [(f"name-{i}", b"x" * (i % 7)) for i in range(300)]
    data = batch(0, [b"1"], headers=many) + batch(1, [b"2"], headers=[("one", None)] * 3)
    decoded = decode_to_arrow(data, topic="t", partition=1, target_bytes=500, columns=ALL_COLUMNS)
    rows = rows_of(decoded.batches)
    assert rows[0][5] == tuple(many)
    assert rows[1][5] == (("one", None),) * 3


def test_columns_fill_up_over_several_buffers() -> None:
    decoder = ArrowDecoder(topic="t", partition=1, max_rows=5)
    shown = [rows.num_rows for i in range(4) for rows in decoder.decode(batch(3 * i, [b"v"] * 3))]
    rest = decoder.flush()
    assert shown == [5, 5]
    assert rest is not None
    assert rest.column("offset").to_pylist() == [10, 11]


@pytest.mark.parametrize("options", [{"max_rows": 0}, {"target_bytes": 0}, {"target_bytes": 2**31}])
def test_sizes_out_of_bounds(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 1 to 2147483647 bytes"):
        ArrowDecoder(topic="t", partition=1, **options)  # type: ignore[arg-type]


def test_memory_that_is_not_used_is_given_back() -> None:
    before = pa.total_allocated_bytes()
    kept = [decode_to_arrow(batch(0, [b"v"]), topic="t", partition=1) for _ in range(20)]
    assert len(kept) == 20
    assert pa.total_allocated_bytes() - before < 20 * 10_000


# --- older formats -------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_formats_in_any_mix_keep_their_order(codec: Codec) -> None:
    v0 = LegacyBuilder(0, 0, codec)
    v0.append(None, b"0", -1)
    v0.append(b"k", None, -1)
    v1 = LegacyBuilder(1, 2, codec)
    v1.append(b"k", b"2", 5)
    v1.append(b"k", b"3", 6)
    data = v0.build() + v1.build() + batch(4, [b"4"]) + v1.build()
    data = data[: -len(v1.build())]
    decoded = decode_to_arrow(data, topic="t", partition=1, columns=ALL_COLUMNS)
    assert rows_of(decoded.batches) == [
        (0, -1000, -1, None, b"0", ()),
        (1, -1000, -1, b"k", None, ()),
        (2, 5000, 0, b"k", b"2", ()),
        (3, 6000, 0, b"k", b"3", ()),
        (4, 1_000_000, 0, b"k", b"4", ()),
    ]
    assert decoded.next_offset == 5


def test_a_wrapper_is_cut_to_the_range_by_its_inner_offsets() -> None:
    wrapper = LegacyBuilder(1, 10, Codec.GZIP)
    for i in range(10):
        wrapper.append(None, b"%d" % i, 5)
    shown = decode(wrapper.build(), start_offset=12, end_offset=15)
    assert shown == [b"2", b"3", b"4"]


def test_old_messages_are_gathered_into_bounded_batches() -> None:
    builder = LegacyBuilder(1)
    for _ in range(25):
        builder.append(b"key", b"v" * 97, 5)
    by_rows = decode_to_arrow(builder.build(), topic="t", partition=1, max_rows=10)
    assert [rows.num_rows for rows in by_rows.batches] == [10, 10, 5]
    by_bytes = decode_to_arrow(builder.build(), topic="t", partition=1, target_bytes=1000)
    assert [rows.num_rows for rows in by_bytes.batches] == [10, 10, 5]


def test_an_old_timestamp_that_microseconds_cannot_hold() -> None:
    builder = LegacyBuilder(1, 3)
    builder.append(None, b"v", 2**62)
    with pytest.raises(MalformedTimestamp, match="t-1, offset 3: KAFKA_MALFORMED_RECORD_TIMESTAMP"):
        decode(builder.build())


# --- damage --------------------------------------------------------------------------------------
def test_a_batch_cut_off_at_the_end_is_reported_and_read_next_time() -> None:
    first, second = batch(0, [b"a"]), batch(1, [b"b"])
    decoder = ArrowDecoder(topic="t", partition=1)
    list(decoder.decode(first + second[:30]))
    assert (decoder.cut_off_bytes, decoder.next_offset) == (30, 1)
    list(decoder.decode(second))
    assert (decoder.cut_off_bytes, decoder.next_offset) == (0, 2)
    rest = decoder.flush()
    assert rest is not None
    assert values_of([rest]) == [b"a", b"b"]


def test_nothing_at_all() -> None:
    assert decode_to_arrow(b"", topic="t", partition=1) == ([], 0, 0)
    assert decode_to_arrow([], topic="t", partition=1, start_offset=7) == ([], 7, 0)


def test_a_wrong_crc_names_the_batch_and_both_numbers() -> None:
    good, bad = batch(0, [b"a"]), bytearray(batch(9, [b"b"]))
    bad[-2] ^= 1
    damaged = good + bytes(bad)
    view = BatchView(bad)
    with pytest.raises(CorruptRecords) as caught:
        decode(damaged)
    assert str(caught.value) == (
        f"t-1, batch at byte {len(good)}, offset 9: it carries CRC {view.crc:#010x}, "
        f"its bytes give {view.compute_crc():#010x}"
    )
    assert len(decode(damaged, check_crc=False)) == 2


def test_what_came_before_the_damage_is_still_there() -> None:
    decoder = ArrowDecoder(topic="t", partition=1)
    damaged = bytearray(batch(1, [b"b"]))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords):
        list(decoder.decode(batch(0, [b"a"]) + damaged))
    rest = decoder.flush()
    assert decoder.next_offset == 1
    assert rest is not None
    assert values_of([rest]) == [b"a"]


def test_a_damaged_record_is_named() -> None:
    data = bytearray(batch(3, [b"a", b"b"]))
    data[-3] = 0x7E  # the length of the second record's value
    expected = (
        "t-1, record 1 of 2 in the batch at offset 3: the value's length passes the record's end"
    )
    with pytest.raises(CorruptRecords, match=expected):
        decode(bytes(data), check_crc=False)


def test_a_count_that_does_not_fit_takes_no_memory() -> None:
    data = bytearray(batch(3, [b"a"]))
    data[57:61] = b"\x7f\xff\xff\xff"
    with pytest.raises(CorruptRecords, match="the record count does not fit the length"):
        decode(bytes(data), check_crc=False)


def test_a_bomb_is_refused_and_the_limit_named() -> None:
    data = batch(0, [bytes(100_000)], codec=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge, match="limit of 50000 bytes"):
        decode(data, max_decompressed_bytes=50_000)


def test_an_unknown_codec() -> None:
    data = bytearray(batch(0, [b"v"]))
    data[22] |= 5
    BatchView(data).update_crc()
    with pytest.raises(UnsupportedCodec, match="codec 5 is unknown"):
        decode(bytes(data))


def test_a_header_key_that_is_no_utf8_gets_the_replacement_character() -> None:
    data = bytearray(batch(0, [b"v", b"w"], headers=[("abc", b"x"), ("ok", None)]))
    data[data.index(b"abc") + 1] = 0xFF
    decoded = decode_to_arrow(
        data, topic="t", partition=1, columns=ALL_COLUMNS, check_crc=False
    ).batches
    assert [row[5] for row in rows_of(decoded)] == [
        (("a\ufffdc", b"x"), ("ok", None)),
        (("abc", b"x"), ("ok", None)),
    ]


def test_every_prefix_is_read_or_refused_with_a_records_error() -> None:
    data = batch(0, [b"a", b"b"], headers=[("h", b"x")])
    for end in range(len(data)):
        decoded = decode_to_arrow(data[:end], topic="t", partition=1)
        assert (decoded.batches, decoded.cut_off_bytes) == ([], end)
    for at in range(61, len(data)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] = byte
            try:
                decoded = decode_to_arrow(
                    changed, topic="t", partition=1, columns=ALL_COLUMNS, check_crc=False
                )
            except RecordsError:
                continue
            rows_of(decoded.batches)


def test_numbers_of_arrow_columns_are_not_shared_between_batches() -> None:
    data = b"".join(batch(2 * i, [b"a%d" % i, b"b"]) for i in range(6))
    decoded = decode_to_arrow(data, topic="t", partition=1, max_rows=4)
    copies = [np.array(rows.column("offset")) for rows in decoded.batches]
    assert np.concatenate(copies).tolist() == list(range(12))
    assert [len(set(rows.column("topic").to_pylist())) for rows in decoded.batches] == [1, 1, 1]
