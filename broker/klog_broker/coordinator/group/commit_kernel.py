"""Committed offsets of __consumer_offsets, read in compiled code: many batches in one call.

A run is neighbouring batches that have nothing but committed offsets and their tombstones, none of
them in a transaction. The kernel ends a run at anything else, and at whatever it cannot read: the
caller applies that batch record by record, which also finds the words for what is wrong with it.

Rows are sorted by group and topic, and those of one pair keep the log's order. Between two pairs
the order makes no difference to what a shard keeps.
"""

from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import (
    byte_at,
    copy_bytes,
    read_i16,
    read_i32,
    write_i32,
    write_i64,
)
from pyspark_klog.records.kernels.records import check_headers, is_utf8, read_record
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    MAGIC,
    RECORD_COUNT,
    TABLE_COLUMNS,
)
from pyspark_klog.records.kernels.status import OK
from pyspark_klog.records.layout import (
    CONTROL_BIT,
    INT64_MAX,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    TRANSACTIONAL_BIT,
)

# --- a pair of group and topic, in ``pairs`` -----------------------------------------------------
PAIR_GROUP_AT = 0
PAIR_GROUP_END = 1
PAIR_TOPIC_AT = 2
PAIR_TOPIC_END = 3
PAIR_ROWS = 4  # the number of the first of its rows, once the run is sorted
PAIR_ROWS_END = 5
PAIR_TOMBSTONES = 6  # how many of its rows are
PAIR_PUBLIC = 7  # those before are for the caller
_PAIR_HASH = 7
_PAIR_SLOT = 8
PAIR_COLUMNS = 9

# --- a row as it is found, in ``found`` ----------------------------------------------------------
_FOUND_PAIR = 0
_FOUND_PARTITION = 1
_FOUND_OFFSET = 2  # of the record
_FOUND_VALUE_AT = 3  # behind the version; -1 for a tombstone
_FOUND_VERSION = 4
_FOUND_TEXT_AT = 5
_FOUND_TEXT_END = 6
_FOUND_ID_AT = 7  # -1: the record has no topic id
FOUND_COLUMNS = 8

# --- a sorted row: its partition in ``partitions``, and in ``texts`` -----------------------------
TEXT_AT = 0  # where the metadata lies; -1 for a tombstone
TEXT_END = 1
TEXT_COLUMNS = 2

# --- a sorted row in ``packed``: big-endian (group/packed_offsets.py) ----------------------------
PACKED_OFFSET_AT = 0
PACKED_COMMIT_MS_AT = 8
PACKED_EXPIRE_MS_AT = 16
PACKED_RECORD_OFFSET_AT = 24
PACKED_LEADER_EPOCH_AT = 32
PACKED_TOPIC_ID_AT = 36
PACKED_BYTES = 52

# --- where a walk is, in ``state``: the next call goes on from there -----------------------------
STATE_ROW = 0  # of the scan's table
STATE_FROM_OFFSET = 1  # records before it do not count
STATE_PAIRS = 2
STATE_ROWS = 3
STATE_FIELDS = 4

# --- where a batch's records lie, in ``sections`` ------------------------------------------------
SECTION_AT = 0  # -1 if they are compressed and were not inflated
SECTION_END = 1
SECTION_COLUMNS = 2

_MAX_STRING_BYTES = 0x7FFF
_TOPIC_ID_BYTES = 16
_LOW_32_BITS = 0xFFFF_FFFF
_HASH_START = 0x811C_9DC5
_HASH_FACTOR = 0x0100_0193


@inline
def _hash_of(buf: Array, start: int, end: int) -> int:
    """FNV-1a, 32 bits."""
    found = _HASH_START
    for at in range(start, end):
        found = (found ^ byte_at(buf, at)) * _HASH_FACTOR & _LOW_32_BITS
    return found


@inline
def _is_same(buf: Array, at: int, other_at: int, count: int) -> bool:
    i = 0
    while i < count and byte_at(buf, at + i) == byte_at(buf, other_at + i):
        i += 1
    return i == count


@inline
def _pair_of(
    buf: Array,
    group_at: int,
    group_end: int,
    topic_at: int,
    topic_end: int,
    slots: Array,
    pairs: Array,
    count: int,
) -> tuple[int, int]:
    """The number of a group and topic, and how many pairs there are now.

    The topic's length lies between the two names, so that equal bytes are equal names.
    """
    size = topic_end - group_at
    mask = len(slots) - 1
    hashed = _hash_of(buf, group_at, topic_end)
    slot = (hashed ^ hashed >> 15) & mask
    while slots[slot] != 0:
        number = int(slots[slot]) - 1
        pair = number * PAIR_COLUMNS
        if (
            pairs[pair + _PAIR_HASH] == hashed
            and pairs[pair + PAIR_TOPIC_END] - pairs[pair + PAIR_GROUP_AT] == size
            and pairs[pair + PAIR_GROUP_END] - pairs[pair + PAIR_GROUP_AT] == group_end - group_at
            and _is_same(buf, int(pairs[pair + PAIR_GROUP_AT]), group_at, size)
        ):
            return number, count
        slot = slot + 1 & mask
    slots[slot] = count + 1
    pair = count * PAIR_COLUMNS
    pairs[pair + PAIR_GROUP_AT] = group_at
    pairs[pair + PAIR_GROUP_END] = group_end
    pairs[pair + PAIR_TOPIC_AT] = topic_at
    pairs[pair + PAIR_TOPIC_END] = topic_end
    pairs[pair + PAIR_ROWS_END] = 0
    pairs[pair + PAIR_TOMBSTONES] = 0
    pairs[pair + _PAIR_HASH] = hashed
    pairs[pair + _PAIR_SLOT] = slot
    return count, count + 1


@inline
def _forget_pairs(slots: Array, pairs: Array, first: int, end: int) -> None:
    """Take the youngest pairs out of the slots."""
    for number in range(end - 1, first - 1, -1):
        slots[pairs[number * PAIR_COLUMNS + _PAIR_SLOT]] = 0


@inline
def _read_names(buf: Array, at: int, end: int) -> tuple[int, int, int, int]:
    """Of a committed offset's key: the ends of group and topic and where these begin; all -1 if it
    is no such key, or cannot be read."""
    # Version and two lengths of two bytes, and a partition of four.
    if end - at < 10:
        return -1, -1, -1, -1
    version = read_i16(buf, at)
    if version < 0 or version > 1:
        return -1, -1, -1, -1
    group_at = at + 4
    length = read_i16(buf, at + 2)
    if length < 0 or length > end - group_at - 6:
        return -1, -1, -1, -1
    group_end = group_at + length
    topic_at = group_end + 2
    length = read_i16(buf, group_end)
    if length < 0 or length > end - topic_at - 4:
        return -1, -1, -1, -1
    topic_end = topic_at + length
    if not is_utf8(buf, group_at, group_end) or not is_utf8(buf, topic_at, topic_end):
        return -1, -1, -1, -1
    return group_at, group_end, topic_at, topic_end


@inline
def _read_value(buf: Array, at: int, end: int) -> tuple[int, int, int, int]:
    """Of a committed offset's value: its version, start and end of the metadata, and where the
    topic's id lies (-1: nowhere). The version is -1 if it cannot be read."""
    nothing = (-1, 0, 0, -1)
    if end - at < 2:
        return nothing
    version = read_i16(buf, at)
    if version < 0 or version > 4:
        return nothing
    text_at = at + 10  # behind the offset
    if version >= 3:
        text_at += 4  # the leader epoch
    if version < 4:
        if end - text_at < 2:
            return nothing
        length = read_i16(buf, text_at)
        text_at += 2
    else:
        if end - text_at < 3:
            return nothing
        # A length of more than three bytes is too long for a string.
        length = byte_at(buf, text_at)
        text_at += 1
        if length >= 0x80:
            second = byte_at(buf, text_at)
            length = length & 0x7F | (second & 0x7F) << 7
            text_at += 1
            if second >= 0x80:
                third = byte_at(buf, text_at)
                if third >= 0x80:
                    return nothing
                length |= third << 14
                text_at += 1
        length -= 1
    rest = 16 if version == 1 else 9 if version == 4 else 8  # times, and the number of tags
    if length < 0 or length > _MAX_STRING_BYTES or length > end - text_at - rest:
        return nothing
    text_end = text_at + length
    if not is_utf8(buf, text_at, text_end):
        return nothing
    id_at = -1
    if version == 4:
        tags_at = text_end + 8
        if byte_at(buf, tags_at) != 0:
            # Nothing but the one tagged field that is known: one field, tag 0, its size.
            id_at = tags_at + 3
            if (
                end - id_at < _TOPIC_ID_BYTES
                or byte_at(buf, tags_at) != 1
                or byte_at(buf, tags_at + 1) != 0
                or byte_at(buf, tags_at + 2) != _TOPIC_ID_BYTES
            ):
                return nothing
    return version, text_at, text_end, id_at


@inline
def _read_batch(
    buf: Array,
    table: Array,
    row: int,
    at: int,
    end: int,
    slots: Array,
    pairs: Array,
    pair_count: int,
    found: Array,
    rows: int,
) -> tuple[int, int, int]:
    """Note a batch's records, from row ``rows`` on: whether all of them are known, how many pairs
    and how many rows there are then."""
    base_offset = int(table[row + BASE_OFFSET])
    last_offset = int(table[row + LAST_OFFSET])
    count = int(table[row + RECORD_COUNT])
    if count > (end - at) // MIN_RECORD_BYTES or count > len(found) // FOUND_COLUMNS - rows:
        return 0, pair_count, rows
    for _ in range(count):
        status, record_end, _, delta, key_at, key_bytes, value_at, value_bytes, headers, rest_at = (
            read_record(buf, at, end)
        )
        if status != OK or delta < 0 or delta > last_offset - base_offset:
            return 0, pair_count, rows
        if headers != 0 and check_headers(buf, rest_at, record_end, headers) != OK:
            return 0, pair_count, rows
        at = record_end
        if key_bytes < 0:
            continue  # as everywhere: what has no key says nothing
        group_at, group_end, topic_at, topic_end = _read_names(buf, key_at, key_at + key_bytes)
        if group_at < 0:
            return 0, pair_count, rows
        value_end = value_at + value_bytes
        to = rows * FOUND_COLUMNS
        if value_bytes < 0:
            found[to + _FOUND_VALUE_AT] = -1
        else:
            version, text_at, text_end, id_at = _read_value(buf, value_at, value_end)
            if version < 0:
                return 0, pair_count, rows
            found[to + _FOUND_VALUE_AT] = value_at + 2
            found[to + _FOUND_VERSION] = version
            found[to + _FOUND_TEXT_AT] = text_at
            found[to + _FOUND_TEXT_END] = text_end
            found[to + _FOUND_ID_AT] = id_at
        number, pair_count = _pair_of(
            buf, group_at, group_end, topic_at, topic_end, slots, pairs, pair_count
        )
        found[to + _FOUND_PAIR] = number
        found[to + _FOUND_PARTITION] = read_i32(buf, topic_end)
        found[to + _FOUND_OFFSET] = base_offset + delta
        rows += 1
    return 1 if at == end else 0, pair_count, rows


@inline
def _pack(buf: Array, found: Array, at: int, packed: Array, to: int) -> None:
    """Write a row's fixed fields; most of them are in the record as they are wanted."""
    value_at = int(found[at + _FOUND_VALUE_AT])
    version = int(found[at + _FOUND_VERSION])
    text_end = int(found[at + _FOUND_TEXT_END])
    id_at = int(found[at + _FOUND_ID_AT])
    copy_bytes(packed, to + PACKED_OFFSET_AT, buf, value_at, 8)
    copy_bytes(packed, to + PACKED_COMMIT_MS_AT, buf, text_end, 8)
    if version == 1:
        copy_bytes(packed, to + PACKED_EXPIRE_MS_AT, buf, text_end + 8, 8)
    else:
        write_i64(packed, to + PACKED_EXPIRE_MS_AT, -1)
    write_i64(packed, to + PACKED_RECORD_OFFSET_AT, int(found[at + _FOUND_OFFSET]))
    if version >= 3:
        copy_bytes(packed, to + PACKED_LEADER_EPOCH_AT, buf, value_at + 8, 4)
    else:
        write_i32(packed, to + PACKED_LEADER_EPOCH_AT, -1)
    if id_at >= 0:
        copy_bytes(packed, to + PACKED_TOPIC_ID_AT, buf, id_at, _TOPIC_ID_BYTES)
    else:
        write_i64(packed, to + PACKED_TOPIC_ID_AT, 0)
        write_i64(packed, to + PACKED_TOPIC_ID_AT + 8, 0)


@inline
def _sort(
    buf: Array,
    found: Array,
    first_row: int,
    rows: int,
    pairs: Array,
    first_pair: int,
    pair_count: int,
    partitions: Array,
    texts: Array,
    packed: Array,
) -> None:
    """Write the run's rows pair by pair."""
    for row in range(first_row, rows):
        at = row * FOUND_COLUMNS
        pair = int(found[at + _FOUND_PAIR]) * PAIR_COLUMNS
        pairs[pair + PAIR_ROWS_END] += 1
        if found[at + _FOUND_VALUE_AT] < 0:
            pairs[pair + PAIR_TOMBSTONES] += 1
    next_row = first_row
    for number in range(first_pair, pair_count):
        pair = number * PAIR_COLUMNS
        count = int(pairs[pair + PAIR_ROWS_END])
        pairs[pair + PAIR_ROWS] = next_row
        pairs[pair + PAIR_ROWS_END] = next_row
        next_row += count
    for row in range(first_row, rows):
        at = row * FOUND_COLUMNS
        pair = int(found[at + _FOUND_PAIR]) * PAIR_COLUMNS
        to = int(pairs[pair + PAIR_ROWS_END])
        pairs[pair + PAIR_ROWS_END] = to + 1
        partitions[to] = found[at + _FOUND_PARTITION]
        if found[at + _FOUND_VALUE_AT] < 0:
            texts[to * TEXT_COLUMNS + TEXT_AT] = -1
            texts[to * TEXT_COLUMNS + TEXT_END] = -1
        else:
            texts[to * TEXT_COLUMNS + TEXT_AT] = found[at + _FOUND_TEXT_AT]
            texts[to * TEXT_COLUMNS + TEXT_END] = found[at + _FOUND_TEXT_END]
            _pack(buf, found, at, packed, to * PACKED_BYTES)


@kernel("in8", *["in64"] * 2, *["out64"] * 5, "out8", "out64")
def read_run(
    buf: Array,
    table: Array,
    sections: Array,
    slots: Array,
    pairs: Array,
    found: Array,
    partitions: Array,
    texts: Array,
    packed: Array,
    state: Array,
) -> int:
    """Read batches from STATE_ROW on, up to one that is no part of a run or to the table's end.

    ``table`` is a scan's, whose CRCs were right; ``sections`` says where in ``buf`` each batch's
    records lie. ``slots`` are all 0, before and after, and a power of two, at least twice as many
    as there can be rows; ``pairs`` has room for as many as ``found``. Returns OK.
    """
    row = int(state[STATE_ROW])
    from_offset = int(state[STATE_FROM_OFFSET])
    first_pair = pair_count = int(state[STATE_PAIRS])
    first_row = rows = int(state[STATE_ROWS])
    while row < len(table) // TABLE_COLUMNS:
        at = row * TABLE_COLUMNS
        if table[at + MAGIC] != MAGIC_V2 or table[at + LAST_OFFSET] == INT64_MAX:
            break
        # A batch without records has none, whatever follows its header.
        if table[at + RECORD_COUNT] != 0:
            section_at = int(sections[row * SECTION_COLUMNS + SECTION_AT])
            if (
                section_at < 0
                or table[at + ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)
                or table[at + BASE_OFFSET] < from_offset
            ):
                break
            is_known, pairs_now, rows_now = _read_batch(
                buf,
                table,
                at,
                section_at,
                int(sections[row * SECTION_COLUMNS + SECTION_END]),
                slots,
                pairs,
                pair_count,
                found,
                rows,
            )
            if is_known == 0:
                _forget_pairs(slots, pairs, pair_count, pairs_now)
                break
            pair_count = pairs_now
            rows = rows_now
        if table[at + LAST_OFFSET] >= from_offset:
            from_offset = int(table[at + LAST_OFFSET]) + 1
        row += 1
    _forget_pairs(slots, pairs, first_pair, pair_count)
    _sort(buf, found, first_row, rows, pairs, first_pair, pair_count, partitions, texts, packed)
    state[STATE_ROW] = row
    state[STATE_FROM_OFFSET] = from_offset
    state[STATE_PAIRS] = pair_count
    state[STATE_ROWS] = rows
    return OK
