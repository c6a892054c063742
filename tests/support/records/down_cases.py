"""Conversion down as it is done without kernels, record by record, and random sets for both.

All forms of the kernels have to give the same digest (`tests/support/records/kernel_forms.py`).
"""

import hashlib
import random
from collections.abc import Iterable, Iterator

from pyspark_klog.records.batch import BatchView, is_cut_off
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.down_conversion import down_convert
from pyspark_klog.records.errors import CorruptRecords, UnsupportedCodec
from pyspark_klog.records.layout import CODEC_MASK, LEGACY_ATTRIBUTES_AT
from pyspark_klog.records.legacy import LegacyView, encode_message
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_sets import Entry, entry_at, read_entry_head
from tests.support.records.kernel_cases import (
    MAX_DECOMPRESSED_BYTES,
    Outcome,
    damage_records,
    outcome_of,
    random_batch,
    random_bytes,
)


def by_records(data: bytes, magic: int, first_offset: int = 0) -> bytes:
    """Convert down record by record: the expected result of ``down_convert``."""
    parts = []
    position = 0
    while not is_cut_off(data, position, len(data)):
        head = read_entry_head(data, position)
        if head.magic <= magic:
            # The set is passed on unread: the client checks it.
            if data[position + LEGACY_ATTRIBUTES_AT] & CODEC_MASK > Codec.LZ4:
                raise UnsupportedCodec("zstd, or none that is known")
            parts.append(data[position : position + head.size_bytes])
            position += head.size_bytes
            continue
        entry = entry_at(data, position)
        position += entry.size_bytes
        if entry.is_control:
            continue
        if entry.attributes & CODEC_MASK == Codec.ZSTD:
            raise UnsupportedCodec("zstd")
        entry.check_crc()
        records = list(entry.records(MAX_DECOMPRESSED_BYTES))
        if entry.codec is Codec.NONE:
            rising = [record.offset for record in records]
            if rising != sorted(set(rising)) or any(r.timestamp_ms < -1 for r in records):
                raise CorruptRecords("offsets that do not rise, or a negative timestamp")
            records = [record for record in records if record.offset >= first_offset]
        if records:
            parts.append(_written(entry, records, magic))
    return b"".join(parts)


def _written(entry: Entry, records: list[Record], magic: int) -> bytes:
    is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = LegacyBuilder(
        magic,
        records[0].offset,
        entry.codec,
        entry.timestamp_type,
        log_append_time_ms=entry.max_timestamp_ms if is_append_time else None,
    )
    for record in records:
        builder.append(record.key, record.value, record.timestamp_ms, record.offset)
    return builder.build()


def random_mixed_set(rng: random.Random) -> bytes:
    """Entries of all formats in a row, maybe damaged behind a right CRC, maybe cut off."""
    data = bytearray()
    offset = rng.choice([0, 7, 2**40])
    for _ in range(rng.randrange(1, 6)):
        if rng.randrange(3):
            codec = rng.choice([Codec.NONE, Codec.NONE, *Codec])
            batch = bytearray(random_batch(rng, offset, codec))
            if rng.randrange(6) == 0:
                batch = bytearray(damage_records(rng, bytes(batch)))
                BatchView(batch).update_crc()
            data += batch
            offset = BatchView(batch).next_offset
        else:
            messages = list(_random_messages(rng, offset))
            data += b"".join(messages)
            offset += 40
    if rng.randrange(4) == 0:
        del data[rng.randrange(1, len(data)) :]
    if rng.randrange(12) == 0:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _random_messages(rng: random.Random, offset: int) -> Iterator[bytes]:
    magic = rng.randrange(2)
    codec = rng.choice([Codec.NONE, Codec.GZIP, Codec.LZ4])
    builder = LegacyBuilder(magic, offset, codec)
    for number in range(rng.randrange(1, 8)):
        builder.append(
            random_bytes(rng, 20), random_bytes(rng, 90), rng.randrange(10**6), offset + 2 * number
        )
    wrapper = builder.build()
    if codec is Codec.NONE or rng.randrange(3):
        yield wrapper
        return
    # A wrapper may hold damaged messages, or have librdkafka's offset of 0.
    inner = bytearray(LegacyView(wrapper).inflate())
    if rng.randrange(2):
        inner[rng.randrange(len(inner))] ^= 1 << rng.randrange(8)
    packed = compress(codec, inner, magic=magic)
    last = offset if rng.randrange(2) else 0
    yield encode_message(magic, last, 5, None, packed, codec)


def down_outcomes(rng: random.Random) -> tuple[Outcome, Outcome]:
    """The kernels' conversion of one set, and that by records: bytes, or that it is refused."""
    data = random_mixed_set(rng)
    magic, first_offset = rng.randrange(2), rng.choice([0, 0, 9, 2**40 + 3])
    by_kernel = outcome_of(
        lambda: (
            down_convert(
                data,
                magic,
                first_offset=first_offset,
                allow_partial=True,
                max_bytes=MAX_DECOMPRESSED_BYTES,
            ).data
        )
    )
    expected = outcome_of(lambda: by_records(data, magic, first_offset))
    return _plain(by_kernel), _plain(expected)


def _plain(outcome: Outcome) -> Outcome:
    return outcome if outcome[0] == "rows" else ("error", None)


def run_seeds(seeds: Iterable[int]) -> str:
    """Check the kernels for each seed; return a digest of all results."""
    digest = hashlib.sha256()
    for seed in seeds:
        converted, expected = down_outcomes(random.Random(seed))
        assert converted == expected, f"seed {seed}: {converted} converted, {expected} expected"
        digest.update(repr(converted).encode())
    return digest.hexdigest()
