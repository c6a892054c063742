"""The key map of compaction: its hash, its growth, and its limit."""

import numpy as np
import pytest

from klog_broker.compaction import kernel
from klog_broker.compaction.key_map import SLOT_BYTES, KeyMap
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import CorruptRecords, DecompressedTooLarge
from pyspark_klog.records.legacy import encode_message
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.compaction.cases import scanned

# Values of the reference implementation (vectors.h): the key is 00 to 0f; the message consists of
# the bytes from 00 on, as many as the number says.
SIPHASH_128 = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}


def key_map(most_slots: int, load_factor: float = 0.75) -> KeyMap:
    return KeyMap(most_slots * SLOT_BYTES, load_factor, (1, 2**64 - 1))


def batch(keys: list[bytes], base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(base_offset, codec)
    for key in keys:
        builder.append(key, b"", 0)
    return builder.build()


def add(to: KeyMap, data: bytes, skip: int = 0, from_offset: int = 0) -> bool:
    table, rows = scanned(data)
    return to.add_chunk(data, table, rows, np.full(rows, skip, np.uint8), from_offset)


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize("size", SIPHASH_128)
def test_keys_are_hashed_by_siphash(size: int) -> None:
    low, high = np.frombuffer(bytes(range(16)), "<i8").tolist()
    # Bytes behind the key do not count, and a key may end where its buffer does.
    for data in (bytes(range(size)), bytes(range(size)) + b"\xff" * 20):
        slots = np.zeros(2 * kernel.SLOT_WORDS, np.int64)
        state = np.zeros(kernel.STATE_FIELDS, np.int64)
        key = np.frombuffer(data, np.uint8)[:size]
        assert kernel.put_key(key, low, high, 6, slots, 1, state) == 0
        (at,) = np.flatnonzero(slots[kernel.SLOT_OFFSET :: kernel.SLOT_WORDS]).tolist()
        words = slots[at * kernel.SLOT_WORDS : (at + 1) * kernel.SLOT_WORDS]
        assert words[:2].astype("<i8").tobytes().hex() == SIPHASH_128[size]
        assert words[2] == 7


def test_keys_with_half_a_hash_in_common_are_two() -> None:
    slots = np.zeros(4 * kernel.SLOT_WORDS, np.int64)
    state = np.zeros(kernel.STATE_FIELDS, np.int64)
    key = np.frombuffer(b"key", np.uint8)
    assert kernel.put_key(key, 1, 2, 6, slots, 3, state) == 0
    for word in (kernel.SLOT_HASH, kernel.SLOT_HASH + 1):
        other = slots.copy()
        other[word :: kernel.SLOT_WORDS] ^= 1
        assert kernel.find_key(key, 1, 2, other) == -1
    assert kernel.find_key(key, 1, 2, slots) == 6


def test_a_key_has_its_largest_offset() -> None:
    found = key_map(100)
    assert (found.size, found.latest_offset, found.is_full) == (0, -1, False)
    assert found.offset_of(b"a") == -1
    assert add(found, batch([b"a", b"b", b"a", b""], 10))
    assert add(found, batch([b"a"], 3))
    assert [found.offset_of(key) for key in (b"a", b"b", b"", b"c")] == [12, 11, 13, -1]
    assert (found.size, found.latest_offset) == (3, 13)
    found.clear()
    assert (found.size, found.latest_offset, found.offset_of(b"a")) == (0, -1, -1)


def test_rows_that_are_skipped_move_the_latest_offset_on() -> None:
    found = key_map(100)
    assert add(found, batch([b"a"], 10), skip=1)
    assert (found.size, found.latest_offset) == (0, 10)
    assert add(found, batch([b"a"], 9), skip=1, from_offset=10)
    assert add(found, batch([b"a"], 20, Codec.LZ4), skip=1, from_offset=21)
    assert found.latest_offset == 10
    assert add(found, batch([b"a", b"b"], 20, Codec.LZ4), from_offset=21)
    assert (found.offset_of(b"a"), found.offset_of(b"b"), found.latest_offset) == (-1, 21, 21)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_map_grows_to_its_most(codec: Codec) -> None:
    found = key_map(50_000)
    first_bytes = found.size_bytes
    keys = numbered(0, 37_500)
    assert add(found, batch(keys, 0, codec))
    assert found.is_full
    assert first_bytes < found.size_bytes == 50_000 * SLOT_BYTES
    assert [found.offset_of(key) for key in keys] == list(range(37_500))
    # Keys that are there already need no room.
    assert add(found, batch(keys[:100], 40_000, codec))
    assert (found.offset_of(b"0"), found.latest_offset) == (40_000, 40_099)
    assert not add(found, batch([b"new"], 50_000, codec))
    found.clear()
    assert found.size_bytes == first_bytes


@pytest.mark.parametrize("form", ["plain", "compressed", "messages", "wrapper"])
def test_a_full_map_takes_a_row_wholly_or_says_so(form: str) -> None:
    found = key_map(8)  # six keys
    if form == "messages":
        data = b"".join(
            encode_message(1, number, 0, key, b"") for number, key in enumerate(numbered(0, 10))
        )
        latest_offset = 5  # each message is a row
    elif form == "wrapper":
        whole, cut = LegacyBuilder(1, 0, Codec.GZIP), LegacyBuilder(0, 4, Codec.SNAPPY)
        for builder, start in ((whole, 0), (cut, 4)):
            for key in numbered(start, start + 4):
                builder.append(key, b"", 0)
        data = whole.build() + cut.build()
        latest_offset = 3
    else:
        codec = Codec.GZIP if form == "compressed" else Codec.NONE
        data = batch(numbered(0, 4), 0, codec) + batch(numbered(4, 8), 4, codec)
        latest_offset = 3
    assert not add(found, data)
    assert (found.is_full, found.size, found.latest_offset) == (True, 6, latest_offset)
    assert [found.offset_of(key) for key in numbered(0, 8)] == [0, 1, 2, 3, 4, 5, -1, -1]


def test_a_map_that_is_to_stay_empty_for_the_most_part_need_not_grow_to_be_full() -> None:
    found = key_map(10_000, 0.01)
    assert not add(found, batch(numbered(0, 101)))
    assert (found.is_full, found.size) == (True, 100)
    assert found.size_bytes < 10_000 * SLOT_BYTES


@pytest.mark.parametrize("load_factor", [0.9, 0.75, 0.3, 0.01])
def test_a_map_takes_no_more_than_the_keys_that_may_come_need(load_factor: float) -> None:
    found = KeyMap(1 << 24, load_factor, (1, 2), most_keys=5_000)
    assert add(found, batch(numbered(0, 5_000)))
    assert found.size == 5_000
    slots = 5_000 / min(load_factor, 0.75) + 2
    assert found.size_bytes <= min(slots * SLOT_BYTES, 1 << 24)


def test_negative_offsets_are_passed_over() -> None:
    found = key_map(100)
    assert add(found, batch([b"a", b"b", b"c"], -2), from_offset=-10)
    assert (found.offset_of(b"a"), found.offset_of(b"c"), found.size) == (-1, 0, 1)


@pytest.mark.parametrize("max_bytes", [0, SLOT_BYTES, 2 * SLOT_BYTES - 1, -5])
def test_a_map_too_small_for_a_key_is_refused(max_bytes: int) -> None:
    with pytest.raises(ValueError, match="can hold no key"):
        KeyMap(max_bytes, 0.9, (1, 2))


def test_what_a_batch_inflates_to_is_bounded() -> None:
    found = KeyMap(1 << 16, 0.9, (1, 2), max_decompressed_bytes=1000)
    with pytest.raises(DecompressedTooLarge, match="1000 bytes"):
        add(found, batch([bytes(2000)], 0, Codec.GZIP))


@pytest.mark.parametrize("magic", [1, 2])
def test_no_offset_follows_the_last_one(magic: int) -> None:
    last = 2**63 - 1
    data = batch([b"a"], last) if magic == 2 else encode_message(magic, last, 0, b"a", b"")
    with pytest.raises(CorruptRecords, match="offset"):
        add(key_map(100), data)
