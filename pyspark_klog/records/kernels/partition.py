"""Kernels that compute the partition of each row and sort the rows by partition."""

from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import byte_at, load_u32
from pyspark_klog.records.kernels.status import ROW_BAD_PARTITION

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995  # below 2^31, so its product with a 32-bit number stays below 2^63
_MASK = 0xFFFF_FFFF


@inline
def murmur2_of(buf: Array, start: int, end: int) -> int:
    """Return Kafka's murmur2 hash of ``buf[start:end]`` as an unsigned 32-bit number."""
    length = end - start
    state = (_SEED ^ length) & _MASK
    at = start
    while end - at >= 4:
        word = (load_u32(buf, at) * _FACTOR) & _MASK
        word ^= word >> 24
        word = (word * _FACTOR) & _MASK
        state = (state * _FACTOR) & _MASK
        state ^= word
        at += 4
    left = end - at
    if left == 3:
        state ^= byte_at(buf, at + 2) << 16
    if left >= 2:
        state ^= byte_at(buf, at + 1) << 8
    if left >= 1:
        state ^= byte_at(buf, at)
        state = (state * _FACTOR) & _MASK
    state ^= state >> 13
    state = (state * _FACTOR) & _MASK
    return state ^ (state >> 15)


@inline
def is_set(bitmap: Array, bit: int) -> bool:
    """Whether a bit of an Arrow validity bitmap is set; in an empty bitmap all bits are set."""
    return len(bitmap) == 0 or (byte_at(bitmap, bit >> 3) >> (bit & 7)) & 1 != 0


@kernel("i64", "i64", "i64", "in32", "in8", "in8", "i64", "in32", "in8", "i64", "out32", "out8")
def assign_partitions(
    rows: int,
    partition_count: int,
    sticky_partition: int,
    key_ends: Array,
    keys: Array,
    keys_valid: Array,
    keys_valid_from: int,
    given: Array,
    given_valid: Array,
    given_valid_from: int,
    partitions: Array,
    row_status: Array,
) -> int:
    """Fill ``partitions`` with the partition of each row.

    The partition is the value in ``given``, else the partition of the key's hash, else
    ``sticky_partition``. ``key_ends`` is empty without a key column, ``given`` without a partition
    column; a null counts like an absent column. The first row's bit in the validity bitmap
    ``keys_valid`` is ``keys_valid_from``, in ``given_valid`` it is ``given_valid_from``. A row with
    a given partition outside 0 to ``partition_count`` - 1 gets partition 0 and ROW_BAD_PARTITION in
    ``row_status``. Returns how many rows got ``sticky_partition``.
    """
    has_keys = len(key_ends) > 0
    has_given = len(given) > 0
    unkeyed = 0
    for row in range(rows):
        if has_given and is_set(given_valid, given_valid_from + row):
            partition = int(given[row])
            if partition < 0 or partition >= partition_count:
                row_status[row] = ROW_BAD_PARTITION
                partition = 0
        elif has_keys and is_set(keys_valid, keys_valid_from + row):
            hashed = murmur2_of(keys, int(key_ends[row]), int(key_ends[row + 1]))
            partition = (hashed & 0x7FFF_FFFF) % partition_count
        else:
            partition = sticky_partition
            unkeyed += 1
        partitions[row] = partition
    return unkeyed


@kernel("i64", "i64", "in32", "out64", "out32")
def sort_by_partition(
    rows: int, partition_count: int, partitions: Array, starts: Array, order: Array
) -> int:
    """Fill ``order`` with the row numbers, sorted by partition; the sort is stable.

    ``starts`` has ``partition_count`` + 1 elements, all zero before the call. The call sets them to
    the index in ``order`` of each partition's first row, and the last one to the row count. Returns
    the number of partitions that have rows.
    """
    for row in range(rows):
        starts[int(partitions[row])] += 1
    place = 0
    used = 0
    for partition in range(partition_count):
        size = int(starts[partition])
        used += 1 if size else 0
        starts[partition] = place
        place += size
    for row in range(rows):
        partition = int(partitions[row])
        order[int(starts[partition])] = row
        starts[partition] += 1
    # The loop above advanced starts[p] to the end of partition p, the start of partition p + 1.
    for partition in range(partition_count, 0, -1):
        starts[partition] = starts[partition - 1]
    starts[0] = 0
    return used
