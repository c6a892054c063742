"""Random sets of batches, damage to them, and what kernels and iterators make of both.

All forms of the kernels have to give the same digest (`tests/support/records/kernel_forms.py`).
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_klog.records.arrow import COLUMN_TYPES, encode_from_arrow
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.kernels import batch_contents, record_validation, scan
from pyspark_klog.records.kernels.status import INCOMPLETE, OK
from pyspark_klog.records.layout import BATCH_HEADER_BYTES, CODEC_MASK, INT64_MAX
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_sets import entries
from tests.support.records.decoding import decode_to_arrow
from tests.support.records.record_sets import iterate
from tests.support.records.scan_cases import scan_rows

ALL_COLUMNS = tuple(COLUMN_TYPES)
MAX_MICROSECOND_MS = (2**63 - 1) // 1000
MAX_DECOMPRESSED_BYTES = 1 << 20
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
Outcome = tuple[str, Any]


def random_bytes(rng: random.Random, most: int) -> bytes | None:
    kind = rng.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    return rng.randbytes(rng.randrange(rng.choice([4, 40, most]) + 1))


def random_headers(rng: random.Random) -> list[tuple[str, bytes | None]]:
    if rng.randrange(3):
        return []
    names = ["", "h", "trace-id", "é", "日本", "\U0001f600", "x" * 70]
    return [(rng.choice(names), random_bytes(rng, 80)) for _ in range(rng.randrange(1, 4))]


def random_batch(rng: random.Random, base_offset: int, codec: Codec | None = None) -> bytes:
    """A batch of up to 30 records with gaps between their offsets."""
    append_time = rng.choice([None, None, 1_700_000_000_123])
    builder = BatchBuilder(
        base_offset,
        rng.choice(list(Codec)) if codec is None else codec,
        TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=append_time,
        producer_id=rng.choice([-1, 7, 2**62]),
        is_transactional=rng.randrange(4) == 0,
    )
    base_ms = rng.choice([0, 5, 1_700_000_000_000, 2**40, MAX_MICROSECOND_MS - 10**9])
    offset = base_offset
    for _ in range(rng.randrange(1, 30)):
        offset += rng.choice([0, 0, 0, 1, 300])
        builder.append(
            random_bytes(rng, 50),
            random_bytes(rng, 400),
            max(-1, base_ms + rng.choice([0, 1, 63, 64, 10**4, 10**9, -5, -(10**12)])),
            random_headers(rng),
            offset=offset,
        )
        offset += 1
    return builder.build()


def random_set(rng: random.Random, codec: Codec | None = None) -> bytes:
    """Return a few batches with rising offsets."""
    data = bytearray()
    offset = rng.choice([0, 5, 2**33])
    for _ in range(rng.randrange(1, 5)):
        data += random_batch(rng, offset, codec)
        offset = BatchView(data, [b.position for b in entries(data)][-1]).next_offset
        offset += rng.choice([0, 0, 17])
    return bytes(data)


def damage_records(rng: random.Random, data: bytes) -> bytes:
    """Change a few bytes behind the header of one batch; headers and lengths stay."""
    changed = bytearray(data)
    batch = rng.choice(list(entries(data)))
    start = batch.position + BATCH_HEADER_BYTES
    end = batch.position + batch.size_bytes
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(start, end)
        changed[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, changed[at] ^ 1 << rng.randrange(8)])
    if rng.randrange(4) == 0:  # the longest numbers
        at = rng.randrange(start, end)
        number = b"\xff" * rng.choice([4, 9, 12]) + bytes([rng.choice([0x01, 0x0F, 0x7F])])
        changed[at : min(end, at + len(number))] = number[: end - at]
    return bytes(changed)


def damage_anything(rng: random.Random, data: bytes) -> bytes:
    """Change, cut, repeat or zero any part."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 3])):
        at = rng.randrange(len(changed))
        kind = rng.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            changed[at:at] = changed[at : at + 8]
        else:
            changed[at : at + 16] = bytes(len(changed[at : at + 16]))
        if not changed:
            break
    return bytes(changed)


def as_row(record: Record) -> Row:
    headers = tuple((header.key, header.value) for header in record.headers)
    return (
        *(record.offset, record.timestamp_ms * 1000, int(record.timestamp_type)),
        *(record.key, record.value, headers),
    )


def outcome_of(read: Callable[[], Any]) -> Outcome:
    """Return the reader's rows, or the class of the error; only RecordsError may be raised."""
    try:
        return "rows", read()
    except RecordsError as error:
        return "error", type(error).__name__


def rows_by_kernel(data: bytes, **options: Any) -> list[Row]:
    # Damaged batches may have negative offsets: do not skip any.
    options.setdefault("start_offset", -(2**63))
    decoded = decode_to_arrow(data, topic="t", partition=3, columns=ALL_COLUMNS, **options)
    return rows_of(decoded.batches)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Rows with all columns as tuples, after pyarrow's own full check of every buffer."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns = [
            batch.column("offset"),
            batch.column("timestamp").cast(pa.int64()),
            *(batch.column(name) for name in ("timestampType", "key", "value")),
        ]
        headers = [
            tuple((header["key"], header["value"]) for header in row or ())
            for row in batch.column("headers").to_pylist()
        ]
        rows += zip(*(column.to_pylist() for column in columns), headers, strict=True)
    return rows


def rows_by_iterator(data: bytes, **options: Any) -> list[Row]:
    records = list(iterate(data, max_bytes=MAX_DECOMPRESSED_BYTES, **options))
    return [as_row(record) for record in records]


def has_timestamp_for_microseconds(outcome: Outcome) -> bool:
    limit = MAX_MICROSECOND_MS * 1000
    return outcome[0] == "error" or all(-limit <= row[1] <= limit for row in outcome[1])


def difference(kernel: Outcome, iterator: Outcome) -> str:
    """Return the first difference of two outcomes, in a line."""
    if kernel[0] != iterator[0] or kernel[0] == "error":
        return f"kernel {str(kernel)[:150]}, iterator {str(iterator)[:150]}"
    pairs = zip(kernel[1], iterator[1], strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        return f"{len(kernel[1])} rows by the kernel, {len(iterator[1])} by the iterator"
    return f"row {at}: kernel {str(kernel[1][at])[:300]}, iterator {str(iterator[1][at])[:300]}"


def decode_outcomes(data: bytes) -> tuple[Outcome, Outcome]:
    """Kernels' and iterators' view of the same bytes, CRCs unchecked."""
    by_iterator = outcome_of(lambda: rows_by_iterator(data, check_crc=False))
    if not has_timestamp_for_microseconds(by_iterator):
        by_iterator = "error", "MalformedTimestamp"
    by_kernel = outcome_of(
        lambda: rows_by_kernel(data, check_crc=False, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    )
    return by_kernel, by_iterator


def walk_outcomes(data: bytes) -> tuple[Outcome, Outcome]:
    """Return the results of the broker's walk and of the iterator for the first batch."""
    view = BatchView(data)

    def by_iterator() -> tuple[int, int]:
        best_ms, best = -1, 0
        for index, record in enumerate(view.records(MAX_DECOMPRESSED_BYTES)):
            if record.offset != view.base_offset + index:
                raise RecordsError("offset delta")
            timestamp_ms = record.timestamp_ms
            if timestamp_ms > best_ms:
                best_ms, best = timestamp_ms, index
        return best_ms, best

    def by_kernel() -> tuple[int, int]:
        section = view.records_section(MAX_DECOMPRESSED_BYTES)
        result = np.zeros(record_validation.RESULT_FIELDS, np.int64)
        status = record_validation.validate_records(
            *(np.frombuffer(section, np.uint8), 0, len(section), view.record_count),
            *(view.base_timestamp_ms, -(2**63), INT64_MAX, 0, result),
        )
        if status != OK:
            raise RecordsError(str(status))
        return (
            int(result[record_validation.RESULT_MAX_TIMESTAMP_MS]),
            int(result[record_validation.RESULT_MAX_TIMESTAMP_RECORD]),
        )

    kernel, iterator = outcome_of(by_kernel), outcome_of(by_iterator)
    same_kind = {"error": "refused", "rows": "walked"}
    if view.timestamp_type is TimestampType.LOG_APPEND_TIME:  # the walk looks at the deltas
        return (same_kind[kernel[0]], None), (same_kind[iterator[0]], None)
    if kernel[0] == iterator[0] == "error":
        return ("refused", None), ("refused", None)
    return kernel, iterator


def inside_outcomes(data: bytes) -> tuple[Outcome, Outcome]:
    """Return the results of the check of stored batches, inflated or not, and of the iterator."""
    views = list(entries(data))

    def by_iterator() -> bool:
        for view in views:
            before = view.base_offset - 1
            for record in view.records(MAX_DECOMPRESSED_BYTES):
                if not before < record.offset <= view.last_offset:
                    raise RecordsError("offsets do not rise")
                before = record.offset
        return True

    def by_kernel() -> bool:
        table = np.array(scan_rows(data, check_crc=False)[2], np.int64)
        result = np.zeros(batch_contents.RESULT_FIELDS, np.int64)
        buf = np.frombuffer(data, np.uint8)
        statuses = [
            batch_contents.check_batch_contents(buf, table.reshape(-1), 0, len(table), result)
        ]
        for row, view in zip(table, views, strict=True):
            if view.codec is Codec.NONE or not view.record_count:
                continue
            # The same row for the inflated section, as if it lay behind a header.
            section = np.frombuffer(view.records_section(MAX_DECOMPRESSED_BYTES), np.uint8)
            row[scan.ATTRIBUTES] &= ~CODEC_MASK
            row[scan.POSITION] = -BATCH_HEADER_BYTES
            row[scan.SIZE_BYTES] = len(section) + BATCH_HEADER_BYTES
            statuses.append(batch_contents.check_batch_contents(section, row, 0, 1, result))
        if any(status != OK for status in statuses):
            raise RecordsError(str(statuses))
        return True

    kernel, iterator = outcome_of(by_kernel), outcome_of(by_iterator)
    return (kernel[0], None), (iterator[0], None)


def is_scan_consistent(data: bytes) -> bool:
    """Whether the entries before the scan's end are those that the views see, and are valid."""
    status, end, rows = scan_rows(data)
    views = list(entries(data, 0, end))
    if [row[scan.POSITION] for row in rows] != [view.position for view in views]:
        return False
    if not all(view.is_crc_valid() for view in views):
        return False
    if [row[scan.LAST_OFFSET] for row in rows] != [view.last_offset for view in views]:
        return False
    return (status == OK) == (end == len(data)) and (status != INCOMPLETE or end < len(data))


def random_columns(rng: random.Random, rows: int) -> dict[str, pa.Array]:
    """Columns for encoding, cut out of longer ones so that their buffers do not begin at row 0."""
    skipped = rng.randrange(12)
    whole = rows + skipped + 3
    columns: dict[str, pa.Array] = {
        "value": pa.array([random_bytes(rng, 300) for _ in range(whole)], pa.binary())
    }
    if rng.randrange(4):
        columns["key"] = pa.array([random_bytes(rng, 40) for _ in range(whole)], pa.binary())
    if rng.randrange(2):
        lists = [
            None
            if rng.randrange(5) == 0
            else [{"key": name, "value": value} for name, value in random_headers(rng)]
            for _ in range(whole)
        ]
        columns["headers"] = pa.array(lists, COLUMN_TYPES["headers"])
    if rng.randrange(2):
        base_ms = 1_700_000_000_000
        times = [
            rng.choice([None, -7, (base_ms + rng.randrange(-(10**7), 10**7)) * 1000])
            for _ in range(whole)
        ]
        columns["timestamp"] = pa.array(times, pa.timestamp("us", "UTC"))
    if rng.randrange(2):
        numbers = [rng.choice([None, 0, 1, 2, 2, 5, -1]) for _ in range(whole)]
        columns["partition"] = pa.array(numbers, pa.int32())
    return {name: column.slice(skipped, rows) for name, column in columns.items()}


def encode_digest(rng: random.Random) -> bytes:
    """All that encoding random columns gives, as bytes."""
    columns = random_columns(rng, rng.randrange(1, 60))
    encoded = encode_from_arrow(
        **columns,
        partition_count=rng.choice([1, 3]),
        now_ms=12345,
        max_batch_bytes=rng.choice([200, 1000, 100_000]),
        next_sequences=np.array([0, 2**31 - 2, 9], np.int64),
        producer_id=4,
        producer_epoch=1,
    )
    parts: Sequence[object] = [
        *((bytes(b.payload), b.partition, b.rows.tolist()) for b in encoded.batches),
        *encoded.rejected,
        encoded.unkeyed_count,
    ]
    return repr(parts).encode()


def run_seeds(seeds: Iterable[int]) -> str:
    """Check kernels against iterators for each seed; return a digest of all results."""
    digest = hashlib.sha256()
    for seed in seeds:
        rng = random.Random(seed)
        whole = random_set(rng)
        plain = random_set(rng, Codec.NONE)
        for data in (whole, damage_records(rng, plain), damage_records(rng, whole)):
            by_kernel, by_iterator = decode_outcomes(data)
            assert by_kernel == by_iterator, f"seed {seed}: {difference(by_kernel, by_iterator)}"
            walked, expected = walk_outcomes(data)
            assert walked == expected, f"seed {seed}: {walked} walked, {expected} expected"
            checked, expected = inside_outcomes(data)
            assert checked == expected, f"seed {seed}: {checked} checked, {expected} expected"
            digest.update(repr((by_kernel, walked, checked)).encode())
        broken = damage_anything(rng, whole)
        assert is_scan_consistent(broken), f"seed {seed}"
        digest.update(repr(scan_rows(broken, check_crc=False)).encode())
        digest.update(repr(outcome_of(lambda data=broken: rows_by_kernel(data))).encode())
        digest.update(encode_digest(rng))
    return digest.hexdigest()
