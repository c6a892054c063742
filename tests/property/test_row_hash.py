"""The hash by which the exactly-once sink knows a repeated task's rows again."""

import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.spark.sink.exactly_once.row_hash import RowHash
from tests.support.spark.row_hash_cases import (
    Row,
    as_batch,
    byte_count,
    expected_sum,
    murmur3_128,
    written,
)

# Known to many: the first two half words are the C code's h1 and h2.
MURMUR3_EXAMPLES = {
    b"": (0, 0),
    b"hello": (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19),
    b"The quick brown fox jumps over the lazy dog": (0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347),
}

# Progress rows have held such hashes since the first release: these values must not change.
GOLDEN = {
    "all null": (
        Row(value=None, key=None, headers=None, topic=None, partition=None, timestamp_us=None),
        "b465a9eccd791cb64bbd1bf27da918d6",
    ),
    "all empty": (
        Row(value=b"", key=b"", headers=(), topic="", partition=None, timestamp_us=None),
        "09f1d594ee183531e099c3ba2a139509",
    ),
    "a value": (
        Row(value=b"value", key=None, headers=None, topic=None, partition=None, timestamp_us=None),
        "4d26c24797540752940a087ad2a54872",
    ),
    "a key and a value": (
        Row(
            value=b"a value of 22 letters.",
            key=b"key",
            headers=None,
            topic=None,
            partition=None,
            timestamp_us=None,
        ),
        "fd021cfae65b5c72c2d223170cf92637",
    ),
    "all fields": (
        Row(
            value=b"vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv",
            key=b"0123456789abcdef",
            headers=(("trace", b"\xff\x00"), ("é", None)),
            topic="topic",
            partition=7,
            timestamp_us=1700000000123456,
        ),
        "21ae9057d04f75aba74b4b6880cb7b67",
    ),
    "the ends of numbers": (
        Row(
            value=b"",
            key=None,
            headers=None,
            topic=None,
            partition=-2147483648,
            timestamp_us=-9223372036854775808,
        ),
        "7305ab1d0989808f6488ab373d173b00",
    ),
}


def hash_of(*rows: Row) -> int:
    found = RowHash("timestamp")
    found.add(as_batch(rows))
    assert found.row_count == len(rows)
    return found.value


def test_the_tests_own_murmur3_is_the_known_one() -> None:
    for data, (low, high) in MURMUR3_EXAMPLES.items():
        assert murmur3_128(data) == low | high << 64


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name: str) -> None:
    row, expected = GOLDEN[name]
    assert f"{hash_of(row):032x}" == expected


def test_no_rows_are_zero() -> None:
    found = RowHash("timestamp")
    found.add(as_batch([]))
    assert (found.value, found.row_count, found.byte_count) == (0, 0, 0)


FIELDS = st.one_of(st.none(), st.binary(max_size=40))
ROWS = st.builds(
    Row,
    FIELDS,
    FIELDS,
    st.one_of(
        st.none(),
        st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=9)), FIELDS), max_size=3).map(
            tuple
        ),
    ),
    st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=20)),
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
)


@given(st.lists(ROWS, max_size=8), st.randoms(use_true_random=False))
def test_a_sum_is_that_of_the_definition_in_any_layout_and_order(
    rows: list[Row], rng: random.Random
) -> None:
    found = RowHash("timestamp")
    shuffled = rng.sample(rows, len(rows))
    middle = rng.randint(0, len(rows))
    found.add(as_batch(shuffled[:middle], rng))
    found.add(as_batch(shuffled[middle:], rng))
    assert found.value == expected_sum(rows)
    assert (found.row_count, found.byte_count) == (len(rows), byte_count(rows))


@given(ROWS, ROWS)
def test_rows_that_differ_are_written_differently(one: Row, other: Row) -> None:
    assert (written(one) == written(other)) == (one == other)


# Each pair has the same bytes, in other fields or cut otherwise.
ALIKE = [
    (Row(b"ab"), Row(None, b"ab")),
    (Row(b"a", b"b"), Row(b"b", b"a")),
    (Row(b"ab", b"c"), Row(b"a", b"bc")),
    (Row(b"x" * 16, b"y" * 16), Row(b"x" * 32, b"")),
    (Row(b"x" * 16, b"y" * 16), Row(b"y" * 16, b"x" * 16)),
    (Row(b""), Row(None)),
    (Row(b"v", b""), Row(b"v", None)),
    (Row(b"v"), Row(b"v\0")),
    (Row(b"\0" * 16), Row(b"\0" * 15)),
    (Row(b"v", topic="t"), Row(b"v", b"t")),
    (Row(b"v", topic=""), Row(b"v")),
    (Row(b"v", headers=()), Row(b"v")),
    (Row(b"v", headers=(("", None),)), Row(b"v", headers=())),
    (Row(b"v", headers=(("h", None),)), Row(b"v", headers=(("h", b""),))),
    (Row(b"v", headers=((None, b"h"),)), Row(b"v", headers=(("", b"h"),))),
    (Row(b"v", headers=(("ab", b"c"),)), Row(b"v", headers=(("a", b"bc"),))),
    (
        Row(b"v", headers=(("a", b""), ("b", b""))),
        Row(b"v", headers=(("b", b""), ("a", b""))),
    ),
    (Row(b"v", partition=0), Row(b"v")),
    (Row(b"v", timestamp_us=0), Row(b"v")),
    (Row(b"v", timestamp_us=0), Row(b"v", partition=0)),
    (Row(b"v", timestamp_us=0, partition=0), Row(b"v", timestamp_us=0)),
    (Row(b"v", timestamp_us=1), Row(b"v", partition=1)),
    (Row(b"v", partition=-1), Row(b"v", partition=2**31 - 1)),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_a_byte_counts_where_it_is(one: Row, other: Row) -> None:
    assert written(one) != written(other)
    assert hash_of(one) != hash_of(other)


def test_a_sum_is_of_rows_not_of_columns() -> None:
    """The values of two rows exchanged are other rows; the rows exchanged are the same."""
    assert hash_of(Row(b"a", b"1"), Row(b"b", b"2")) != hash_of(Row(b"b", b"1"), Row(b"a", b"2"))
    assert hash_of(Row(b"a", b"1"), Row(b"b", b"2")) == hash_of(Row(b"b", b"2"), Row(b"a", b"1"))


def test_a_row_twice_is_not_no_row() -> None:
    assert hash_of(Row(b"a"), Row(b"a")) == hash_of(Row(b"a")) * 2 % 2**128 != 0


def test_many_rows_sum_up_beyond_each_quarter() -> None:
    """The carries between the four quarters of the sum."""
    row = Row(b"again", b"k")
    found = RowHash("timestamp")
    values = pa.array([row.value], pa.binary()).take(pa.array(np.zeros(100_000, np.int64)))
    keys = pa.array([row.key], pa.binary()).take(pa.array(np.zeros(100_000, np.int64)))
    for _ in range(3):
        found.add(pa.RecordBatch.from_pydict({"key": keys, "value": values}))
    assert found.value == expected_sum([row]) * 300_000 % 2**128
    assert (found.row_count, found.byte_count) == (300_000, 6 * 300_000)


def test_every_bit_of_a_row_turns_half_of_the_hash() -> None:
    rng = random.Random(7)
    turned = np.zeros(128)
    trials = 0
    for length in (1, 7, 8, 15, 16, 17, 40):
        data = rng.randbytes(length)
        before = hash_of(Row(data, b"key"))
        for bit in range(8 * length):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            turns = before ^ hash_of(Row(bytes(changed), b"key"))
            assert 30 <= turns.bit_count() <= 98, (length, bit)
            turned += [turns >> i & 1 for i in range(128)]
            trials += 1
    # In 832 trials each bit turns 416 times on average; the standard deviation is 14, six are 85.
    assert trials == 832
    assert np.all(np.abs(turned - trials / 2) < 6 * trials**0.5 / 2)


def test_counters_differ_in_each_half() -> None:
    """Half a hash is as good as 64 bits: no two of 2,000 neighbours are equal in either half."""
    values = [hash_of(Row(i.to_bytes(8, "big"))) for i in range(2_000)]
    assert len({value & 2**64 - 1 for value in values}) == 2_000
    assert len({value >> 64 for value in values}) == 2_000


def test_timestamps_of_any_unit_count_in_microseconds() -> None:
    sums = set()
    for unit, number in (("s", 5), ("ms", 5_000), ("us", 5_000_000), ("ns", 5_000_000_000)):
        found = RowHash("timestamp")
        times = pa.array([number], pa.int64()).cast(pa.timestamp(unit, "UTC"))
        found.add(pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "timestamp": times}))
        sums.add(found.value)
    assert sums == {expected_sum([Row(b"v", timestamp_us=5_000_000)])}


@pytest.mark.parametrize("name", ["value", "key", "topic", "headers", "timestamp", "partition"])
def test_a_column_of_another_type_is_refused(name: str) -> None:
    wrong = pa.array([1.5])
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), name: wrong})
    what = "the records' timestamps are" if name == "timestamp" else f"column {name} is"
    with pytest.raises(InvalidRecords, match=f"{what} of type double, expected"):
        RowHash("timestamp").add(batch)


def test_only_the_column_of_the_option_is_hashed() -> None:
    row = Row(b"v", b"k", timestamp_us=4)
    batch = as_batch([row]).append_column("at", pa.array([9], pa.timestamp("us", "GMT+8")))
    sums = {}
    for name in (None, "timestamp", "at", "absent"):
        found = RowHash(name)
        found.add(batch)
        sums[name] = found.value
    without = expected_sum([row._replace(timestamp_us=None)])
    assert sums == {
        None: without,
        "timestamp": expected_sum([row]),
        "at": expected_sum([row._replace(timestamp_us=9)]),
        "absent": without,
    }


def test_repeated_rows_have_the_sum_that_former_releases_gave_them_too() -> None:
    rows = [Row(b"v", timestamp_us=4), Row(b"w", timestamp_us=5)]
    batches = [as_batch([row]) for row in rows]
    found = RowHash()
    assert found.add_repeated(batches) == expected_sum(rows)
    assert found.value == expected_sum([row._replace(timestamp_us=None) for row in rows])
    assert RowHash("timestamp").add_repeated(batches) is None
    # A column that former releases refused, or that is absent.
    text = pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "timestamp": pa.array(["x"])})
    assert RowHash().add_repeated([text]) is None
    assert RowHash().add_repeated([as_batch([Row(b"v")]).drop_columns(["timestamp"])]) is None
    # The sum of a part of the rows means nothing.
    found = RowHash()
    found.add(batches[0])
    assert found.add_repeated(batches[1:]) is None


def test_another_process_gives_the_same() -> None:
    code = (
        "from tests.support.spark.row_hash_cases import Row, as_batch\n"
        "from pyspark_klog.spark.sink.exactly_once.row_hash import RowHash\n"
        "found = RowHash('timestamp')\n"
        "found.add(as_batch([Row(b'v', b'k', (('h', b'x'),), 't', 3, 4)]))\n"
        "print(found.value)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == hash_of(Row(b"v", b"k", (("h", b"x"),), "t", 3, 4))
