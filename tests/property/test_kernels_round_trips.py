"""Columns to batches and back, for any columns: nothing lost, nothing changed, in order."""

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_klog.records.arrow import COLUMN_TYPES, encode_from_arrow
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.partitioner import partition_for_key
from tests.support.records.decoding import decode_to_arrow
from tests.support.records.kernel_cases import (
    ALL_COLUMNS,
    Row,
    damage_anything,
    outcome_of,
    random_columns,
    random_set,
    rows_by_iterator,
    rows_by_kernel,
    rows_of,
)

NOW_MS = 1_700_000_000_000
data_or_null = st.none() | st.binary(max_size=30)
header = st.fixed_dictionaries({"key": st.text(max_size=8), "value": data_or_null})
row = st.tuples(
    data_or_null,
    data_or_null,
    st.none() | st.lists(header, max_size=3),
    st.none() | st.integers(0, 2**50),
)


@given(
    rows=st.lists(row, min_size=1, max_size=40),
    codec=st.sampled_from(Codec),
    max_batch_bytes=st.sampled_from([400, 1000, 100_000]),
    partition_count=st.integers(1, 5),
)
def test_rows_come_back_from_their_partitions(
    rows: list[tuple[bytes | None, bytes | None, list[dict[str, object]] | None, int | None]],
    codec: Codec,
    max_batch_bytes: int,
    partition_count: int,
) -> None:
    encoded = encode_from_arrow(
        pa.array([row[1] for row in rows], pa.binary()),
        key=pa.array([row[0] for row in rows], pa.binary()),
        headers=pa.array([row[2] for row in rows], COLUMN_TYPES["headers"]),
        timestamp=pa.array([row[3] for row in rows], pa.timestamp("ms")),
        partition_count=partition_count,
        now_ms=NOW_MS,
        max_batch_bytes=max_batch_bytes,
        codec=codec,
    )
    assert encoded.rejected == []
    numbers = sorted(row for batch in encoded.batches for row in batch.rows.tolist())
    assert numbers == list(range(len(rows)))
    for batch in encoded.batches:
        shown = decode_to_arrow(batch.payload, topic="t", partition=0, columns=ALL_COLUMNS)
        for number, found in zip(batch.rows.tolist(), rows_of(shown.batches), strict=True):
            key, value, headers, timestamp_ms = rows[number]
            expected_ms = NOW_MS if timestamp_ms is None else timestamp_ms
            names = tuple((own["key"], own["value"]) for own in headers or [])
            assert found[1:] == (expected_ms * 1000, 0, key, value, names)
            where = 0 if key is None else partition_for_key(key, partition_count)
            assert batch.partition == where


@given(seed=st.integers(0, 2**32))
def test_encoding_keeps_every_row_that_it_does_not_reject(seed: int) -> None:
    rng = random.Random(seed)
    columns = random_columns(rng, rng.randrange(1, 50))
    encoded = encode_from_arrow(
        **columns, partition_count=3, now_ms=NOW_MS, max_batch_bytes=rng.choice([150, 900])
    )
    rejected = {row.row for row in encoded.rejected}
    shown: list[int] = []
    for batch in encoded.batches:
        view = BatchView(batch.payload)
        assert view.is_crc_valid()
        records = list(view.records())
        for number, record in zip(batch.rows.tolist(), records, strict=True):
            assert record.value == columns["value"][number].as_py()
            assert "key" not in columns or record.key == columns["key"][number].as_py()
        shown += batch.rows.tolist()
    assert sorted([*shown, *rejected]) == list(range(len(columns["value"])))


@given(
    seed=st.integers(0, 2**32),
    max_rows=st.integers(1, 40),
    target_bytes=st.sampled_from([1, 300, 2000, 10**6]),
    pieces=st.integers(1, 3),
)
def test_any_sizes_and_ranges_give_the_same_rows(
    seed: int, max_rows: int, target_bytes: int, pieces: int
) -> None:
    rng = random.Random(seed)
    data = random_set(rng)
    expected = rows_by_iterator(data)
    last = expected[-1][0]
    start, end = sorted(rng.randrange(last + 2) for _ in range(2))
    decoded = decode_to_arrow(
        [data] * pieces,
        topic="t",
        partition=0,
        columns=ALL_COLUMNS,
        start_offset=start,
        end_offset=end,
        max_rows=max_rows,
        target_bytes=target_bytes,
    )
    wanted = [row for row in expected if start <= row[0] < end]
    # Once the end is reached later buffers are not read.
    assert rows_of(decoded.batches) == wanted * (1 if decoded.next_offset >= end else pieces)
    assert all(0 < batch.num_rows <= max_rows for batch in decoded.batches)


@given(seed=st.integers(0, 2**32))
@example(seed=36812864)
def test_damaged_bytes_are_refused_or_give_what_the_iterators_give(seed: int) -> None:
    rng = random.Random(seed)
    damaged = damage_anything(rng, random_set(rng))
    by_kernel = outcome_of(lambda: rows_by_kernel(damaged))
    by_iterator = outcome_of(lambda: rows_by_iterator(damaged, allow_partial=True))
    if by_iterator[0] == "error":
        assert by_kernel[0] == "error"
    elif are_rising(by_iterator[1]):
        assert by_kernel == by_iterator
    else:
        # No CRC covers base offsets. A batch whose offsets were passed already is not given again.
        assert by_kernel[0] == "rows"
        assert are_rising(by_kernel[1])
        left = iter(by_iterator[1])
        assert all(row in left for row in by_kernel[1])


def are_rising(rows: Sequence[Row]) -> bool:
    return all(before[0] < after[0] for before, after in pairwise(rows))


@pytest.mark.parametrize("limit_rows", [1, 7])
def test_a_large_set_in_small_batches(limit_rows: int) -> None:
    rng = np.random.default_rng(1)
    values = [rng.bytes(int(size)) for size in rng.integers(0, 50, 300)]
    encoded = encode_from_arrow(
        pa.array(values, pa.binary()), partition_count=1, now_ms=NOW_MS, max_batch_bytes=600
    )
    position, data = 0, bytearray()
    for batch in encoded.batches:
        BatchView(batch.payload).set_base_offset(position)
        data += batch.payload
        position += batch.record_count
    decoded = decode_to_arrow(data, topic="t", partition=0, max_rows=limit_rows)
    found = [value for rows in decoded.batches for value in rows.column("value").to_pylist()]
    assert found == values
