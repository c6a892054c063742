"""Kafka's default partitioner for records with a key: murmur2 of the key, as in Java's client."""

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's murmur2 hash of ``key``, signed like Java's int: -2^31 to 2^31-1.

    The Java original is org.apache.kafka.common.utils.Utils.murmur2.
    """
    state = _SEED ^ len(key)
    whole_end = len(key) & ~3
    for at in range(0, whole_end, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _MASK
        word ^= word >> 24
        state = (state * _FACTOR & _MASK) ^ (word * _FACTOR & _MASK)
    if whole_end < len(key):
        state ^= int.from_bytes(key[whole_end:], "little")
        state = state * _FACTOR & _MASK
    state ^= state >> 13
    state = state * _FACTOR & _MASK
    state ^= state >> 15
    return state - ((state >> 31) << 32)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition, 0 to ``partition_count`` - 1, of a record with this key."""
    if partition_count < 1:
        raise ValueError(f"a topic has 1 partition or more, not {partition_count}")
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count
