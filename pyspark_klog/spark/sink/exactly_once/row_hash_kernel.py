"""128-bit hashes of rows, summed over a batch of Arrow columns.

A row's hash is MurmurHash3_x64_128 (Austin Appleby's, in the public domain; seed 0) of the row
written as blocks of two words of 64 bits, lowest byte first:

- the lengths plus 1 (0: null), each in 32 bits: value and key; topic and the number of headers
- the bytes of value, key and topic, each filled up with zeros to whole blocks
- for each header the lengths plus 1 of key and value, 64 bits each, then the bytes of both likewise
- if there is a timestamp or a partition: the timestamp in microseconds; the partition in the low
  32 bits, and above them 1 if there is a partition, 2 if there is a timestamp

Every block's meaning follows from the blocks before it and from their number, which the hash takes
in last: no two rows are written alike, whatever their bytes and columns.
"""

from pyspark_klog.records.kernels.jit import COMPILED, Array, hot, inline, kernel
from pyspark_klog.records.kernels.memory import byte_at, load_i64, load_u32
from pyspark_klog.records.kernels.partition import is_set

# Indices into argument ``settings`` of `add_row_hashes`: the position of the first row's bit in the
# validity bitmap of each column.
VALUES_VALID_FROM = 0
KEYS_VALID_FROM = 1
TOPICS_VALID_FROM = 2
LISTS_VALID_FROM = 3
HEADER_KEYS_VALID_FROM = 4
HEADER_VALUES_VALID_FROM = 5
TIMESTAMPS_VALID_FROM = 6
PARTITIONS_VALID_FROM = 7
SETTING_FIELDS = 8

# Indices into argument ``sums`` of `add_row_hashes`: 0 to 3 are the sums of the hashes' quarters of
# 32 bits, lowest first, which 2^31 rows do not overflow; SUM_BYTES is the size of all values, keys
# and headers.
SUM_BYTES = 4
SUM_FIELDS = 5

# Murmur3's factors as signed numbers of 64 bits, and the constants that a round of the hash adds to
# the two halves of its 128-bit state.
_FACTOR_1 = 0x87C3_7B91_1142_53D5 - 2**64
_FACTOR_2 = 0x4CF5_AD43_2745_937F
_ADDED_1 = 0x52DC_E729
_ADDED_2 = 0x3849_5AB5
_LAST_FACTOR_1 = 0xFF51_AFD7_ED55_8CCD - 2**64
_LAST_FACTOR_2 = 0xC4CE_B9FE_1A85_EC53 - 2**64
_LOW_32 = 0xFFFF_FFFF
BLOCK_BYTES = 16
HAS_PARTITION = 1
HAS_TIMESTAMP = 2


def _wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _no_wrap(number: int) -> int:
    return number


# Compiled signed numbers of 64 bits wrap by themselves; Python's numbers need `_wrap`.
wrap = inline(_no_wrap) if COMPILED else _wrap


@hot
def _right(word: int, bits: int) -> int:
    """``word`` shifted to the right by 1 to 63 bits, zeros from the left."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


@hot
def _rotated(word: int, bits: int) -> int:
    return wrap(word << bits) | _right(word, 64 - bits)


@hot
def _round_1(first: int, second: int, word: int) -> int:
    """The first half of Murmur3's 128-bit state after the first ``word`` of a block; ``first`` and
    ``second`` are the halves before it."""
    word = wrap(_rotated(wrap(word * _FACTOR_1), 31) * _FACTOR_2)
    return wrap(wrap(_rotated(first ^ word, 27) + second) * 5 + _ADDED_1)


@hot
def _round_2(first: int, second: int, word: int) -> int:
    """The second half of Murmur3's 128-bit state after a block's second ``word``; ``first`` is the
    first half that _round_1 returned, ``second`` the second half before the block."""
    word = wrap(_rotated(wrap(word * _FACTOR_2), 33) * _FACTOR_1)
    return wrap(wrap(_rotated(second ^ word, 31) + first) * 5 + _ADDED_2)


@hot
def _finished(half: int) -> int:
    half ^= _right(half, 33)
    half = wrap(half * _LAST_FACTOR_1)
    half ^= _right(half, 33)
    half = wrap(half * _LAST_FACTOR_2)
    return half ^ _right(half, 33)


@hot
def _last_word(buf: Array, at: int, count: int) -> int:
    """The ``count`` bytes at ``at`` (0 to 8 bytes) as a 64-bit number, lowest byte first, filled up
    with zeros."""
    if count == 8:
        return load_i64(buf, at)
    if count >= 4:
        high = load_u32(buf, at + count - 4) >> 8 * (8 - count)
        return wrap(high << 32) | load_u32(buf, at)
    word = 0
    for i in range(count):
        word |= byte_at(buf, at + i) << 8 * i
    return word


@hot
def _with_block(state: tuple[int, int], low: int, high: int) -> tuple[int, int]:
    first = _round_1(state[0], state[1], low)
    return first, _round_2(first, state[1], high)


@hot
def _with_bytes(state: tuple[int, int], buf: Array, at: int, end: int) -> tuple[int, int]:
    while end - at >= BLOCK_BYTES:
        state = _with_block(state, load_i64(buf, at), load_i64(buf, at + 8))
        at += BLOCK_BYTES
    left = end - at
    if left > 8:
        return _with_block(state, load_i64(buf, at), _last_word(buf, at + 8, left - 8))
    if left > 0:
        return _with_block(state, _last_word(buf, at, left), 0)
    return state


@hot
def _blocks(count: int) -> int:
    """The number of Murmur3's blocks of 16 bytes that ``count`` bytes take."""
    return (count + BLOCK_BYTES - 1) // BLOCK_BYTES


@hot
def _length(ends: Array, valid: Array, valid_from: int, row: int) -> int:
    """The number of a field's bytes, or of a row's headers; -1 for null or a missing column."""
    if len(ends) > 0 and is_set(valid, valid_from + row):
        return int(ends[row + 1]) - int(ends[row])
    return -1


@hot
def _at(ends: Array, row: int) -> int:
    """The position at which a row's field begins in its column; 0 for a missing column."""
    return int(ends[row]) if len(ends) > 0 else 0


@kernel(
    *("i64", "in64"),
    *("in32", "in8", "in8", "in32", "in8", "in8", "in32", "in8", "in8"),
    *("in32", "in8", "in32", "in8", "in8", "in32", "in8", "in8"),
    *("in64", "in8", "in32", "in8", "out64"),
)
def add_row_hashes(
    rows: int,
    settings: Array,
    value_ends: Array,
    values: Array,
    values_valid: Array,
    key_ends: Array,
    keys: Array,
    keys_valid: Array,
    topic_ends: Array,
    topics: Array,
    topics_valid: Array,
    header_ends: Array,
    header_lists_valid: Array,
    header_key_ends: Array,
    header_keys: Array,
    header_keys_valid: Array,
    header_value_ends: Array,
    header_values: Array,
    header_values_valid: Array,
    timestamps_us: Array,
    timestamps_valid: Array,
    partitions: Array,
    partitions_valid: Array,
    sums: Array,
) -> int:
    """Add the hashes of the rows, and the sizes of their values, keys and headers, to ``sums``;
    return the number of rows.

    The arrays of a missing column are empty: its ``*_ends``, or ``timestamps_us`` or
    ``partitions``. The first row's bit in a ``*_valid`` bitmap is the ``*_VALID_FROM`` of
    ``settings``; an empty bitmap means that no row is null.
    """
    values_from = int(settings[VALUES_VALID_FROM])
    keys_from = int(settings[KEYS_VALID_FROM])
    topics_from = int(settings[TOPICS_VALID_FROM])
    lists_from = int(settings[LISTS_VALID_FROM])
    header_keys_from = int(settings[HEADER_KEYS_VALID_FROM])
    header_values_from = int(settings[HEADER_VALUES_VALID_FROM])
    timestamps_from = int(settings[TIMESTAMPS_VALID_FROM])
    partitions_from = int(settings[PARTITIONS_VALID_FROM])
    sum_0 = int(sums[0])
    sum_1 = int(sums[1])
    sum_2 = int(sums[2])
    sum_3 = int(sums[3])
    byte_count = int(sums[SUM_BYTES])
    for row in range(rows):
        value_bytes = _length(value_ends, values_valid, values_from, row)
        key_bytes = _length(key_ends, keys_valid, keys_from, row)
        topic_bytes = _length(topic_ends, topics_valid, topics_from, row)
        header_count = _length(header_ends, header_lists_valid, lists_from, row)
        blocks = 1 + _blocks(max(value_bytes, 0)) + _blocks(max(key_bytes, 0))
        blocks += _blocks(max(topic_bytes, 0))
        byte_count += max(value_bytes, 0) + max(key_bytes, 0)
        state = _with_block(
            (0, 0),
            wrap(key_bytes + 1 << 32) | value_bytes + 1,
            wrap(header_count + 1 << 32) | topic_bytes + 1,
        )
        at = _at(value_ends, row)
        state = _with_bytes(state, values, at, at + value_bytes)
        at = _at(key_ends, row)
        state = _with_bytes(state, keys, at, at + key_bytes)
        at = _at(topic_ends, row)
        state = _with_bytes(state, topics, at, at + topic_bytes)
        if header_count > 0:
            for header in range(int(header_ends[row]), int(header_ends[row]) + header_count):
                key_bytes = _length(header_key_ends, header_keys_valid, header_keys_from, header)
                value_bytes = _length(
                    header_value_ends, header_values_valid, header_values_from, header
                )
                blocks += 1 + _blocks(max(key_bytes, 0)) + _blocks(max(value_bytes, 0))
                byte_count += max(key_bytes, 0) + max(value_bytes, 0)
                state = _with_block(state, key_bytes + 1, value_bytes + 1)
                at = int(header_key_ends[header])
                state = _with_bytes(state, header_keys, at, at + key_bytes)
                at = int(header_value_ends[header])
                state = _with_bytes(state, header_values, at, at + value_bytes)
        flags = 0
        timestamp_us = 0
        partition = 0
        if len(timestamps_us) > 0 and is_set(timestamps_valid, timestamps_from + row):
            flags = HAS_TIMESTAMP
            timestamp_us = int(timestamps_us[row])
        if len(partitions) > 0 and is_set(partitions_valid, partitions_from + row):
            flags |= HAS_PARTITION
            partition = int(partitions[row]) & _LOW_32
        if flags:
            blocks += 1
            state = _with_block(state, timestamp_us, flags << 32 | partition)
        # The finalization of MurmurHash3.
        first = state[0] ^ blocks * BLOCK_BYTES
        second = state[1] ^ blocks * BLOCK_BYTES
        first = wrap(first + second)
        second = wrap(second + first)
        first = _finished(first)
        second = _finished(second)
        first = wrap(first + second)
        second = wrap(second + first)
        sum_0 += first & _LOW_32
        sum_1 += _right(first, 32)
        sum_2 += second & _LOW_32
        sum_3 += _right(second, 32)
    sums[0] = sum_0
    sums[1] = sum_1
    sums[2] = sum_2
    sums[3] = sum_3
    sums[SUM_BYTES] = byte_count
    return rows
