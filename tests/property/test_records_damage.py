"""Cut off or changed bytes: only RecordsError comes out, in bounded memory, and nothing made up."""

import random
import tracemalloc
from collections.abc import Callable
from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec, decompress
from pyspark_klog.records.control import decode_end_transaction
from pyspark_klog.records.down_conversion import down_convert
from pyspark_klog.records.errors import CorruptRecords, RecordsError
from pyspark_klog.records.record import Record
from pyspark_klog.records.record_sets import entries
from tests.support.golden.cases import GOLDEN_DIR, Golden
from tests.support.records.record_sets import iterate
from tests.support.records.up_conversion import up_convert

MAX_BYTES = 1 << 18
MUTATIONS_EACH = 100


@cache
def goldens() -> list[Golden]:
    """The small ones: bytes by every writer, in every format and codec."""
    found = [Golden.load(path) for path in sorted(GOLDEN_DIR.glob("*.json"))]
    return [golden for golden in found if len(golden.data) < 2000]


def read_all(data: bytes) -> list[Record]:
    return list(iterate(data, check_crc=False, include_control=True, max_bytes=MAX_BYTES))


READERS: list[Callable[[bytes], object]] = [
    read_all,
    lambda data: list(iterate(data, allow_partial=True, max_bytes=MAX_BYTES)),
    lambda data: [(repr(batch), batch.is_crc_valid()) for batch in split_batches(data)],
    lambda data: down_convert(data, 0, max_bytes=MAX_BYTES),
    lambda data: down_convert(data, 1, first_offset=3, allow_partial=True, max_bytes=MAX_BYTES),
    lambda data: up_convert(data, max_bytes=MAX_BYTES),
    lambda data: up_convert(data, base_offset=0, codec=Codec.NONE, max_bytes=MAX_BYTES),
    lambda data: [decode_end_transaction(record) for record in read_all(data)],
]


def outcome(reader: Callable[[bytes], object], data: bytes) -> bool:
    """Whether it could be read; any exception but RecordsError fails the test."""
    try:
        reader(data)
    except RecordsError as error:
        assert len(str(error)) > 20, "an error says what was wrong and what was expected"
        return False
    return True


def mutations(data: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Copies with a few bytes changed, mostly to values on some border."""
    found = []
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            border = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            changed[rng.randrange(len(changed))] = border
        if rng.random() < 0.2:
            at, size = rng.randrange(len(changed)), rng.randrange(9)
            changed[at : at + size] = rng.randbytes(rng.randrange(9))
        found.append(bytes(changed))
    return found


def test_changed_bytes_raise_only_our_errors() -> None:
    rng = random.Random(20)
    verdicts = [0, 0]
    for golden in goldens():
        for data in mutations(golden.data, rng, MUTATIONS_EACH):
            for reader in READERS:
                verdicts[outcome(reader, data)] += 1
    assert min(verdicts) > 1000  # both happen


def test_changed_bytes_never_pass_the_crc() -> None:
    """A change below the CRC is noticed; offset and leader epoch are what it does not cover."""
    rng = random.Random(21)
    for golden in goldens():
        (entry,) = list(entries(golden.data))[:1]
        if entry.size_bytes != len(golden.data):
            continue
        original = list(iterate(golden.data, include_control=True))
        for data in mutations(golden.data, rng, 20):
            covered_from = 17 if entry.magic == 2 else 12
            if len(data) != len(golden.data) or data[covered_from:] == golden.data[covered_from:]:
                continue
            try:
                found = list(iterate(data, include_control=True, max_bytes=MAX_BYTES))
            except RecordsError:
                continue
            assert found == original, golden.name


@pytest.mark.parametrize("index", range(len(goldens())), ids=[g.name for g in goldens()])
def test_a_set_that_is_cut_off_is_noticed(index: int) -> None:
    data = goldens()[index].data
    borders = {entry.position for entry in entries(data)}
    whole = read_all(data)
    for keep in range(len(data)):
        if keep in borders:
            assert read_all(data[:keep]) == whole[: len(read_all(data[:keep]))]
            continue
        with pytest.raises(CorruptRecords):
            read_all(data[:keep])


def test_memory_stays_bounded_on_changed_bytes() -> None:
    rng = random.Random(22)
    samples = [data for g in goldens() for data in mutations(g.data, rng, 3)]
    for data in samples:
        outcome(read_all, data)
    tracemalloc.start()
    try:
        for data in samples:
            outcome(read_all, data)
        assert tracemalloc.get_traced_memory()[1] < 6 * MAX_BYTES
    finally:
        tracemalloc.stop()


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.binary(max_size=200))
def test_nonsense_raises_only_our_errors(data: bytes) -> None:
    for reader in READERS:
        outcome(reader, data)
    for codec in list(Codec)[1:]:
        outcome(partial(decompress, codec, max_bytes=MAX_BYTES), data)


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.binary(max_size=60), st.integers(-2, 5))
def test_nonsense_as_records_raises_only_our_errors(section: bytes, count: int) -> None:
    builder = BatchBuilder()
    builder.append(None, None, 0)
    data = bytearray(builder.build()[:61] + section)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big", signed=True)
    outcome(read_all, bytes(data))
