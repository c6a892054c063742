"""Maps a group id to a partition of __consumer_offsets, a transactional id to one of
__transaction_state."""

from functools import lru_cache

_REMEMBERED_KEYS = 10_000


def java_string_hash(text: str) -> int:
    """Compute Java's String.hashCode of ``text``, an int32 over its UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=_REMEMBERED_KEYS)
def partition_for_key(key: str, num_partitions: int) -> int:
    """Compute Kafka's ``Utils.abs(hashCode) % partitions``; abs of the smallest int32 is 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % num_partitions
