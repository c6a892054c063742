"""Conversion up, as Kafka 3.9 does it, for clients that produce with versions before 3: to v2,
which is what the log stores. Down is down_conversion.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from pyspark_klog.records import layout as at
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView, split_messages
from pyspark_klog.records.record import Record, TimestampType


@dataclass(frozen=True, slots=True)
class UpConverted:
    """A conversion's result: a set, and the number of its records that had to be rewritten."""

    data: bytes
    records_converted: int


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
) -> UpConverted:
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
    return UpConverted(builder.build(), builder.record_count)


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
