"""The kernel that encodes the rows of Arrow columns as v2 batches of all partitions."""

from pyspark_klog.records.kernels.crc import crc32c
from pyspark_klog.records.kernels.jit import Array, inline, kernel
from pyspark_klog.records.kernels.memory import copy_bytes, prefetch, write_i32, write_i64
from pyspark_klog.records.kernels.partition import is_set
from pyspark_klog.records.kernels.status import (
    OK,
    ROW_BAD_TIMESTAMP,
    ROW_NULL_HEADER_KEY,
    ROW_TOO_LARGE,
)
from pyspark_klog.records.kernels.varints import varint_size, write_varint
from pyspark_klog.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    CRC_AT,
    CRC_START_AT,
    INT32_MAX,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    NO_LEADER_EPOCH,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
)

# Columns of the table ``batches`` that encode_rows writes: one row per encoded batch, sorted by
# partition.
BATCH_PARTITION = 0
BATCH_START = 1  # position of the batch header in the output; the records begin 61 bytes later
BATCH_END = 2
BATCH_FIRST = 3  # index of the first record's row in ``order``, the rows sorted by partition
BATCH_COUNT = 4
BATCH_BASE_TIMESTAMP_MS = 5
BATCH_MAX_TIMESTAMP_MS = 6
BATCH_BASE_SEQUENCE = 7
BATCH_COLUMNS = 8

# Largest size of a record without the bytes of key, value and headers: length 5, attributes 1,
# timestamp delta 10, offset delta 5, key length 5, value length 5, header count 5. Each header has
# two lengths of at most 5 bytes.
RECORD_OVERHEAD_BYTES = 36
HEADER_OVERHEAD_BYTES = 10

# The first 256 bytes of a value are prefetched this many rows before the value is copied.
_ROWS_AHEAD = 6

# Indexes of the array ``settings``, an argument of encode_rows.
SETTING_MAX_BATCH_BYTES = 0
SETTING_WRITE_HEADER = 1
SETTING_ATTRIBUTES = 2
SETTING_PRODUCER_ID = 3
SETTING_PRODUCER_EPOCH = 4
SETTING_KEYS_VALID_FROM = 5
SETTING_VALUES_VALID_FROM = 6
SETTING_HEADERS_VALID_FROM = 7
SETTING_HEADER_VALUES_VALID_FROM = 8
SETTING_LISTS_VALID_FROM = 9
SETTING_FIELDS = 10


@inline
def _write_i16(out: Array, position: int, number: int) -> None:
    out[position] = number >> 8 & 0xFF
    out[position + 1] = number & 0xFF


@inline
def _write_bytes(out: Array, position: int, data: Array, start: int, end: int) -> int:
    position = write_varint(out, position, end - start)
    copy_bytes(out, position, data, start, end - start)
    return position + end - start


@inline
def _write_batch_header(
    out: Array,
    start: int,
    end: int,
    settings: Array,
    base_sequence: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    count: int,
) -> None:
    write_i64(out, start, 0)  # the broker sets the base offset
    write_i32(out, start + BATCH_LENGTH_AT, end - start - LOG_OVERHEAD_BYTES)
    write_i32(out, start + LEADER_EPOCH_AT, NO_LEADER_EPOCH)
    out[start + MAGIC_AT] = MAGIC_V2
    _write_i16(out, start + ATTRIBUTES_AT, int(settings[SETTING_ATTRIBUTES]))
    write_i32(out, start + LAST_OFFSET_DELTA_AT, count - 1)
    write_i64(out, start + BASE_TIMESTAMP_AT, base_timestamp_ms)
    write_i64(out, start + MAX_TIMESTAMP_AT, max_timestamp_ms)
    write_i64(out, start + PRODUCER_ID_AT, int(settings[SETTING_PRODUCER_ID]))
    _write_i16(out, start + PRODUCER_EPOCH_AT, int(settings[SETTING_PRODUCER_EPOCH]))
    write_i32(out, start + BASE_SEQUENCE_AT, base_sequence)
    write_i32(out, start + RECORD_COUNT_AT, count)
    write_i32(out, start + CRC_AT, crc32c(out, start + CRC_START_AT, end))


@inline
def _headers_size(
    first: int,
    last: int,
    keys_valid: Array,
    keys_valid_from: int,
    key_ends: Array,
    value_ends: Array,
    values_valid: Array,
    values_valid_from: int,
) -> int:
    """Return the encoded size in bytes of the headers ``first`` to ``last``, exclusive; -1 if one
    of them has a null key."""
    size = 0
    for header in range(first, last):
        if not is_set(keys_valid, keys_valid_from + header):
            return -1
        key_bytes = int(key_ends[header + 1]) - int(key_ends[header])
        size += varint_size(key_bytes) + key_bytes
        if is_set(values_valid, values_valid_from + header):
            value_bytes = int(value_ends[header + 1]) - int(value_ends[header])
            size += varint_size(value_bytes) + value_bytes
        else:
            size += 1
    return size


@kernel(
    *("i64", "in64", "out32", "in64", "in64"),
    *("in32", "in8", "in8", "in32", "in8", "in8"),
    *("in32", "in8", "in32", "in8", "in8", "in32", "in8", "in8"),
    *("out64", "out8", "out64", "out8"),
)
def encode_rows(
    partition_count: int,
    starts: Array,
    order: Array,
    timestamps_ms: Array,
    settings: Array,
    key_ends: Array,
    keys: Array,
    keys_valid: Array,
    value_ends: Array,
    values: Array,
    values_valid: Array,
    header_ends: Array,
    header_lists_valid: Array,
    header_key_ends: Array,
    header_keys: Array,
    header_keys_valid: Array,
    header_value_ends: Array,
    header_values: Array,
    header_values_valid: Array,
    sequences: Array,
    row_status: Array,
    batches: Array,
    out: Array,
) -> int:
    """Write the rows of each partition into batches of at most SETTING_MAX_BATCH_BYTES bytes.

    ``order`` has the row numbers sorted by partition, and ``starts`` the index in ``order`` of each
    partition's first row (see sort_by_partition). Rows with a ``row_status`` other than OK are left
    out. Further rows are left out, and get a status, if they are too large for a batch
    (ROW_TOO_LARGE), have a null header key (ROW_NULL_HEADER_KEY) or a negative timestamp
    (ROW_BAD_TIMESTAMP). The function removes rows that are left out from ``order``: the rows of a
    batch begin at its BATCH_FIRST.

    If a column is absent, its array of the end positions of values (``*_ends``) is empty.
    ``timestamps_ms`` are at most 2^61; a single one holds for all rows. ``sequences`` has the next
    sequence number of each partition, and is advanced; an empty array means that batches have no
    sequence numbers. ``out`` must be long enough for the bytes of all columns,
    RECORD_OVERHEAD_BYTES + 61 bytes per row, and HEADER_OVERHEAD_BYTES per header; ``batches`` must
    have space for as many batches as there are rows. With SETTING_WRITE_HEADER the batch headers
    are written, otherwise their 61 bytes are left free. Returns the number of batches.
    """
    max_batch_bytes = int(settings[SETTING_MAX_BATCH_BYTES])
    write_header = int(settings[SETTING_WRITE_HEADER])
    keys_valid_from = int(settings[SETTING_KEYS_VALID_FROM])
    values_valid_from = int(settings[SETTING_VALUES_VALID_FROM])
    headers_valid_from = int(settings[SETTING_HEADERS_VALID_FROM])
    header_values_valid_from = int(settings[SETTING_HEADER_VALUES_VALID_FROM])
    lists_valid_from = int(settings[SETTING_LISTS_VALID_FROM])
    has_keys = len(key_ends) > 0
    has_headers = len(header_ends) > 0
    one_timestamp = len(timestamps_ms) == 1
    at = 0
    kept = 0
    found = 0
    for partition in range(partition_count):
        place = int(starts[partition])
        end_place = int(starts[partition + 1])
        start = at
        first = kept
        count = 0
        base_timestamp_ms = 0
        max_timestamp_ms = 0
        while True:
            is_last = place == end_place
            total = 0
            body = 0
            row = 0
            timestamp_ms = 0
            key_bytes = -1
            value_bytes = -1
            first_header = 0
            last_header = 0
            if not is_last:
                row = int(order[place])
                # The rows of a partition are scattered, so the processor does not prefetch them by
                # itself. Prefetching makes the loop three times faster when the columns do not fit
                # the processor's nearest cache.
                if end_place - place > _ROWS_AHEAD:
                    ahead_at = int(value_ends[int(order[place + _ROWS_AHEAD])])
                    prefetch(values, ahead_at)
                    prefetch(values, ahead_at + 64)
                    prefetch(values, ahead_at + 128)
                    prefetch(values, ahead_at + 192)
                if row_status[row] != OK:
                    place += 1
                    continue
                timestamp_ms = int(timestamps_ms[0 if one_timestamp else row])
                if timestamp_ms < 0:
                    row_status[row] = ROW_BAD_TIMESTAMP
                    place += 1
                    continue
                if count == 0:
                    base_timestamp_ms = timestamp_ms
                body = 1 + varint_size(timestamp_ms - base_timestamp_ms) + varint_size(count)
                if has_keys and is_set(keys_valid, keys_valid_from + row):
                    key_bytes = int(key_ends[row + 1]) - int(key_ends[row])
                    body += varint_size(key_bytes) + key_bytes
                else:
                    body += 1
                if is_set(values_valid, values_valid_from + row):
                    value_bytes = int(value_ends[row + 1]) - int(value_ends[row])
                    body += varint_size(value_bytes) + value_bytes
                else:
                    body += 1
                if has_headers and is_set(header_lists_valid, lists_valid_from + row):
                    first_header = int(header_ends[row])
                    last_header = int(header_ends[row + 1])
                    headers_bytes = _headers_size(
                        first_header,
                        last_header,
                        header_keys_valid,
                        headers_valid_from,
                        header_key_ends,
                        header_value_ends,
                        header_values_valid,
                        header_values_valid_from,
                    )
                    if headers_bytes < 0:
                        row_status[row] = ROW_NULL_HEADER_KEY
                        place += 1
                        continue
                    body += headers_bytes
                body += varint_size(last_header - first_header)
                total = varint_size(body) + body
                if total > max_batch_bytes - BATCH_HEADER_BYTES:
                    # With its timestamp and offset deltas in the present batch, the row is too
                    # large for any batch. As the only record of a batch it may be smaller, because
                    # both deltas are then 0 and take one byte each.
                    alone = body - varint_size(timestamp_ms - base_timestamp_ms)
                    alone += 2 - varint_size(count)
                    if varint_size(alone) + alone > max_batch_bytes - BATCH_HEADER_BYTES:
                        row_status[row] = ROW_TOO_LARGE
                        place += 1
                        continue
            if count != 0 and (is_last or total > max_batch_bytes - (at - start)):
                base_sequence = -1
                if len(sequences) > 0:
                    base_sequence = int(sequences[partition])
                    sequences[partition] = (base_sequence + count) & INT32_MAX
                if write_header:
                    _write_batch_header(
                        out,
                        start,
                        at,
                        settings,
                        base_sequence,
                        base_timestamp_ms,
                        max_timestamp_ms,
                        count,
                    )
                to = found * BATCH_COLUMNS
                batches[to + BATCH_PARTITION] = partition
                batches[to + BATCH_START] = start
                batches[to + BATCH_END] = at
                batches[to + BATCH_FIRST] = first
                batches[to + BATCH_COUNT] = count
                batches[to + BATCH_BASE_TIMESTAMP_MS] = base_timestamp_ms
                batches[to + BATCH_MAX_TIMESTAMP_MS] = max_timestamp_ms
                batches[to + BATCH_BASE_SEQUENCE] = base_sequence
                found += 1
                start = at
                first = kept
                count = 0
                if not is_last:
                    continue  # compute the row again: its deltas differ in the next batch
            if is_last:
                break
            if count == 0:
                at = start + BATCH_HEADER_BYTES
                max_timestamp_ms = timestamp_ms
            elif timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = timestamp_ms
            at = write_varint(out, at, body)
            out[at] = 0  # attributes
            at = write_varint(out, at + 1, timestamp_ms - base_timestamp_ms)
            at = write_varint(out, at, count)
            if key_bytes < 0:
                out[at] = 1  # the length -1
                at += 1
            else:
                key_at = int(key_ends[row])
                at = _write_bytes(out, at, keys, key_at, key_at + key_bytes)
            if value_bytes < 0:
                out[at] = 1
                at += 1
            else:
                value_at = int(value_ends[row])
                at = _write_bytes(out, at, values, value_at, value_at + value_bytes)
            at = write_varint(out, at, last_header - first_header)
            for header in range(first_header, last_header):
                at = _write_bytes(
                    out,
                    at,
                    header_keys,
                    int(header_key_ends[header]),
                    int(header_key_ends[header + 1]),
                )
                if is_set(header_values_valid, header_values_valid_from + header):
                    at = _write_bytes(
                        out,
                        at,
                        header_values,
                        int(header_value_ends[header]),
                        int(header_value_ends[header + 1]),
                    )
                else:
                    out[at] = 1
                    at += 1
            order[kept] = row
            kept += 1
            count += 1
            place += 1
    return found
