"""CRCs, hash and UTF-8 check inside kernels, against other people's implementations."""

import random
import zlib

import crcmod.predefined
import numpy as np
import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from pyspark_klog.records.kernels import crc
from pyspark_klog.records.kernels.jit import COMPILED
from pyspark_klog.records.partitioner import murmur2, partition_for_key
from tests.support.records.kernel_functions import crc_of, murmur2_between, utf8_between

CRC32C = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
CRC32 = crcmod.predefined.mkPredefinedCrcFun("crc-32")
RANDOM = random.Random(5)
DATA = RANDOM.randbytes(20_000)
ARRAY = np.frombuffer(DATA, np.uint8)
# Around a word, around the three blocks of 1024 that are summed side by side, and several of those.
LENGTHS = [*range(34), 255, 1023, 1024, 3064, 3071, 3072, 3073, 3080, 6143, 6144, 9217, 19_000]

# The examples of Kafka's own UtilsTest.
MURMUR2_EXAMPLES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("length", LENGTHS)
def test_crcs_are_those_of_crcmod(length: int) -> None:
    for start in (0, 1, 7, 900):
        part = DATA[start : start + length]
        assert crc_of(ARRAY, start, start + length, 0) == CRC32C(part)
        assert crc_of(ARRAY, start, start + length, 1) == CRC32C(part)
        assert crc_of(ARRAY, start, start + length, 2) == CRC32(part) == zlib.crc32(part)


def test_crcs_of_extreme_bytes() -> None:
    for byte in (0, 0xFF, 0x80):
        data = bytes([byte]) * 5000
        array = np.frombuffer(data, np.uint8)
        assert [crc_of(array, 0, 5000, kind) for kind in range(3)] == [
            *(CRC32C(data), CRC32C(data), CRC32(data))
        ]


def test_the_processors_instruction_is_named_only_where_kernels_are_compiled() -> None:
    assert crc.INSTRUCTIONS in ("", "x86", "arm")
    assert COMPILED or crc.INSTRUCTIONS == ""


@pytest.mark.parametrize("key", MURMUR2_EXAMPLES)
def test_murmur2_of_kafkas_examples(key: bytes) -> None:
    expected = MURMUR2_EXAMPLES[key]
    assert murmur2(key) == expected
    assert murmur2_between(np.frombuffer(key, np.uint8), 0, len(key)) == expected % 2**32


def test_murmur2_is_that_of_kafka_python() -> None:
    for length in range(40):
        for start in (0, 3, 500):
            key = DATA[start : start + length]
            assert murmur2(key) % 2**32 == kafka_python_murmur2(key) % 2**32
            assert murmur2_between(ARRAY, start, start + length) == murmur2(key) % 2**32


def test_partition_for_key_is_positive_and_needs_a_partition() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    with pytest.raises(ValueError, match="1 partition or more, not 0"):
        partition_for_key(b"21", 0)


def _is_utf8_in_python(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_utf8_is_what_python_decodes() -> None:
    starts = [0x00, 0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4]
    more = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
    cases = [bytes([first]) for first in range(256)]
    for first in [*starts, 0xF1, 0xF5, 0xFF]:
        for second in more:
            cases.append(bytes([first, second]))
            cases += [bytes([first, second, third]) for third in more]
            cases += [bytes([first, second, third, 0x80]) for third in more]
    cases += ["aé日😀".encode(), b"", "日本".encode()[:-1]]
    for data in cases:
        array = np.frombuffer(data + b"\x80", np.uint8)  # the last byte is outside of the range
        assert bool(utf8_between(array, 0, len(data))) == _is_utf8_in_python(data), data.hex()
