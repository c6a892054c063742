"""Conversion between the formats, as Kafka 3.9 does it.

Down, for clients that fetch with versions before 4: to v1 or v0. Up, for clients that produce with
versions before 3: to v2, which is what the log stores.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from struct import Struct

from pyspark_klog.records import layout as at
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView, split_messages
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.sets import Entry, entries

_OVERFLOW_HEAD = Struct(">qi")


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion gave: a set, and how many records of it had to be written anew."""

    data: bytes
    records_converted: int


def down_convert(
    buffer: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    start: int = 0,
    end: int | None = None,
    allow_partial: bool = False,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Converted:
    """The entries of ``buffer[start:end]`` in formats no newer than ``magic`` (0 or 1).

    Entries that are old enough are copied. Of the others, control batches are left out, headers
    and producer fields are lost, offsets, codec and timestamps stay (v0 has no timestamps), and
    each becomes one wrapper or, uncompressed, a row of messages. ``first_offset`` is the offset
    that the client asked for: lesser ones of uncompressed entries are left out, because old clients
    do not all skip them; of compressed ones they are kept.

    Raises UnsupportedCodec at a zstd batch, also if nothing of it were left, CorruptRecords,
    InvalidRecords or DecompressedTooLarge (``max_bytes`` bounds each entry).
    """
    if magic not in (at.MAGIC_V0, at.MAGIC_V1):
        raise ValueError(f"magic {magic}: conversion down goes to 0 or 1")
    parts: list[bytes] = []
    records_converted = 0
    for entry in entries(buffer, start, end, allow_partial=allow_partial):
        if entry.is_control:
            continue
        if entry.attributes & at.CODEC_MASK == Codec.ZSTD:
            raise UnsupportedCodec(
                "a batch compressed with zstd cannot be converted down: record formats 0 and 1 "
                "do not know zstd; fetch with version 10 or later"
            )
        if entry.magic <= magic:
            parts.append(entry.to_bytes())
            continue
        records = entry.records(max_bytes)
        if entry.codec is Codec.NONE:
            records = (record for record in records if record.offset >= first_offset)
        first = next(records, None)
        if first is not None:
            builder = _write_down(entry, chain((first,), records), first.offset, magic)
            parts.append(builder.build())
            records_converted += builder.record_count
    return Converted(b"".join(parts), records_converted)


def _write_down(
    entry: Entry, records: Iterator[Record], base_offset: int, magic: int
) -> LegacyBuilder:
    is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
    builder = LegacyBuilder(
        magic,
        base_offset,
        entry.codec,
        entry.timestamp_type,
        log_append_time_ms=entry.max_timestamp_ms if is_append_time else None,
    )
    for record in records:
        builder.append(record.key, record.value, record.timestamp_ms, record.offset)
    return builder


def up_convert(
    buffer: Buffer,
    *,
    start: int = 0,
    end: int | None = None,
    base_offset: int | None = None,
    codec: Codec | None = None,
    log_append_time_ms: int | None = None,
    partition_leader_epoch: int = at.NO_LEADER_EPOCH,
    compression_level: int | None = None,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Converted:
    """The v0 and v1 entries of ``buffer[start:end]`` as one v2 batch, every CRC checked.

    Either all entries are plain messages or there is one wrapper: else InvalidRecords, also if
    there is none, as Kafka has it for what producers send. Offsets are given from ``base_offset``
    on; None keeps those of the records. ``codec`` None keeps the source's. Timestamps are kept, -1
    for v0; with ``log_append_time_ms`` they are still inside, and every reader sees that time, the
    batch's max timestamp, instead. Further raises CorruptRecords, UnsupportedCodec
    and DecompressedTooLarge (``max_bytes`` bounds what the wrapper inflates to).
    """
    sources = list(split_messages(buffer, start, end))
    if not sources:
        raise InvalidRecords("there is no record to convert")
    source_codec = _one_codec(sources)
    records = chain.from_iterable(_checked_records(source, max_bytes) for source in sources)
    builder: BatchBuilder | None = None
    for record in records:
        if builder is None:
            builder = BatchBuilder(
                record.offset if base_offset is None else base_offset,
                source_codec if codec is None else codec,
                TimestampType.CREATE_TIME
                if log_append_time_ms is None
                else TimestampType.LOG_APPEND_TIME,
                log_append_time_ms=log_append_time_ms,
                partition_leader_epoch=partition_leader_epoch,
                compression_level=compression_level,
            )
        builder.append(
            record.key,
            record.value,
            record.timestamp_ms,
            offset=record.offset if base_offset is None else None,
        )
    if builder is None:
        raise CorruptRecords("there is no record in the wrapper")
    return Converted(builder.build(), builder.record_count)


def _one_codec(sources: list[LegacyView]) -> Codec:
    codec = next((entry.codec for entry in sources if entry.codec is not Codec.NONE), Codec.NONE)
    if codec is not Codec.NONE and len(sources) > 1:
        raise InvalidRecords(
            f"a compressed message among {len(sources)}: a set holds one wrapper and nothing "
            f"else, or plain messages only"
        )
    return codec


def _checked_records(source: LegacyView, max_bytes: int) -> Iterator[Record]:
    source.check_crc()
    return source.records(max_bytes, check_inner_crcs=True)


def overflow_message(room_bytes: int) -> bytes:
    """The head of a message that is larger than ``room_bytes``, the size of the reply's set.

    Kafka sends it when conversion down left nothing of what was read (control batches): an old
    client takes it for a message cut off by its fetch size, reports that, and does not fetch the
    same offset forever in silence.
    """
    size = max(room_bytes + 1, at.BATCH_HEADER_BYTES)
    return _OVERFLOW_HEAD.pack(-1, size)
