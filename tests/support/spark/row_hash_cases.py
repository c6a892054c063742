"""The row hash written down a second time, slowly, and random rows in all layouts of Arrow.

All forms of the kernels have to give the same digest (`tests/support/records/kernel_forms.py`).
"""

import hashlib
import random
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_klog.spark.sink.exactly_once.row_hash import RowHash

_MASK = 2**64 - 1
Headers = tuple[tuple[str | None, bytes | None], ...]


class Row(NamedTuple):
    """A row of the sink."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp_us: int | None = None


# --- the hash, from its definition --------------------------------------------------------------
def murmur3_128(data: bytes) -> int:
    """MurmurHash3_x64_128 with seed 0; its first half is the low one."""
    first = second = 0
    whole = len(data) // 16 * 16
    for low, high in struct.iter_unpack("<QQ", data[:whole]):
        first = _mixed(first, _scrambled_1(low), 27, second, 0x52DCE729)
        second = _mixed(second, _scrambled_2(high), 31, first, 0x38495AB5)
    low, high = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    first, second = first ^ _scrambled_1(low), second ^ _scrambled_2(high)
    first, second = first ^ len(data), second ^ len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _avalanche(first), _avalanche(second)
    first = (first + second) & _MASK
    return first | ((second + first) & _MASK) << 64


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def _scrambled_1(word: int) -> int:
    return _rotated(word * 0x87C37B91114253D5 & _MASK, 31) * 0x4CF5AD432745937F & _MASK


def _scrambled_2(word: int) -> int:
    return _rotated(word * 0x4CF5AD432745937F & _MASK, 33) * 0x87C37B91114253D5 & _MASK


def _mixed(half: int, word: int, bits: int, other: int, added: int) -> int:
    return ((_rotated(half ^ word, bits) + other) * 5 + added) & _MASK


def _avalanche(half: int) -> int:
    half = (half ^ half >> 33) * 0xFF51AFD7ED558CCD & _MASK
    half = (half ^ half >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return half ^ half >> 33


def written(row: Row) -> bytes:
    """The bytes that stand for a row."""
    topic = None if row.topic is None else row.topic.encode()
    headers = row.headers or ()
    header_count = 0 if row.headers is None else len(headers) + 1
    parts = [struct.pack("<IIII", _size(row.value), _size(row.key), _size(topic), header_count)]
    parts += [_padded(row.value), _padded(row.key), _padded(topic)]
    for name, value in headers:
        key = None if name is None else name.encode()
        parts += [struct.pack("<QQ", _size(key), _size(value)), _padded(key), _padded(value)]
    flags = (row.partition is not None) + 2 * (row.timestamp_us is not None)
    if flags:
        parts.append(struct.pack("<qiI", row.timestamp_us or 0, row.partition or 0, flags))
    return b"".join(parts)


def _size(data: bytes | None) -> int:
    return 0 if data is None else len(data) + 1


def _padded(data: bytes | None) -> bytes:
    data = data or b""
    return data.ljust(-(-len(data) // 16) * 16, b"\0")


def expected_sum(rows: Iterable[Row]) -> int:
    """Return the value that RowHash must give for rows, in any order and layout."""
    return sum(murmur3_128(written(row)) for row in rows) % 2**128


def byte_count(rows: Iterable[Row]) -> int:
    """Bytes of values, keys and headers."""
    count = 0
    for row in rows:
        count += len(row.value or b"") + len(row.key or b"")
        for name, value in row.headers or ():
            count += len((name or "").encode()) + len(value or b"")
    return count


# --- rows as Arrow ------------------------------------------------------------------------------
def as_batch(rows: Sequence[Row], rng: random.Random | None = None) -> pa.RecordBatch:
    """The rows, plainly; with ``rng`` in a layout chosen by chance."""
    if rng is None:
        return pa.RecordBatch.from_pydict(_columns(rows, random.Random(0), plain=True))
    # Cut out of longer columns, so that buffers and bitmaps do not begin with the first row.
    before, behind = rng.randrange(12), rng.randrange(4)
    around = [random_row(rng) for _ in range(before + behind)]
    columns = _columns([*around[:before], *rows, *around[before:]], rng, plain=False)
    for name in ("key", "headers", "topic", "partition", "timestamp", "value"):
        found = columns[name].slice(before, len(rows))
        if found.null_count == len(rows) and rng.randrange(2):
            del columns[name]
    columns["another"] = pa.nulls(len(rows) + before + behind, pa.int32())
    return pa.RecordBatch.from_pydict(columns).slice(before, len(rows))


def _columns(rows: Sequence[Row], rng: random.Random, *, plain: bool) -> dict[str, pa.Array]:
    texts = ["string", "large_string", "string_view"]
    datas = ["binary", "large_binary", "binary_view"]
    kinds = ["string"] * 4 if plain else [rng.choice(texts) for _ in range(4)]
    data_kinds = ["binary"] * 3 if plain else [rng.choice(datas) for _ in range(3)]
    columns = {
        "value": _bytes([row.value for row in rows], data_kinds[0], rng),
        "key": _bytes([row.key for row in rows], data_kinds[1], rng),
        "topic": _bytes([row.topic for row in rows], kinds[0], rng),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        "timestamp": pa.array([row.timestamp_us for row in rows], pa.timestamp("us", "UTC")),
    }
    # A null list may have elements below it, too.
    lists = [(("x", b"y"),) if row.headers is None and not plain else row.headers for row in rows]
    keys = [name for headers in lists for name, _ in headers or ()]
    values = [value for headers in lists for _, value in headers or ()]
    names = ["key", "value"] if plain else rng.choice([["key", "value"], ["Key", "VALUE"]])
    structs = pa.StructArray.from_arrays(
        [_bytes(keys, kinds[1], rng), _bytes(values, data_kinds[2], rng)], names=names
    )
    ends = np.cumsum([0, *(len(headers or ()) for headers in lists)])
    missing = pa.array([row.headers is None for row in rows], pa.bool_())
    is_large = not plain and rng.randrange(4) == 0
    of = pa.LargeListArray if is_large else pa.ListArray
    edges = pa.array(ends, pa.int64() if is_large else pa.int32())
    columns["headers"] = of.from_arrays(edges, structs, mask=missing)
    return columns


def _bytes(data: Sequence[bytes | str | None], kind: str, rng: random.Random) -> pa.Array:
    """A column whose nulls have bytes below them where the layout can have them."""
    if kind not in ("binary", "string"):
        return pa.array(data, getattr(pa, kind)())
    there = [rng.randbytes(3) if d is None else d for d in data]
    plain = pa.array([d.encode() if isinstance(d, str) else d for d in there], pa.binary())
    valid = pa.py_buffer(
        np.packbits(np.array([d is not None for d in data], np.bool_), bitorder="little")
    )
    return pa.Array.from_buffers(getattr(pa, kind)(), len(data), [valid, *plain.buffers()[1:]])


def random_row(rng: random.Random) -> Row:
    """Fields of all lengths around words and blocks; often null or empty."""
    headers: Headers | None = None
    if rng.randrange(3) == 0:
        names = ["", "h", "trace-id", "é", "x" * 16, None]
        headers = tuple((rng.choice(names), _random_bytes(rng)) for _ in range(rng.randrange(4)))
    return Row(
        _random_bytes(rng),
        _random_bytes(rng),
        headers,
        rng.choice([None, None, "", "t", "a-longer-name-of-a-topic"]),
        rng.choice([None, None, 0, 1, 2**31 - 1, -1]),
        rng.choice([None, None, 0, -1_000, 1_700_000_000_000_001, -(2**63), 2**63 - 1]),
    )


def _random_bytes(rng: random.Random) -> bytes | None:
    kind = rng.randrange(6)
    if kind < 2:
        return (None, b"")[kind]
    if kind == 2:
        return bytes([rng.choice([0, 0x80, 0xFF])]) * rng.randrange(40)
    return rng.randbytes(rng.randrange(rng.choice([18, 40, 200])))


def run_seeds(seeds: Iterable[int]) -> str:
    """Check the kernel against the definition for each seed; a digest of all sums."""
    digest = hashlib.sha256()
    for seed in seeds:
        rng = random.Random(seed)
        rows = [random_row(rng) for _ in range(rng.randrange(40))]
        found = RowHash("timestamp")
        rest = rng.sample(rows, len(rows))
        while rest:
            count = rng.randrange(1, len(rest) + 1)
            found.add(as_batch(rest[:count], rng))
            rest = rest[count:]
        seen = found.value, found.row_count, found.byte_count
        expected = expected_sum(rows), len(rows), byte_count(rows)
        assert seen == expected, f"seed {seed}: {seen}, expected {expected}"
        digest.update(repr(seen).encode())
    return digest.hexdigest()
