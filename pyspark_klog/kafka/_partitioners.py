"""Hashes of keys: the partition that each of librdkafka's partitioners gives a key."""

from zlib import crc32

from pyspark_klog.records import partitioner

_FNV_BASIS = 0x811C9DC5
_FNV_PRIME = 0x0100_0193


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition that Java's default partitioner gives a key."""
    _check(key, partition_count)
    return partitioner.partition_for_key(key, partition_count)


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition by the CRC-32 of the key: librdkafka's default."""
    _check(key, partition_count)
    return crc32(key) % partition_count


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition by the FNV-1a hash (32 bits) of the key, as Sarama's default does."""
    _check(key, partition_count)
    state = _FNV_BASIS
    for byte in key:
        state = (state ^ byte) * _FNV_PRIME & 0xFFFF_FFFF
    return abs(state - (state >> 31 << 32)) % partition_count


def _check(key: bytes, partition_count: int) -> None:
    if not isinstance(key, bytes):
        raise TypeError(f"a bytes-like object is required, not {type(key).__name__!r}")
    if partition_count < 1:
        raise ValueError(f"partition_count must be > 0, got {partition_count}")
