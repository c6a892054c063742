"""Compiled loops of compaction: map keys to offsets, and filter superseded records.

The map identifies a key by a hash of 128 bits (SipHash-2-4) under a secret random key. Two keys
with the same hash would lose data, so no producer may be able to make such a pair. The map is one
array of int64, divided into slots of SLOT_WORDS numbers. A slot has one key, or is empty. A look-up
tries the slots one after the other.

The kernels add_rows and filter_rows go through the batches of a chunk; the table of kernels.scan
has a row for each batch. Both read and hash some records ahead, and prefetch their slots before
they look them up, because a large map fits into no cache of the processor.
"""

from pyspark_klog.records.kernels.crc import crc32c
from pyspark_klog.records.kernels.jit import COMPILED, Array, hot, inline, kernel
from pyspark_klog.records.kernels.memory import (
    byte_at,
    copy_bytes,
    load_i64,
    prefetch,
    write_i32,
    write_i64,
)
from pyspark_klog.records.kernels.records import add_wrapped, check_headers, read_record
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP_MS,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP_MS,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
    TABLE_COLUMNS,
)
from pyspark_klog.records.kernels.status import (
    BAD_COUNT,
    BAD_SECTION_END,
    FULL,
    NOT_PLAIN,
    OFFSET_OVERFLOW,
    OFFSETS_DO_NOT_RISE,
    OK,
)
from pyspark_klog.records.kernels.varints import (
    read_varint,
    read_varlong,
    varint_size,
    varlong_size,
    write_varint,
    write_varlong,
)
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CRC_START_AT,
    DELETE_HORIZON_BIT,
    INT64_MAX,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    MIN_RECORD_BYTES,
    NO_TIMESTAMP_MS,
    RECORD_COUNT_AT,
    RECORDS_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

# --- the fields of a slot (the place of one key) in the map of keys, in int64 numbers ------------
SLOT_HASH = 0  # two words
SLOT_OFFSET = 2  # the key's last offset plus one; 0 marks an empty slot
SLOT_WORDS = 3

# --- the verdict on a batch, in bits; with neither KEEP_ nor DROP_RECORDS each key is looked up ---
KEEP_RECORDS = 1
DROP_RECORDS = 2
RETAIN_EMPTY = 4  # if no record is left, the batch's header stays
SET_HORIZON = 8  # a batch that keeps records gets a delete horizon if it has none

# --- the fields of ``state``, in which add_rows and filter_rows return results -------------------
STATE_ROW = 0  # the row (batch) at which the kernel stopped; the next call continues there
STATE_RECORD = 1  # the record of that row to which a returned error status belongs
STATE_LATEST_OFFSET = 2  # the largest last offset of the batches that add_rows has completed
STATE_KEYS = 3  # number of keys in the map; add_rows and put_key increase it
STATE_OUT_END = 4  # end of the bytes in ``out``; filter_rows increases it
STATE_NEEDED_BYTES = 5  # with status FULL (``out`` is full): bytes that the next batch needs
STATE_RECORDS_READ = 6  # filter_rows adds the record count of each batch to this field
STATE_RECORDS_KEPT = 7
STATE_FIELDS = 8

# --- the input of filter_rows, in ``settings`` ---------------------------------------------------
SETTING_HASH_LOW = 0
SETTING_HASH_HIGH = 1
SETTING_LATEST_OFFSET = 2
SETTING_NOW_MS = 3
SETTING_HORIZON_MS = 4  # the delete horizon for batches that need one and have none; 0 or more
SETTING_FIELDS = 5

# --- the value in ``sizes`` with which filter_rows says that a batch needs no change -------------
UNCHANGED = -1

# --- the input of seal_batches: SEAL_WORDS numbers for each batch whose header it corrects -------
SEAL_POSITION = 0
SEAL_SIZE_BYTES = 1
SEAL_CODEC = 2
SEAL_WORDS = 3

# --- the columns of ``block``: BLOCK_RECORDS records, read before the first key is looked up ------
BLOCK_RECORDS = 32
_BLOCK_HASH = 0  # two words
_BLOCK_OFFSET = 2
_BLOCK_TIMESTAMP_MS = 3
_BLOCK_FATE = 4
_BLOCK_COLUMNS = 5
BLOCK_WORDS = BLOCK_RECORDS * _BLOCK_COLUMNS

# The fate of a record, in column _BLOCK_FATE: dropped, kept, or decided by a look-up of its key.
# The bit _IS_TOMBSTONE is added for a record without a value.
_DROPPED = 0
_KEPT = 1
_LOOKED_UP = 2
_IS_TOMBSTONE = 4

_LOW_32_BITS = 0xFFFF_FFFF
_EMPTY_BATCH_BITS = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


# --- SipHash of a key ----------------------------------------------------------------------------
if COMPILED:

    @inline
    def _rotated(number: int, bits: int) -> int:
        """64 bits rotated to the left."""
        # The shift to the right fills the upper bits with copies of the sign bit; the mask removes
        # them.
        return number << bits | number >> 64 - bits & (1 << bits) - 1

else:

    def _rotated(number: int, bits: int) -> int:
        """64 bits rotated to the left."""
        number %= 2**64
        return ((number << bits | number >> 64 - bits) + 2**63) % 2**64 - 2**63


@hot
def _mixed(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    """Do one round of SipHash."""
    v0 = add_wrapped(v0, v1)
    v2 = add_wrapped(v2, v3)
    v1 = _rotated(v1, 13) ^ v0
    v3 = _rotated(v3, 16) ^ v2
    v2 = add_wrapped(v2, v1)
    v0 = add_wrapped(_rotated(v0, 32), v3)
    v1 = _rotated(v1, 17) ^ v2
    v3 = _rotated(v3, 21) ^ v0
    return v0, v1, _rotated(v2, 32), v3


@inline
def _hash(buf: Array, start: int, end: int, hash_low: int, hash_high: int) -> tuple[int, int]:
    """Return the 128 bits of SipHash-2-4 of the key ``buf[start:end]``, as two int64 numbers.
    ``hash_low`` and ``hash_high`` are the hash function's secret key."""
    v0 = 0x736F6D6570736575 ^ hash_low
    v1 = 0x646F72616E646F6D ^ hash_high ^ 0xEE
    v2 = 0x6C7967656E657261 ^ hash_low
    v3 = 0x7465646279746573 ^ hash_high
    at = start
    while end - at >= 8:
        word = load_i64(buf, at)
        v0, v1, v2, v3 = _mixed(*_mixed(v0, v1, v2, v3 ^ word))
        v0 ^= word
        at += 8
    size = (end - start) & 0xFF
    # Take the size as a signed byte, because the shifted number must fit into an int64.
    word = (size - (size >> 7 << 8)) << 56
    if len(buf) - at >= 8:
        word |= load_i64(buf, at) & (1 << 8 * (end - at)) - 1
    else:
        for i in range(end - at):
            word |= byte_at(buf, at + i) << 8 * i
    v0, v1, v2, v3 = _mixed(*_mixed(v0, v1, v2, v3 ^ word))
    v0 ^= word
    v0, v1, v2, v3 = _mixed(*_mixed(v0, v1, v2 ^ 0xEE, v3))
    v0, v1, v2, v3 = _mixed(*_mixed(v0, v1, v2, v3))
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _mixed(*_mixed(v0, v1 ^ 0xDD, v2, v3))
    v0, v1, v2, v3 = _mixed(*_mixed(v0, v1, v2, v3))
    return low, v0 ^ v1 ^ v2 ^ v3


# --- the slots (places of one key each) of the map of keys ----------------------------------------
@inline
def _first_place(hash_low: int, slots: int) -> int:
    """Return the position in ``keys``, the map of keys, of the slot where the search for a key's
    hash begins. ``slots``, the number of the map's slots, is below 2^31."""
    return ((hash_low & _LOW_32_BITS) * slots >> 32) * SLOT_WORDS


@inline
def _find(keys: Array, low: int, high: int) -> int:
    """Return the position in ``keys``, the map of keys, of the slot that has this hash, or of the
    empty slot that the hash would take."""
    at = _first_place(low, len(keys) // SLOT_WORDS)
    while keys[at + SLOT_OFFSET] != 0 and (
        keys[at + SLOT_HASH] != low or keys[at + SLOT_HASH + 1] != high
    ):
        at += SLOT_WORDS
        if at == len(keys):
            at = 0
    return at


@inline
def _put(keys: Array, low: int, high: int, offset: int, has_room: bool) -> int:
    """Store ``offset`` in the map for the hash of a key, unless the map has a larger offset for
    this hash. Returns 1 if the hash took an empty slot, 0 if it had a slot, and -1 if it has none
    and may not take one: the map is full (``has_room`` is false)."""
    at = _find(keys, low, high)
    before = int(keys[at + SLOT_OFFSET])
    if before == 0:
        if not has_room:
            return -1
        keys[at + SLOT_HASH] = low
        keys[at + SLOT_HASH + 1] = high
        keys[at + SLOT_OFFSET] = offset + 1
        return 1
    if offset >= before:
        keys[at + SLOT_OFFSET] = offset + 1
    return 0


@kernel("in8", "i64", "i64", "i64", "out64", "i64", "out64")
def put_key(
    key: Array,
    hash_low: int,
    hash_high: int,
    offset: int,
    keys: Array,
    most_keys: int,
    state: Array,
) -> int:
    """Store ``offset``, 0 to 2^63-2, in the map for ``key`` if it is the key's largest offset so
    far.

    Returns FULL, and stores nothing, if the map would have more than ``most_keys`` keys.
    ``most_keys`` must be below the number of the map's slots (places of one key each).
    """
    low, high = _hash(key, 0, len(key), hash_low, hash_high)
    taken = _put(keys, low, high, offset, state[STATE_KEYS] < most_keys)
    if taken < 0:
        return FULL
    state[STATE_KEYS] += taken
    return OK


@kernel("in8", "i64", "i64", "in64")
def find_key(key: Array, hash_low: int, hash_high: int, keys: Array) -> int:
    """Return the largest offset stored for ``key``; -1 if the map does not have the key."""
    low, high = _hash(key, 0, len(key), hash_low, hash_high)
    return int(keys[_find(keys, low, high) + SLOT_OFFSET]) - 1


@kernel("in64", "out64")
def move_keys(keys: Array, larger: Array) -> int:
    """Put all keys into a larger, empty map."""
    for at in range(0, len(keys), SLOT_WORDS):
        offset = int(keys[at + SLOT_OFFSET]) - 1
        if offset >= 0:
            _put(larger, int(keys[at + SLOT_HASH]), int(keys[at + SLOT_HASH + 1]), offset, True)
    return OK


# --- adding keys to the map ----------------------------------------------------------------------
@inline
def _read(
    chunk: Array, at: int, end: int, before: int, last_delta: int
) -> tuple[int, int, int, int, int, int, int]:
    """Read and check one record. Its offset delta must be above ``before``, the offset delta of the
    previous record, and at most ``last_delta``, the offset delta of the batch's last record.

    Returns status, end, timestamp delta, offset delta, key start, key length and value length.
    """
    (
        status,
        next_at,
        timestamp_delta,
        delta,
        key_at,
        key_bytes,
        _,
        value_bytes,
        headers,
        headers_at,
    ) = read_record(chunk, at, end)
    if status == OK and headers != 0:
        status = check_headers(chunk, headers_at, next_at, headers)
    if status == OK and (delta <= before or delta > last_delta):
        status = OFFSETS_DO_NOT_RISE
    return status, next_at, timestamp_delta, delta, key_at, key_bytes, value_bytes


@inline
def _note_hash(
    chunk: Array,
    start: int,
    end: int,
    hash_low: int,
    hash_high: int,
    keys: Array,
    block: Array,
    to: int,
) -> None:
    """Store a key's hash at ``to`` in ``block``, and prefetch the slot of the map where the search
    for the hash begins. ``block`` collects the hashes of some records before the first of them is
    looked up, so that the processor fetches their slots at the same time."""
    low, high = _hash(chunk, start, end, hash_low, hash_high)
    prefetch(keys, _first_place(low, len(keys) // SLOT_WORDS))
    block[to + _BLOCK_HASH] = low
    block[to + _BLOCK_HASH + 1] = high


@inline
def _add_records(
    chunk: Array,
    table: Array,
    row: int,
    from_offset: int,
    hash_low: int,
    hash_high: int,
    keys: Array,
    most_keys: int,
    block: Array,
    state: Array,
) -> int:
    """Add the keys of one batch's records to the map. Returns OK, FULL if the map has no space for
    a key, or an error status if the batch is damaged."""
    at = int(table[row + POSITION]) + RECORDS_AT
    end = int(table[row + POSITION]) + int(table[row + SIZE_BYTES])
    count = int(table[row + RECORD_COUNT])
    base_offset = int(table[row + BASE_OFFSET])
    last_delta = int(table[row + LAST_OFFSET]) - base_offset
    if count > (end - at) // MIN_RECORD_BYTES:
        return BAD_COUNT
    size = int(state[STATE_KEYS])
    before = -1
    index = 0
    status = OK
    while status == OK and index < count:
        to = 0
        stop = min(count, index + BLOCK_RECORDS)
        while index < stop:
            status, at, _, before, key_at, key_bytes, _ = _read(chunk, at, end, before, last_delta)
            if status != OK:
                break
            offset = base_offset + before
            if key_bytes >= 0 and offset >= from_offset:
                _note_hash(chunk, key_at, key_at + key_bytes, hash_low, hash_high, keys, block, to)
                block[to + _BLOCK_OFFSET] = offset
                to += _BLOCK_COLUMNS
            index += 1
        for found in range(0, to, _BLOCK_COLUMNS):
            taken = _put(
                keys,
                int(block[found + _BLOCK_HASH]),
                int(block[found + _BLOCK_HASH + 1]),
                int(block[found + _BLOCK_OFFSET]),
                size < most_keys,
            )
            if taken < 0:
                status = FULL
                break
            size += taken
    state[STATE_KEYS] = size
    state[STATE_RECORD] = index
    if status == OK and at != end:
        return BAD_SECTION_END
    return status


@kernel("in8", "in64", "i64", "i64", "in8", *["i64"] * 3, "out64", "i64", "out64", "out64")
def add_rows(
    chunk: Array,
    table: Array,
    first: int,
    rows_end: int,
    skip: Array,
    from_offset: int,
    hash_low: int,
    hash_high: int,
    keys: Array,
    most_keys: int,
    block: Array,
    state: Array,
) -> int:
    """Add the records of the batches ``first`` to ``rows_end`` (exclusive) to the map.

    Records without a key, and records before ``from_offset`` (0 or more), are not added.

    ``table`` is the table that kernels.scan made of ``chunk``, after it had checked the CRCs; it
    has a row for each batch. A row whose byte in ``skip`` is not 0 is not read. ``block`` is
    working memory of BLOCK_WORDS int64 numbers.

    Returns OK; NOT_PLAIN at a row that is compressed or of an older format; FULL at a row that
    would give the map more than ``most_keys`` keys (a number below that of the slots), after some
    of its records may have been added; or the status of a damaged row. Rows that are added
    completely, or skipped, raise STATE_LATEST_OFFSET to their last offsets, from ``from_offset``
    on.
    """
    row = first
    status = OK
    while row < rows_end:
        at = row * TABLE_COLUMNS
        last_offset = int(table[at + LAST_OFFSET])
        if byte_at(skip, row) == 0 and table[at + RECORD_COUNT] != 0:
            if table[at + MAGIC] != MAGIC_V2 or table[at + ATTRIBUTES] & CODEC_MASK:
                status = NOT_PLAIN
            elif last_offset == INT64_MAX:
                status = OFFSET_OVERFLOW
            elif last_offset >= from_offset:
                status = _add_records(
                    chunk,
                    table,
                    at,
                    from_offset,
                    hash_low,
                    hash_high,
                    keys,
                    most_keys,
                    block,
                    state,
                )
            if status != OK:
                break
        if last_offset >= from_offset and last_offset > state[STATE_LATEST_OFFSET]:
            state[STATE_LATEST_OFFSET] = last_offset
        row += 1
    state[STATE_ROW] = row
    return status


# --- filtering batches ---------------------------------------------------------------------------
@inline
def _decide(
    chunk: Array,
    table: Array,
    row: int,
    verdict: int,
    settings: Array,
    keys: Array,
    block: Array,
    marks: Array,
) -> tuple[int, int, int, int, int, int]:
    """Decide which records of a batch are kept, in a first pass over the batch.

    Returns status, number of the record that the status is about, how many records are kept, their
    bytes, their largest timestamp, and whether a tombstone is among them (0 or 1). For each record,
    ``marks`` gets its end position times two, plus one if the record is kept.
    """
    start = int(table[row + POSITION]) + RECORDS_AT
    end = int(table[row + POSITION]) + int(table[row + SIZE_BYTES])
    count = int(table[row + RECORD_COUNT])
    attributes = int(table[row + ATTRIBUTES])
    base_offset = int(table[row + BASE_OFFSET])
    last_delta = int(table[row + LAST_OFFSET]) - base_offset
    base_timestamp_ms = int(table[row + BASE_TIMESTAMP_MS])
    hash_low = int(settings[SETTING_HASH_LOW])
    hash_high = int(settings[SETTING_HASH_HIGH])
    latest_offset = int(settings[SETTING_LATEST_OFFSET])
    keeps_all = verdict & KEEP_RECORDS != 0
    drops_tombstones = (
        attributes & DELETE_HORIZON_BIT != 0 and settings[SETTING_NOW_MS] >= base_timestamp_ms
    )
    kept = 0
    kept_bytes = 0
    max_timestamp_ms = NO_TIMESTAMP_MS
    has_tombstone = 0
    if count > (end - start) // MIN_RECORD_BYTES:
        return BAD_COUNT, 0, 0, 0, 0, 0
    before = -1
    at = start
    first = 0
    while first < count:
        stop = min(count, first + BLOCK_RECORDS)
        next_at = at
        to = 0
        for index in range(first, stop):
            status, next_at, timestamp_delta, before, key_at, key_bytes, value_bytes = _read(
                chunk, next_at, end, before, last_delta
            )
            if status != OK:
                return status, index, 0, 0, 0, 0
            fate = _DROPPED
            if keeps_all or base_offset + before > latest_offset:
                fate = _KEPT
            elif key_bytes >= 0 and (value_bytes >= 0 or not drops_tombstones):
                fate = _LOOKED_UP
                _note_hash(chunk, key_at, key_at + key_bytes, hash_low, hash_high, keys, block, to)
            block[to + _BLOCK_FATE] = fate | (_IS_TOMBSTONE if value_bytes < 0 else 0)
            block[to + _BLOCK_OFFSET] = base_offset + before
            block[to + _BLOCK_TIMESTAMP_MS] = add_wrapped(base_timestamp_ms, timestamp_delta)
            marks[index] = next_at << 1
            to += _BLOCK_COLUMNS
        to = 0
        for index in range(first, stop):
            fate = int(block[to + _BLOCK_FATE])
            if fate & _LOOKED_UP:
                place = _find(keys, int(block[to + _BLOCK_HASH]), int(block[to + _BLOCK_HASH + 1]))
                if block[to + _BLOCK_OFFSET] >= keys[place + SLOT_OFFSET] - 1:
                    fate |= _KEPT
            record_end = int(marks[index]) >> 1
            if fate & _KEPT:
                marks[index] = record_end << 1 | 1
                kept += 1
                kept_bytes += record_end - at
                if block[to + _BLOCK_TIMESTAMP_MS] > max_timestamp_ms:
                    max_timestamp_ms = int(block[to + _BLOCK_TIMESTAMP_MS])
                if fate & _IS_TOMBSTONE:
                    has_tombstone = 1
            at = record_end
            to += _BLOCK_COLUMNS
        first = stop
    if at != end:
        return BAD_SECTION_END, count, 0, 0, 0, 0
    return OK, count, kept, kept_bytes, max_timestamp_ms, has_tombstone


@inline
def _retimed(
    chunk: Array, at: int, base_timestamp_ms: int, sets_all: bool, horizon_ms: int
) -> tuple[int, int]:
    """Return a record's new timestamp delta, and the position of its offset delta.

    The batch gets the base timestamp ``horizon_ms`` (its delete horizon), so the new delta counts
    from there. With ``sets_all`` (a batch of LogAppendTime) all records have the timestamp
    ``base_timestamp_ms``, whatever their old deltas.
    """
    # The first pass (_decide) has checked the two varints that are read here.
    _, at = read_varint(chunk, at, len(chunk))
    delta, at = read_varlong(chunk, at + 1, len(chunk))
    timestamp_ms = base_timestamp_ms if sets_all else add_wrapped(base_timestamp_ms, delta)
    return add_wrapped(timestamp_ms, -horizon_ms), at


@inline
def _retimed_size(
    chunk: Array,
    start: int,
    marks: Array,
    count: int,
    base_timestamp_ms: int,
    sets_all: bool,
    horizon_ms: int,
) -> int:
    """Return the total size of the batch's kept records (bit 0 of their mark is set) with the
    timestamp deltas that :func:`_write_retimed` gives them."""
    size = 0
    at = start
    for index in range(count):
        record_end = int(marks[index]) >> 1
        if marks[index] & 1:
            delta, rest_at = _retimed(chunk, at, base_timestamp_ms, sets_all, horizon_ms)
            body = 1 + varlong_size(delta) + record_end - rest_at
            size += varint_size(body) + body
        at = record_end
    return size


@inline
def _write_retimed(
    chunk: Array,
    start: int,
    marks: Array,
    count: int,
    base_timestamp_ms: int,
    sets_all: bool,
    horizon_ms: int,
    out: Array,
    to: int,
) -> None:
    """Write the batch's kept records (bit 0 of their mark is set), with timestamp deltas that count
    from ``horizon_ms``, because the batch stores its delete horizon as its base timestamp."""
    at = start
    for index in range(count):
        record_end = int(marks[index]) >> 1
        if marks[index] & 1:
            delta, rest_at = _retimed(chunk, at, base_timestamp_ms, sets_all, horizon_ms)
            to = write_varint(out, to, 1 + varlong_size(delta) + record_end - rest_at)
            out[to] = 0  # attributes
            to = write_varlong(out, to + 1, delta)
            copy_bytes(out, to, chunk, rest_at, record_end - rest_at)
            to += record_end - rest_at
        at = record_end


@inline
def _write_same(chunk: Array, start: int, marks: Array, count: int, out: Array, to: int) -> None:
    """Write the batch's kept records (bit 0 of their mark is set) unchanged; neighbouring kept
    records are copied together."""
    at = start
    from_at = start  # the first byte of kept records that are not copied yet
    for index in range(count):
        if marks[index] & 1 == 0:
            copy_bytes(out, to, chunk, from_at, at - from_at)
            to += at - from_at
            from_at = int(marks[index]) >> 1
        at = int(marks[index]) >> 1
    copy_bytes(out, to, chunk, from_at, at - from_at)


@inline
def _write_header(
    chunk: Array,
    position: int,
    out: Array,
    to: int,
    size: int,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    count: int,
) -> None:
    """Write a batch's header with some changed fields to ``out``, in front of the batch's records,
    which are there already."""
    copy_bytes(out, to, chunk, position, BATCH_HEADER_BYTES)
    write_i32(out, to + BATCH_LENGTH_AT, size - LOG_OVERHEAD_BYTES)
    out[to + ATTRIBUTES_AT] = attributes >> 8 & 0xFF
    out[to + ATTRIBUTES_AT + 1] = attributes & 0xFF
    write_i64(out, to + BASE_TIMESTAMP_AT, base_timestamp_ms)
    write_i64(out, to + MAX_TIMESTAMP_AT, max_timestamp_ms)
    write_i32(out, to + RECORD_COUNT_AT, count)
    write_i32(out, to + CRC_AT, crc32c(out, to + CRC_START_AT, to + size))


@inline
def _filter_batch(
    chunk: Array,
    table: Array,
    row: int,
    verdict: int,
    settings: Array,
    keys: Array,
    block: Array,
    marks: Array,
    out: Array,
    sizes: Array,
    number: int,
    state: Array,
) -> int:
    """Write what is kept of one batch to ``out``. Returns OK, FULL if ``out`` has not enough space,
    NOT_PLAIN for compressed records that must be read, or the status of a damaged batch."""
    position = int(table[row + POSITION])
    size_bytes = int(table[row + SIZE_BYTES])
    count = int(table[row + RECORD_COUNT])
    attributes = int(table[row + ATTRIBUTES])
    base_timestamp_ms = int(table[row + BASE_TIMESTAMP_MS])
    max_timestamp_ms = int(table[row + MAX_TIMESTAMP_MS])
    is_append_time = attributes & TIMESTAMP_TYPE_BIT != 0
    can_have_horizon = attributes & DELETE_HORIZON_BIT == 0
    kept = 0
    kept_bytes = 0
    largest_ms = NO_TIMESTAMP_MS
    sets_horizon = can_have_horizon and verdict & SET_HORIZON != 0
    is_same = False
    if count != 0 and verdict & DROP_RECORDS == 0:
        if verdict & KEEP_RECORDS and not sets_horizon:
            kept = count
            is_same = True
        elif attributes & CODEC_MASK:
            return NOT_PLAIN
        else:
            status, record, kept, kept_bytes, largest_ms, has_tombstone = _decide(
                chunk, table, row, verdict, settings, keys, block, marks
            )
            state[STATE_RECORD] = record
            if status != OK:
                return status
            if can_have_horizon and has_tombstone:
                sets_horizon = True
            is_same = kept == count and not sets_horizon
    start = position + RECORDS_AT
    horizon_ms = int(settings[SETTING_HORIZON_MS])
    timed_from_ms = max_timestamp_ms if is_append_time else base_timestamp_ms
    out_size = 0
    if is_same and len(sizes) != 0:
        pass  # filter_rows' caller copies the unchanged batch itself
    elif is_same:
        out_size = size_bytes
    elif kept != 0 and sets_horizon:
        out_size = BATCH_HEADER_BYTES + _retimed_size(
            chunk, start, marks, count, timed_from_ms, is_append_time, horizon_ms
        )
    elif kept != 0:
        out_size = BATCH_HEADER_BYTES + kept_bytes
    elif verdict & RETAIN_EMPTY:
        out_size = BATCH_HEADER_BYTES
    to = int(state[STATE_OUT_END])
    if out_size > len(out) - to:
        state[STATE_NEEDED_BYTES] = out_size
        return FULL
    if len(sizes) != 0:
        sizes[number] = UNCHANGED if is_same else out_size
    if is_same:
        copy_bytes(out, to, chunk, position, out_size)
    elif out_size != 0:
        if kept == 0:
            attributes &= _EMPTY_BATCH_BITS
            base_timestamp_ms = NO_TIMESTAMP_MS
        else:
            if not is_append_time:
                max_timestamp_ms = largest_ms
            if sets_horizon:
                _write_retimed(
                    chunk,
                    start,
                    marks,
                    count,
                    timed_from_ms,
                    is_append_time,
                    horizon_ms,
                    out,
                    to + RECORDS_AT,
                )
                attributes |= DELETE_HORIZON_BIT
                base_timestamp_ms = horizon_ms
            else:
                _write_same(chunk, start, marks, count, out, to + RECORDS_AT)
        _write_header(
            chunk,
            position,
            out,
            to,
            out_size,
            attributes,
            base_timestamp_ms,
            max_timestamp_ms,
            kept,
        )
    state[STATE_OUT_END] = to + out_size
    state[STATE_RECORDS_READ] += count
    state[STATE_RECORDS_KEPT] += kept
    return OK


@kernel("in8", "in64", "i64", "i64", "in8", "in64", "in64", *["out64"] * 2, "out8", *["out64"] * 2)
def filter_rows(
    chunk: Array,
    table: Array,
    first: int,
    rows_end: int,
    verdicts: Array,
    settings: Array,
    keys: Array,
    block: Array,
    marks: Array,
    out: Array,
    sizes: Array,
    state: Array,
) -> int:
    """Filter the batches ``first`` to ``rows_end`` (exclusive) into ``out``, at STATE_OUT_END.

    ``table`` is the table that kernels.scan made of ``chunk``, after it had checked the CRCs; it
    has a row for each batch. ``block`` is working memory of BLOCK_WORDS int64 numbers. ``marks``
    has space for as many int64 numbers as the batch with the most records has records; a record has
    at least MIN_RECORD_BYTES (7) bytes. ``sizes`` is empty, or gets for each row how many bytes
    were written. If it is not empty, an unchanged batch is not written, and its size is UNCHANGED.

    Returns OK; NOT_PLAIN at a row of an older format, and at a compressed row whose records are
    needed; FULL at a row for which ``out`` has less space than STATE_NEEDED_BYTES; or the status of
    a damaged row.
    """
    row = first
    status = OK
    while row < rows_end:
        at = row * TABLE_COLUMNS
        if table[at + MAGIC] != MAGIC_V2:
            status = NOT_PLAIN
        else:
            status = _filter_batch(
                chunk,
                table,
                at,
                byte_at(verdicts, row),
                settings,
                keys,
                block,
                marks,
                out,
                sizes,
                row,
                state,
            )
        if status != OK:
            break
        row += 1
    state[STATE_ROW] = row
    return status


# --- correcting the headers of filtered batches that were compressed again -----------------------
@kernel("out8", "in64")
def seal_batches(out: Array, batches: Array) -> int:
    """Correct the headers of batches in ``out`` whose records were compressed after the filter:
    codec, batch length and CRC.

    ``batches`` has SEAL_WORDS numbers for each of these batches. Before the call, the attributes in
    their headers name no codec.
    """
    for at in range(0, len(batches), SEAL_WORDS):
        position = int(batches[at + SEAL_POSITION])
        size_bytes = int(batches[at + SEAL_SIZE_BYTES])
        low = byte_at(out, position + ATTRIBUTES_AT + 1)
        out[position + ATTRIBUTES_AT + 1] = low | int(batches[at + SEAL_CODEC])
        write_i32(out, position + BATCH_LENGTH_AT, size_bytes - LOG_OVERHEAD_BYTES)
        crc = crc32c(out, position + CRC_START_AT, position + size_bytes)
        write_i32(out, position + CRC_AT, crc)
    return OK
