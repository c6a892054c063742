"""Compiled code (a kernel) that decodes many batches of committed offsets in one call.

A run is a sequence of adjacent batches of __consumer_offsets that contain only committed offsets
and their tombstones, outside of transactions. The kernel ends the run at any other batch, and at a
batch that it cannot decode. The caller applies the batch that ended the run record by record, and
so finds what is wrong with the batch.

The kernel writes one row for each record of a run that has a key. The rows are sorted by pairs of
group and topic; the rows of one pair stay in the order of the log. The order of rows of different
pairs does not matter, because each row changes only the offsets of its own pair.
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

# --- columns of ``pairs``: a group and a topic that occur together in the key of an offset -------
PAIR_GROUP_AT = 0
PAIR_GROUP_END = 1
PAIR_TOPIC_AT = 2
PAIR_TOPIC_END = 3
PAIR_ROWS = 4  # index of the first record of this group and topic, once sorted by pair
PAIR_ROWS_END = 5
PAIR_TOMBSTONES = 6  # how many of the pair's rows are tombstones
PAIR_PUBLIC = 7  # number of the columns that the caller reads
_PAIR_HASH = 7
_PAIR_SLOT = 8
PAIR_COLUMNS = 9

# --- columns of ``found``, the array of decoded records: one row for each, in the log's order ----
_FOUND_PAIR = 0
_FOUND_PARTITION = 1
_FOUND_OFFSET = 2  # the record's offset in __consumer_offsets
_FOUND_VALUE_AT = 3  # position of the record's value, after its version; -1 for a tombstone
_FOUND_VERSION = 4
_FOUND_TEXT_AT = 5
_FOUND_TEXT_END = 6
_FOUND_ID_AT = 7  # position of the value's topic id; -1 if the value has none
FOUND_COLUMNS = 8

# --- columns of ``texts``: positions of the commits' metadata, sorted by pair of group and topic --
TEXT_AT = 0  # start of the commit's metadata; -1 for a tombstone
TEXT_END = 1
TEXT_COLUMNS = 2

# --- byte positions in a row of ``packed``: fields of a committed offset (packed_offsets.py) -----
PACKED_OFFSET_AT = 0
PACKED_COMMIT_MS_AT = 8
PACKED_EXPIRE_MS_AT = 16
PACKED_RECORD_OFFSET_AT = 24
PACKED_LEADER_EPOCH_AT = 32
PACKED_TOPIC_ID_AT = 36
PACKED_BYTES = 52

# --- fields of ``state``: where the next call of read_run continues ------------------------------
STATE_ROW = 0  # the next batch to decode: its row in ``table``, which has one row per batch
STATE_FROM_OFFSET = 1  # records before it are applied already: decode no batch with such a record
STATE_PAIRS = 2
STATE_ROWS = 3
STATE_FIELDS = 4

# --- columns of ``sections``: where each batch's records are in ``buf`` --------------------------
SECTION_AT = 0  # -1 if the batch's compressed records were not decompressed
SECTION_END = 1
SECTION_COLUMNS = 2

_MAX_STRING_BYTES = 0x7FFF
_TOPIC_ID_BYTES = 16
_LOW_32_BITS = 0xFFFF_FFFF
_HASH_START = 0x811C_9DC5
_HASH_FACTOR = 0x0100_0193


@inline
def _hash_of(buf: Array, start: int, end: int) -> int:
    """Compute the 32-bit FNV-1a hash of the bytes from ``start`` to ``end``."""
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
    """Find or add a pair of group and topic; returns the pair's number and the count of pairs.

    The compared bytes include the topic's length field between the two names, so equal bytes mean
    equal names.
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
    """Remove the newest pairs, which have the numbers from ``first`` to ``end`` (exclusive), from
    the hash table ``slots``."""
    for number in range(end - 1, first - 1, -1):
        slots[pairs[number * PAIR_COLUMNS + _PAIR_SLOT]] = 0


@inline
def _read_names(buf: Array, at: int, end: int) -> tuple[int, int, int, int]:
    """Find the start and end of group and topic in the key of a committed offset.

    Returns -1 four times if the key is of another kind, or is invalid.
    """
    # A key has a version and two lengths of two bytes each, and a partition of four bytes.
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
    """Find the fields in the value of a committed offset.

    Returns the version, the start and end of the metadata, and the position of the topic id or -1.
    The version is -1 if the value is invalid.
    """
    nothing = (-1, 0, 0, -1)
    if end - at < 2:
        return nothing
    version = read_i16(buf, at)
    if version < 0 or version > 4:
        return nothing
    text_at = at + 10  # after the version and the offset
    if version >= 3:
        text_at += 4  # after the leader epoch
    if version < 4:
        if end - text_at < 2:
            return nothing
        length = read_i16(buf, text_at)
        text_at += 2
    else:
        if end - text_at < 3:
            return nothing
        # A length field of four or more bytes would exceed the longest string: invalid.
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
    # The bytes after the metadata: one or two timestamps, and in version 4 the count of tagged
    # fields.
    rest = 16 if version == 1 else 9 if version == 4 else 8
    if length < 0 or length > _MAX_STRING_BYTES or length > end - text_at - rest:
        return nothing
    text_end = text_at + length
    if not is_utf8(buf, text_at, text_end):
        return nothing
    id_at = -1
    if version == 4:
        tags_at = text_end + 8
        if byte_at(buf, tags_at) != 0:
            # Accept only the topic id as tagged field: a count of 1, tag 0, size 16.
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
    """Decode a batch's records into the array ``found``, from row ``rows`` on.

    Returns three numbers: 1 if all records were decoded, or else 0; the new count of pairs; and the
    new count of rows.
    """
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
            continue  # records without a key are ignored, like in Shard.replay
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
    """Write the fields of fixed size of a committed offset (all except its metadata) to the array
    ``packed``, from byte ``to`` on.

    Most fields are copied, because they have the same encoding in the record's value.
    """
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
    """Write the decoded records, the rows of ``found`` from ``first_row`` on, to three arrays,
    sorted by pair of group and topic: partition numbers to ``partitions``, positions of the
    commits' metadata to ``texts``, and all other fields to ``packed``."""
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
    """Decode batches from STATE_ROW on, up to the first batch that is part of a transaction, has
    other records than committed offsets, begins before STATE_FROM_OFFSET, does not fit into
    ``found``, or cannot be decoded.

    ``table`` has one row for each batch, from a scan (kernels/scan.py) that found all CRCs right.
    ``sections`` says where in ``buf`` each batch's records are. ``slots`` is a hash table of pairs,
    all 0 before and after the call; its length is a power of two, and at least twice the number of
    possible rows. ``pairs`` has space for as many entries as ``found``. Always returns the status
    OK.
    """
    row = int(state[STATE_ROW])
    from_offset = int(state[STATE_FROM_OFFSET])
    first_pair = pair_count = int(state[STATE_PAIRS])
    first_row = rows = int(state[STATE_ROWS])
    while row < len(table) // TABLE_COLUMNS:
        at = row * TABLE_COLUMNS
        if table[at + MAGIC] != MAGIC_V2 or table[at + LAST_OFFSET] == INT64_MAX:
            break
        # A batch with a record count of 0 has no records, whatever bytes follow its header.
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
