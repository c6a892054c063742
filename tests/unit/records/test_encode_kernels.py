"""Arrow columns to batches: partitions, splitting, headers, sequences, what is left out."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_klog.records.arrow import (
    COLUMN_TYPES,
    EncodedBatch,
    EncodedRows,
    RowProblem,
    encode_from_arrow,
)
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.records.record import Record

NOW_MS = 1_700_000_000_000


def encode(value: Any, **options: Any) -> EncodedRows:
    column = value if isinstance(value, pa.Array) else pa.array(value, pa.binary())
    settings: dict[str, Any] = {
        "partition_count": 1,
        "now_ms": NOW_MS,
        "max_batch_bytes": 1_000_000,
        **options,
    }
    return encode_from_arrow(column, **settings)


def records(batch: EncodedBatch) -> list[Record]:
    view = BatchView(batch.payload)
    view.check_crc()
    assert view.size_bytes == len(batch.payload)
    assert (view.record_count, view.last_offset_delta) == (batch.record_count,) * 1 + (
        batch.record_count - 1,
    )
    assert view.max_timestamp_ms == batch.max_timestamp_ms
    assert view.base_timestamp_ms == batch.base_timestamp_ms
    assert (view.base_offset, view.partition_leader_epoch) == (0, -1)
    return list(view.records())


def values(encoded: EncodedRows) -> list[bytes | None]:
    return [record.value for batch in encoded.batches for record in records(batch)]


def headers_column(rows: list[Any]) -> pa.Array:
    lists = [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in rows
    ]
    return pa.array(lists, COLUMN_TYPES["headers"])


# --- bytes ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_byte_for_byte_the_builders(codec: Codec) -> None:
    rows = [(b"k", b"v" * 100, 5), (None, None, 3), (b"", b"", 900), (b"x" * 70, b"y", 70)]
    builder = BatchBuilder(0, codec, producer_id=9, producer_epoch=3, base_sequence=44)
    headers = [[("h", b"1"), ("é", None)], [], [("", b"")], []]
    for (key, value, ms), own in zip(rows, headers, strict=True):
        builder.append(key, value, NOW_MS + ms, own)
    encoded = encode(
        [row[1] for row in rows],
        key=pa.array([row[0] for row in rows], pa.binary()),
        headers=headers_column(headers),
        timestamp=pa.array([(NOW_MS + row[2]) for row in rows], pa.timestamp("ms")),
        partition=pa.array([0] * 4, pa.int32()),
        codec=codec,
        producer_id=9,
        producer_epoch=3,
        next_sequences=np.array([44], np.int64),
    )
    assert [bytes(batch.payload) for batch in encoded.batches] == [builder.build()]


def test_no_rows_are_no_batches() -> None:
    assert encode([]) == EncodedRows([], [], 0)


def test_the_producer_can_be_set_later() -> None:
    (batch,) = encode([b"a", b"b"]).batches
    BatchView(batch.payload).set_producer_state(5, 2, 77, is_transactional=True)
    view = BatchView(batch.payload)
    assert view.is_crc_valid()
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (5, 2, 77)
    assert view.is_transactional


def test_the_transactional_bit() -> None:
    for codec in (Codec.NONE, Codec.LZ4):
        (batch,) = encode([b"a"], is_transactional=True, codec=codec).batches
        assert BatchView(batch.payload).is_transactional
        assert BatchView(batch.payload).codec is codec


def test_a_level_is_passed_on() -> None:
    rows = [b"%d" % i * 20 for i in range(200)]
    sizes = [
        sum(len(b.payload) for b in encode(rows, codec=Codec.ZSTD, level=level).batches)
        for level in (-50, 19)
    ]
    assert sizes[1] < sizes[0]


# --- partitions ----------------------------------------------------------------------------------
def test_keys_go_where_every_kafka_client_sends_them_and_keep_their_order() -> None:
    keys = [b"key-%d" % (i % 37) for i in range(500)]
    encoded = encode(
        [b"%d" % i for i in range(500)],
        key=pa.array(keys, pa.binary()),
        partition_count=7,
        max_batch_bytes=700,
    )
    seen: dict[int, list[int]] = {}
    for batch in encoded.batches:
        for row, record in zip(batch.rows.tolist(), records(batch), strict=True):
            assert record.value == b"%d" % row
            assert partition_for_key(keys[row], 7) == batch.partition
        seen.setdefault(batch.partition, []).extend(batch.rows.tolist())
    assert all(rows == sorted(rows) for rows in seen.values())
    assert sorted(itertools.chain(*seen.values())) == list(range(500))
    assert [b.partition for b in encoded.batches] == sorted(b.partition for b in encoded.batches)
    assert encoded.unkeyed_count == 0


def test_rows_without_a_key_go_to_the_sticky_partition() -> None:
    keys = pa.array([None, b"21", None, b""], pa.binary())
    encoded = encode([b"0", b"1", b"2", b"3"], key=keys, partition_count=5, sticky_partition=4)
    where = {row: b.partition for b in encoded.batches for row in b.rows.tolist()}
    assert (where[0], where[2]) == (4, 4)
    assert where[1] == partition_for_key(b"21", 5)
    assert where[3] == partition_for_key(b"", 5)
    assert encoded.unkeyed_count == 2
    assert encode([b"a"], partition_count=5, sticky_partition=3).batches[0].partition == 3


def test_a_given_partition_comes_before_the_key_and_null_is_none_given() -> None:
    encoded = encode(
        [b"0", b"1", b"2", b"3", b"4"],
        key=pa.array([b"21", b"21", None, b"21", b"21"], pa.binary()),
        partition=pa.array([2, None, None, 3, -1], pa.int64()),
        partition_count=3,
        sticky_partition=1,
    )
    where = {row: b.partition for b in encoded.batches for row in b.rows.tolist()}
    assert where == {0: 2, 1: partition_for_key(b"21", 3), 2: 1}
    assert encoded.rejected == [(3, RowProblem.BAD_PARTITION), (4, RowProblem.BAD_PARTITION)]


@pytest.mark.parametrize(("sticky", "count"), [(0, 0), (-1, 3), (3, 3)])
def test_partitions_that_cannot_be(sticky: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"sticky partition {sticky} of {count}"):
        encode([b"a"], sticky_partition=sticky, partition_count=count)


# --- sizes ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_batches_are_split_before_they_pass_the_limit(codec: Codec) -> None:
    rows = [bytes([i]) * (i * 7 % 90) for i in range(200)]
    encoded = encode(rows, max_batch_bytes=500, codec=codec)
    assert values(encoded) == rows
    for batch in encoded.batches:
        assert len(BatchView(batch.payload).records_section()) <= 500 - 61
    builder = BatchBuilder(max_bytes=500)
    fits = 0
    while builder.has_room_for(None, rows[fits], NOW_MS):
        builder.append(None, rows[fits], NOW_MS)
        fits += 1
    assert encoded.batches[0].record_count == fits


def test_a_row_larger_than_a_batch_is_left_out_and_named() -> None:
    exact = 500 - 61 - 2 - 6 - 1  # length, the six small fields but one, a value length of 2
    rows = [b"a", b"x" * (exact + 1), b"b", b"y" * exact, b"z" * 5000]
    encoded = encode(rows, max_batch_bytes=500)
    assert values(encoded) == [b"a", b"b", b"y" * exact]
    assert encoded.rejected == [(1, RowProblem.TOO_LARGE), (4, RowProblem.TOO_LARGE)]
    assert [b.rows.tolist() for b in encoded.batches] == [[0, 2], [3]]
    assert len(encoded.batches[1].payload) == 500


@pytest.mark.parametrize("limit", [61, 0, -1, 2**31])
def test_limits_that_cannot_be(limit: int) -> None:
    with pytest.raises(ValueError, match=f"max_batch_bytes is {limit}, expected more than 61"):
        encode([b"a"], max_batch_bytes=limit)


# --- sequences -----------------------------------------------------------------------------------
def test_sequences_count_records_by_partition_and_wrap() -> None:
    sequences = np.array([10, 2**31 - 2], np.int64)
    encoded = encode(
        [b"v" * 100] * 9,
        partition=pa.array([0, 1, 1, 1, 0, 1, 1, 1, 0], pa.int32()),
        partition_count=2,
        max_batch_bytes=400,
        next_sequences=sequences,
        producer_id=1,
        producer_epoch=0,
    )
    found = [(b.partition, b.record_count, b.base_sequence) for b in encoded.batches]
    assert found == [(0, 3, 10), (1, 3, 2**31 - 2), (1, 3, 1)]
    assert [BatchView(b.payload).base_sequence for b in encoded.batches] == [10, 2**31 - 2, 1]
    assert sequences.tolist() == [13, 4]


def test_without_sequences_there_is_none() -> None:
    (batch,) = encode([b"a"]).batches
    view = BatchView(batch.payload)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (-1, -1, -1)
    assert batch.base_sequence == -1


# --- timestamps ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("unit", "number", "expected_ms"),
    [("s", 5, 5000), ("ms", 5, 5), ("us", 5999, 5), ("ns", 5_999_999, 5)],
)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_of_any_unit(unit: str, number: int, expected_ms: int, zone: str | None) -> None:
    column = pa.array([number, None], pa.timestamp(unit, zone))
    (batch,) = encode([b"a", b"b"], timestamp=column).batches
    assert [record.timestamp_ms for record in records(batch)] == [expected_ms, NOW_MS]
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (expected_ms, NOW_MS)


def test_timestamps_that_go_back() -> None:
    column = pa.array([500, 100, 900, 0], pa.timestamp("ms"))
    (batch,) = encode([b"a"] * 4, timestamp=column).batches
    assert [record.timestamp_ms for record in records(batch)] == [500, 100, 900, 0]


def test_a_timestamp_before_1970_is_left_out_as_kafkas_producer_does() -> None:
    column = pa.array([-1, 5], pa.timestamp("us"))
    encoded = encode([b"a", b"b"], timestamp=column)
    assert values(encoded) == [b"b"]
    assert encoded.rejected == [(0, RowProblem.NEGATIVE_TIMESTAMP)]


def test_a_timestamp_too_far_away() -> None:
    with pytest.raises(InvalidRecords, match="column timestamp is 4611686018427387904 ms"):
        encode([b"a"], timestamp=pa.array([2**62], pa.timestamp("ms")))
    with pytest.raises(InvalidRecords, match="column timestamp: "):
        encode([b"a"], timestamp=pa.array([2**62], pa.timestamp("s")))


# --- columns -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind",
    [
        *(pa.binary(), pa.string(), pa.large_binary(), pa.large_string()),
        *(pa.binary_view(), pa.string_view(), pa.binary(2)),
    ],
)
def test_columns_of_bytes_and_text(kind: pa.DataType) -> None:
    column = pa.array(["ab", None, "cd"], pa.string()).cast(pa.binary())
    column = column.cast(kind) if kind != pa.binary(2) else pa.array([b"ab", None, b"cd"], kind)
    (batch,) = encode(column, key=column, partition=pa.array([0] * 3, pa.int8())).batches
    assert [record.value for record in records(batch)] == [b"ab", None, b"cd"]
    assert [record.key for record in records(batch)] == [b"ab", None, b"cd"]


def test_columns_of_nulls() -> None:
    nulls = pa.nulls(2)
    (batch,) = encode(nulls, key=nulls, headers=nulls, timestamp=nulls, partition=nulls).batches
    assert records(batch) == [
        Record(i, NOW_MS, records(batch)[0].timestamp_type, None, None, ()) for i in range(2)
    ]


def test_slices_of_columns() -> None:
    whole = {
        "value": pa.array([b"%d" % i if i % 3 else None for i in range(50)], pa.binary()),
        "key": pa.array([b"k%d" % i if i % 4 else None for i in range(50)], pa.binary()),
        "headers": headers_column([[("h", b"%d" % i)] * (i % 3) for i in range(50)]),
        "timestamp": pa.array([i or None for i in range(50)], pa.timestamp("ms")),
        "partition": pa.array([i % 2 if i % 5 else None for i in range(50)], pa.int32()),
    }
    columns = {name: column.slice(13, 20) for name, column in whole.items()}
    encoded = encode_from_arrow(**columns, partition_count=2, now_ms=NOW_MS, max_batch_bytes=10_000)
    shown = {
        row: record
        for batch in encoded.batches
        for row, record in zip(batch.rows.tolist(), records(batch), strict=True)
    }
    assert len(shown) == 20
    for row, record in shown.items():
        i = row + 13
        assert record.value == (b"%d" % i if i % 3 else None)
        assert record.key == (b"k%d" % i if i % 4 else None)
        assert [tuple(h) for h in record.headers] == [("h", b"%d" % i)] * (i % 3)
        assert record.timestamp_ms == i


def test_headers_that_are_null_empty_or_without_a_key() -> None:
    column = headers_column([None, [], [("a", None)], [("b", b""), (None, b"x")], [("c", b"1")]])
    encoded = encode([b"%d" % i for i in range(5)], headers=column)
    (batch,) = encoded.batches
    assert [[tuple(h) for h in record.headers] for record in records(batch)] == [
        *([], [], [("a", None)], [("c", b"1")]),
    ]
    assert encoded.rejected == [(3, RowProblem.NULL_HEADER_KEY)]
    assert batch.rows.tolist() == [0, 1, 2, 4]


def test_a_null_among_the_headers_is_a_header_without_a_key() -> None:
    column = pa.array([[None], [{"key": "a", "value": b"1"}]], COLUMN_TYPES["headers"])
    encoded = encode([b"0", b"1"], headers=column)
    assert encoded.rejected == [(0, RowProblem.NULL_HEADER_KEY)]


def test_header_fields_of_the_null_type_are_nulls() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.null())]))
    column = pa.array([[{"key": "a", "value": None}] * 3, []], kind)
    (batch,) = encode([b"0", b"1"], headers=column).batches
    assert [[tuple(h) for h in record.headers] for record in records(batch)] == [
        [("a", None)] * 3,
        [],
    ]
    kind = pa.list_(pa.struct([("key", pa.null()), ("value", pa.binary())]))
    encoded = encode([b"0", b"1"], headers=pa.array([[{"key": None, "value": b"x"}], []], kind))
    assert encoded.rejected == [(0, RowProblem.NULL_HEADER_KEY)]


def test_headers_in_other_shapes() -> None:
    turned = pa.struct([pa.field("value", pa.large_binary()), pa.field("key", pa.large_string())])
    column = pa.array([[{"key": "a", "value": b"1"}], None], pa.large_list(turned))
    (batch,) = encode([b"0", b"1"], headers=column).batches
    assert [[tuple(h) for h in record.headers] for record in records(batch)] == [[("a", b"1")], []]


@pytest.mark.parametrize(
    ("name", "column", "text"),
    [
        ("key", pa.array([1]), "column key is of type int64, expected binary or string"),
        ("headers", pa.array(["x"]), "column headers is of type string, expected list<struct<key:"),
        ("headers", pa.array([[1]]), "expected list<struct<key: string, value: binary>>"),
        ("timestamp", pa.array([1]), "column timestamp is of type int64, expected timestamp"),
        ("partition", pa.array(["1"]), "column partition is of type string, expected int"),
        ("partition", pa.array([2**40]), "column partition: "),
        ("key", pa.array([b"a", b"b"]), "column key has 2 rows, column value has 1"),
    ],
)
def test_columns_of_the_wrong_type_or_length(name: str, column: pa.Array, text: str) -> None:
    with pytest.raises(InvalidRecords, match=text):
        encode([b"v"], **{name: column})


def test_a_value_column_of_the_wrong_type() -> None:
    with pytest.raises(InvalidRecords, match="column value is of type double, expected binary"):
        encode(pa.array([1.5]))


def test_all_problems_are_reported_and_the_rest_is_written() -> None:
    encoded = encode(
        [b"0", b"1", b"2" * 5000, b"3", b"4"],
        headers=headers_column([[], [(None, b"")], [], [], []]),
        partition=pa.array([0, 0, 0, 9, 0], pa.int32()),
        timestamp=pa.array([1, 1, 1, 1, -1], pa.timestamp("ms")),
        max_batch_bytes=1000,
    )
    assert values(encoded) == [b"0"]
    assert encoded.rejected == [
        (1, RowProblem.NULL_HEADER_KEY),
        (2, RowProblem.TOO_LARGE),
        (3, RowProblem.BAD_PARTITION),
        (4, RowProblem.NEGATIVE_TIMESTAMP),
    ]
