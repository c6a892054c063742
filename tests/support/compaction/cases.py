"""Random logs as a cleaner finds them, damage to them, and what the kernels make of both.

All forms of the kernels have to give the same digest (`tests/support/records/kernel_forms.py`).
"""

import hashlib
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from klog_broker.compaction.filtering import (
    DROP_RECORDS,
    KEEP_RECORDS,
    RETAIN_EMPTY,
    SET_HORIZON,
    ChunkFilter,
)
from klog_broker.compaction.key_map import SLOT_BYTES, KeyMap
from pyspark_klog.errors import KlogError
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.kernels import scan
from pyspark_klog.records.kernels.status import OK
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_sets import entries
from tests.support.compaction.model import MAX_DECOMPRESSED_BYTES, Model, ModelMap
from tests.support.records.record_sets import empty_batch

NOW_MS = 1_700_000_000_000
KEYS = (b"", b"a", b"b", b"seven..", b"eight...", b"nine.....", b"k" * 23, b"k" * 300)
LOAD_FACTOR = 0.75
_TIMES = (-1, 0, NOW_MS - 90, NOW_MS - 7, NOW_MS, NOW_MS + 10**9, 2**63 - 1)
_VERDICTS = (0, 0, 0, RETAIN_EMPTY, KEEP_RECORDS, KEEP_RECORDS | SET_HORIZON, SET_HORIZON)
_VERDICTS += (DROP_RECORDS, DROP_RECORDS | RETAIN_EMPTY, KEEP_RECORDS | RETAIN_EMPTY)


class Settings(NamedTuple):
    """How a log is cleaned."""

    most_slots: int
    from_offset: int
    now_ms: int
    delete_retention_ms: int
    keep_old_tombstones: bool


def random_value(rng: random.Random) -> bytes | None:
    kind = rng.randrange(5)
    if kind == 0:
        return None
    return b"" if kind == 1 else bytes([kind]) * rng.choice([1, 9, 70, 400])


def random_key(rng: random.Random) -> bytes | None:
    return None if rng.randrange(8) == 0 else rng.choice(KEYS)


def random_batch(rng: random.Random, base_offset: int) -> bytes:
    """A v2 batch: perhaps cleaned before, so that offsets, or all records, are missing in it."""
    append_time = rng.choice([None, None, None, NOW_MS - 5])
    is_transactional = rng.randrange(4) == 0
    builder = BatchBuilder(
        base_offset,
        rng.choice([Codec.NONE, Codec.NONE, Codec.NONE, *Codec]),
        TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=append_time,
        producer_id=rng.choice([-1, 7, 2**62]),
        producer_epoch=3,
        base_sequence=rng.choice([-1, 0, 2**31 - 2]),
        is_transactional=is_transactional,
        is_control=is_transactional and rng.randrange(3) == 0,
        partition_leader_epoch=rng.choice([-1, 0, 5]),
        delete_horizon_ms=rng.choice([None, None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1, 2**63 - 1]),
    )
    offset = base_offset
    for _ in range(rng.choice([1, 2, 3, 5, 31, 32, 33, 70])):
        offset += rng.choice([0, 0, 0, 0, 1, 300])
        headers = [] if rng.randrange(4) else [("name", random_value(rng)), ("é", b"x")]
        builder.append(
            random_key(rng), random_value(rng), rng.choice(_TIMES), headers, offset=offset
        )
        offset += 1
    batch = bytearray(builder.build())
    if rng.randrange(4) == 0:
        view = BatchView(batch)
        at.INT32.pack_into(batch, at.LAST_OFFSET_DELTA_AT, view.last_offset_delta + 40)
        view.update_crc()
    return empty_batch(BatchView(batch)) if rng.randrange(12) == 0 else bytes(batch)


def random_old_entries(rng: random.Random, base_offset: int) -> bytes:
    """Messages of an old format, or one wrapper."""
    magic = rng.randrange(2)
    append_time = rng.choice([None, None, NOW_MS - 5]) if magic else None
    builder = LegacyBuilder(
        magic,
        base_offset,
        rng.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
        TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=append_time,
    )
    offset = base_offset + 1
    for _ in range(rng.choice([1, 2, 9])):
        offset += rng.choice([0, 0, 1, 300])
        builder.append(random_key(rng), random_value(rng), rng.choice(_TIMES), offset)
        offset += 1
    return builder.build()


def random_log(rng: random.Random) -> bytes:
    """A few entries of all formats that follow each other, perhaps with gaps."""
    data = b""
    offset = rng.choice([0, 5, 2**33])
    for _ in range(rng.choice([1, 2, 3, 8])):
        make = random_old_entries if rng.randrange(4) == 0 else random_batch
        data += make(rng, offset)
        *_, last = entries(data)
        offset = last.next_offset + rng.choice([0, 0, 17])
    return data


def random_settings(rng: random.Random, data: bytes) -> Settings:
    offsets = [entry.last_offset for entry in entries(data)]
    return Settings(
        rng.choice([2, 4, 7, 9, 1000, 20_000]),
        rng.choice([0, 0, rng.choice(offsets), rng.choice(offsets) - 1]),
        NOW_MS,
        rng.choice([0, 24 * 3600 * 1000, 2**63 - 1]),
        rng.randrange(2) == 0,
    )


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Change the records of one batch that is not compressed, or what its header says of them; its
    CRC fits again."""
    changed = bytearray(data)
    batches = [
        entry
        for entry in entries(changed)
        if isinstance(entry, BatchView) and entry.codec is Codec.NONE and entry.record_count
    ]
    if not batches:
        return data
    batch = rng.choice(batches)
    start, end = batch.position + at.RECORDS_AT, batch.position + batch.size_bytes
    if rng.randrange(4) == 0:
        count = rng.choice([1, batch.record_count - 1, batch.record_count + 1, 2**31 - 1])
        at.INT32.pack_into(changed, batch.position + at.RECORD_COUNT_AT, count)
        batch.update_crc()
        return bytes(changed)
    if rng.randrange(6) == 0:
        delta = max(batch.last_offset_delta - 1, 0)
        at.INT32.pack_into(changed, batch.position + at.LAST_OFFSET_DELTA_AT, delta)
        batch.update_crc()
        return bytes(changed)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(start, end)
        changed[place] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, changed[place] ^ 0x10])
    batch.update_crc()
    return bytes(changed)


def scanned(data: bytes) -> tuple[Any, int]:
    """A scan's flat table of all of ``data``, which must be good, and how many rows it has."""
    table = np.zeros(scan.TABLE_COLUMNS * (len(data) // 26 + 1), np.int64)
    state = np.zeros(scan.STATE_FIELDS, np.int64)
    buf = np.frombuffer(data, np.uint8)
    assert scan.scan_batches(buf, 0, len(data), 1, len(data) + 1, table, state) == OK
    return table, int(state[scan.STATE_BATCHES])


def check_map(
    data: bytes, skip: list[int], settings: Settings
) -> tuple[KeyMap, ModelMap, bool, tuple[int, ...]]:
    """Map and model of the same bytes, which agree; whether all fitted, and what is in the map."""
    key_map = KeyMap(
        settings.most_slots * SLOT_BYTES + 5,
        LOAD_FACTOR,
        (2**64 - 3, 12345),
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    )
    model = ModelMap(int(settings.most_slots * LOAD_FACTOR))
    table, rows = scanned(data)
    from_offset = settings.from_offset
    fits = key_map.add_chunk(data, table, rows, np.array(skip, np.uint8), from_offset)
    assert fits == model.add(list(entries(data)), skip, from_offset)
    assert {key: key_map.offset_of(key) for key in KEYS} == {
        key: model.offsets.get(key, -1) for key in KEYS
    }
    assert (key_map.size, key_map.latest_offset) == (len(model.offsets), model.latest_offset)
    assert key_map.is_full == (len(model.offsets) >= model.most_keys)
    return key_map, model, fits, tuple(model.offsets.values())


def check_filter(
    data: bytes, verdicts: list[int], key_map: KeyMap, model_map: ModelMap, settings: Settings
) -> bytes:
    """Return the bytes that the filter keeps; the model must keep the same bytes."""
    options = (settings.now_ms, settings.delete_retention_ms, settings.keep_old_tombstones)
    model = Model(model_map, *options)
    expected = model.filter(list(entries(data)), verdicts)
    each = ChunkFilter(
        key_map,
        now_ms=settings.now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        keep_old_tombstones=settings.keep_old_tombstones,
    )
    table, rows = scanned(data)
    pieces = each.filter_chunk(data, table, rows, np.array(verdicts, np.uint8))
    left = b"".join(pieces)
    assert left == b"".join(expected)
    assert all(len(piece) for piece in pieces)
    assert (each.records_read, each.records_kept) == (model.records_read, model.records_kept)
    assert (each.bytes_read, each.bytes_kept) == (len(data), len(left))
    return left


def random_case(rng: random.Random) -> tuple[bytes, list[int], list[int], Settings]:
    """A log, which rows the map skips, the verdicts, and how it is cleaned."""
    data = random_log(rng)
    rows = len(list(entries(data)))
    skip = [int(rng.randrange(6) == 0) for _ in range(rows)]
    return data, skip, [rng.choice(_VERDICTS) for _ in range(rows)], random_settings(rng, data)


def error_of(call: Callable[[], object]) -> str:
    """Return the class name of the raised error, "" if none; only KlogError may be raised."""
    try:
        call()
    except KlogError as error:
        return type(error).__name__
    return ""


def refusals_of_map(data: bytes, skip: list[int], from_offset: int) -> tuple[str, str]:
    """Return the names of the errors that the map and the model raise for these bytes."""
    key_map = KeyMap(1 << 20, LOAD_FACTOR, (1, 2), max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    table, rows = scanned(data)
    flags = np.array(skip, np.uint8)
    return (
        error_of(lambda: key_map.add_chunk(data, table, rows, flags, from_offset)),
        error_of(lambda: ModelMap(10**6).add(list(entries(data)), skip, from_offset)),
    )


def refusals_of_filter(data: bytes, verdicts: list[int]) -> tuple[str, str]:
    """Return the errors that filter and model raise for these bytes with an empty map."""
    each = ChunkFilter(
        KeyMap(1 << 20, LOAD_FACTOR, (1, 2)),
        now_ms=NOW_MS,
        delete_retention_ms=5,
        max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
        keep_old_tombstones=True,
    )
    table, rows = scanned(data)
    model = Model(ModelMap(10**6), NOW_MS, 5, True)
    return (
        error_of(lambda: each.filter_chunk(data, table, rows, np.array(verdicts, np.uint8))),
        error_of(lambda: model.filter(list(entries(data)), verdicts)),
    )


def check_damaged(data: bytes, skip: list[int], verdicts: list[int], settings: Settings) -> str:
    """Map and filter refuse what the model refuses, and do with the rest what the model does."""
    by_map = refusals_of_map(data, skip, settings.from_offset)
    assert by_map[0] == by_map[1]
    by_filter = refusals_of_filter(data, verdicts)
    assert by_filter[0] == by_filter[1]
    skip = [1] * len(skip) if by_map[0] else skip
    key_map, model, *found = check_map(data, skip, settings)
    if by_filter[0]:
        return f"{by_map} {found} {by_filter}"
    return f"{by_map} {found} {check_filter(data, verdicts, key_map, model, settings).hex()}"


def run_seeds(seeds: Iterable[int]) -> str:
    """Check kernels against the model for each seed; return a digest of all results."""
    digest = hashlib.sha256()
    for seed in seeds:
        rng = random.Random(seed)
        data, skip, verdicts, settings = random_case(rng)
        key_map, model, *found = check_map(data, skip, settings)
        left = check_filter(data, verdicts, key_map, model, settings)
        digest.update(repr((found, left)).encode())
        broken = damaged(rng, data)
        digest.update(check_damaged(broken, skip, verdicts, settings).encode())
    return digest.hexdigest()
