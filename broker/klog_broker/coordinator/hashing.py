"""Which partition of a state topic a key (a group, a transactional id) belongs to."""

from functools import lru_cache

_REMEMBERED_KEYS = 10_000


def java_string_hash(text: str) -> int:
    """Java's String.hashCode as int32: over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=_REMEMBERED_KEYS)
def partition_for_key(key: str, num_partitions: int) -> int:
    """Kafka's ``Utils.abs(hashCode) % partitions``; abs of the lowest int counts as 0."""
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % num_partitions
