"""The end of a fetched record set."""

import pytest

from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record_sets import offset_after


def _batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(base_offset)
    for _ in range(count):
        builder.append(b"k", b"v", 1)
    return builder.build()


def test_the_last_whole_batch_counts() -> None:
    data = _batch(10, 5) + _batch(15, 2)
    assert offset_after(memoryview(data)) == 17
    assert offset_after(memoryview(data)[:-1]) == 15


def test_nothing_whole() -> None:
    assert offset_after(memoryview(b"")) is None
    assert offset_after(memoryview(_batch(0, 1))[:-1]) is None


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    builder = LegacyBuilder(magic, base_offset=7)
    for _ in range(3):
        builder.append(b"k", b"v", 1)
    assert offset_after(memoryview(builder.build())) == 10


def test_a_length_that_no_batch_can_have() -> None:
    data = bytearray(_batch(0, 1))
    data[8:12] = (-5).to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecords, match="length field says -5"):
        offset_after(memoryview(data))
