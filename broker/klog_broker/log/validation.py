"""What may be appended, and in which form it is stored: Kafka's LogValidator.

What is stored is always v2. An uncompressed or compressed v2 batch in the wanted codec is patched
where it lies; everything else (older formats, another codec, a compressed batch whose offset deltas
are not 0, 1, 2 ...) is written anew.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from klog_broker.log.checks import (
    NotInOrder,
    RecordChecks,
    RecordNotAllowed,
    header_row,
)
from klog_broker.log.digests import BatchRow
from klog_broker.log.errors import (
    InvalidTimestamp,
    RecordError,
    RecordsRefused,
    RecordTooLarge,
)
from klog_broker.log.log_config import INT64_MAX, LogConfig
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, is_cut_off
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec, codec_of, decompress
from pyspark_klog.records.convert import up_convert
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.sets import entries, look

_INT64_MIN = -(2**63)
# How many of a batch's faults the text of an exception names, as in Kafka.
_NAMED_FAULTS = 3


class AppendOrigin(Enum):
    """Who appends: decides what is checked (Kafka's AppendOrigin)."""

    CLIENT = "client"  # everything is checked
    COORDINATOR = "coordinator"  # control batches are allowed, sequences are not checked


class Validated(NamedTuple):
    """A batch as it is to be written, with its offsets in place."""

    data: bytes | bytearray | memoryview
    row: BatchRow
    log_append_time_ms: int  # -1 under create time


def validate(
    records: bytes | bytearray | memoryview,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    config: LogConfig,
    checks: RecordChecks,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> Validated:
    """Check ``records`` and give them offsets from ``first_offset`` on.

    Raises CorruptRecords, InvalidRecords (RecordsRefused and InvalidTimestamp name the records),
    UnsupportedCodec, DecompressedTooLarge, RecordTooLarge. A writable buffer is patched in place,
    from a read-only one a copy is made.
    """
    rules = _Rules(first_offset, leader_epoch, now_ms, config, checks, origin)
    if not len(records) or is_cut_off(records, 0, len(records)):
        raise InvalidRecords(
            f"{len(records)} bytes of records hold no whole batch; expected exactly one"
        )
    if look(records).magic == at.MAGIC_V2:
        return _validate_batch(records, rules)
    return _validate_legacy(records, rules)


class _Rules(NamedTuple):
    first_offset: int
    leader_epoch: int
    now_ms: int
    config: LogConfig
    checks: RecordChecks
    origin: AppendOrigin

    @property
    def is_log_append_time(self) -> bool:
        return self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME

    def timestamp_bounds_ms(self) -> tuple[int, int]:
        """The earliest and the latest timestamp that a record may have; -1 is always allowed."""
        if self.is_log_append_time:
            return _INT64_MIN, INT64_MAX
        config = self.config
        earliest = self.now_ms - config.message_timestamp_before_max_ms
        latest = self.now_ms + config.message_timestamp_after_max_ms
        return max(earliest, _INT64_MIN), min(latest, INT64_MAX)

    def target_codec(self, source: Codec, *, is_control: bool) -> Codec:
        # Control records stay uncompressed: not every client inflates them.
        if self.config.compression is None or (is_control and source is Codec.NONE):
            return source
        return self.config.compression


# --- v2 ------------------------------------------------------------------------------------------
def _validate_batch(records: bytes | bytearray | memoryview, rules: _Rules) -> Validated:
    batch = BatchView(records)
    row = header_row(records, 0)
    _check_only_one(records, batch)
    if rules.origin is AppendOrigin.CLIENT and row.base_offset != 0:
        raise InvalidRecords(
            f"the batch has base offset {row.base_offset}; what a producer sends begins with 0"
        )
    _check_size(batch.size_bytes, rules.config)
    batch.check_crc()
    _check_header(row, rules.origin)
    codec = codec_of(row.attributes)
    is_control = bool(row.attributes & at.CONTROL_BIT)
    target = rules.target_codec(codec, is_control=is_control)
    max_bytes = rules.config.max_decompressed_bytes
    section: bytes | bytearray | memoryview
    if codec is Codec.NONE:
        section, start, end = records, at.RECORDS_AT, batch.size_bytes
    else:
        with (
            memoryview(records) as view,
            view[at.RECORDS_AT : batch.size_bytes] as compressed,
        ):
            section = decompress(codec, compressed, max_bytes=max_bytes)
        start, end = 0, len(section)
    in_place = target is codec
    # Each record of a batch that claims log append time has the batch's timestamp, not its own.
    claims_append_time = bool(row.attributes & at.TIMESTAMP_TYPE_BIT)
    earliest_ms, latest_ms = rules.timestamp_bounds_ms()
    if claims_append_time:
        earliest_ms, latest_ms = _INT64_MIN, INT64_MAX
    try:
        walk = rules.checks.walk(
            section,
            start,
            end,
            row.record_count,
            row.base_timestamp_ms,
            earliest_ms,
            latest_ms,
            rules.config.compact and not is_control,
        )
        max_timestamp_ms = walk.max_timestamp_ms
    except NotInOrder:
        if codec is Codec.NONE:
            raise
        # Some old clients give the inner offsets wrong; Kafka stores their batches written anew.
        in_place = False
        max_timestamp_ms = row.max_timestamp_ms
    except RecordNotAllowed:
        _refuse(list(batch.records(max_bytes)), rules, claims_append_time=claims_append_time)
        raise
    if claims_append_time or not in_place:
        kept = list(batch.records(max_bytes))
        _refuse(kept, rules, claims_append_time=claims_append_time)
        max_timestamp_ms = max(record.timestamp_ms for record in kept)
        if not in_place:
            return _rebuild(kept, row, target, rules)
    return _patch(records, batch.size_bytes, max_timestamp_ms, rules)


def _check_only_one(records: bytes | bytearray | memoryview, batch: BatchView) -> None:
    """Bytes behind the batch that begin another are refused; an incomplete rest is dropped."""
    if batch.size_bytes < len(records) and not is_cut_off(records, batch.size_bytes, len(records)):
        raise InvalidRecords("more than one batch; expected exactly one in format 2")


def _check_size(size_bytes: int, config: LogConfig) -> None:
    if size_bytes > config.max_message_bytes:
        raise RecordTooLarge(
            f"a batch of {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}"
        )


def _check_header(row: BatchRow, origin: AppendOrigin) -> None:
    if origin is not AppendOrigin.CLIENT:
        return
    if row.last_offset < row.base_offset:
        raise InvalidRecords(f"the batch's offsets are {row.base_offset} to {row.last_offset}")
    if row.record_count <= 0:
        raise InvalidRecords(f"the batch counts {row.record_count} records, expected at least 1")
    if row.last_offset - row.base_offset + 1 != row.record_count:
        raise InvalidRecords(
            f"the batch has offsets {row.base_offset} to {row.last_offset}, and counts "
            f"{row.record_count} records"
        )
    if row.attributes & at.CONTROL_BIT:
        raise InvalidRecords("clients are not allowed to write control records")
    if row.producer_id >= 0 and row.base_sequence < 0:
        raise InvalidRecords(
            f"the batch of producer {row.producer_id} has sequence {row.base_sequence}, "
            f"expected 0 or more"
        )


def _patch(
    records: bytes | bytearray | memoryview, size_bytes: int, max_timestamp_ms: int, rules: _Rules
) -> Validated:
    view = memoryview(records)[:size_bytes]
    data: bytearray | memoryview = bytearray(view) if view.readonly else view
    batch = BatchView(data)
    append_time_ms = -1
    if rules.is_log_append_time:
        append_time_ms = max_timestamp_ms = rules.now_ms
    # A wrong largest timestamp is put right; the CRC is made anew only if something changes.
    batch.set_max_timestamp(max_timestamp_ms, rules.config.message_timestamp_type)
    batch.set_base_offset(rules.first_offset)
    batch.set_partition_leader_epoch(rules.leader_epoch)
    return Validated(data, header_row(data, 0), append_time_ms)


def _rebuild(records: list[Record], row: BatchRow, codec: Codec, rules: _Rules) -> Validated:
    append_time_ms = rules.now_ms if rules.is_log_append_time else None
    builder = BatchBuilder(
        rules.first_offset,
        codec,
        rules.config.message_timestamp_type,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        base_sequence=row.base_sequence,
        is_transactional=bool(row.attributes & at.TRANSACTIONAL_BIT),
        is_control=bool(row.attributes & at.CONTROL_BIT),
        partition_leader_epoch=rules.leader_epoch,
        log_append_time_ms=append_time_ms,
        compression_level=rules.config.compression_level if rules.config.compression else None,
    )
    for record in records:
        timestamp_ms = record.timestamp_ms if append_time_ms is None else append_time_ms
        builder.append(record.key, record.value, timestamp_ms, record.headers)
    return _built(builder.build(), append_time_ms, rules)


def _built(data: bytes, append_time_ms: int | None, rules: _Rules) -> Validated:
    # The size may have changed.
    _check_size(len(data), rules.config)
    return Validated(data, header_row(data, 0), -1 if append_time_ms is None else append_time_ms)


# --- v0 and v1 -----------------------------------------------------------------------------------
def _validate_legacy(records: bytes | bytearray | memoryview, rules: _Rules) -> Validated:
    """Message sets of Produce 0 to 2: converted to one v2 batch."""
    end = 0
    kept: list[Record] = []
    claims_append_time = False
    source_codec = Codec.NONE
    max_bytes = rules.config.max_decompressed_bytes
    for entry in entries(records, allow_partial=True):
        if isinstance(entry, BatchView):
            raise InvalidRecords("batches of format 2 among messages of older formats")
        _check_size(entry.size_bytes, rules.config)
        entry.check_crc()
        end = entry.position + entry.size_bytes
        claims_append_time |= entry.timestamp_type is TimestampType.LOG_APPEND_TIME
        source_codec = max(source_codec, entry.codec)
        if kept and source_codec is not Codec.NONE:
            # Said before it is inflated: what each may inflate to is bounded, their number is not.
            raise InvalidRecords(
                "a compressed message among others: a set holds one wrapper and nothing else, or "
                "plain messages only"
            )
        kept += entry.records(max_bytes)
    if not kept:
        raise CorruptRecords("the set holds no record")
    _refuse(kept, rules, claims_append_time=claims_append_time)
    append_time_ms = rules.now_ms if rules.is_log_append_time else None
    config = rules.config
    converted = up_convert(
        records,
        end=end,
        base_offset=rules.first_offset,
        codec=rules.target_codec(source_codec, is_control=False),
        log_append_time_ms=append_time_ms,
        partition_leader_epoch=rules.leader_epoch,
        compression_level=config.compression_level if config.compression else None,
        max_bytes=max_bytes,
    )
    return _built(converted.data, append_time_ms, rules)


# --- the records' own faults ---------------------------------------------------------------------
def _refuse(records: Iterable[Record], rules: _Rules, *, claims_append_time: bool) -> None:
    """Raise what is wrong with single records, if anything is: all of them are named (KIP-467)."""
    earliest_ms, latest_ms = rules.timestamp_bounds_ms()
    keys: list[RecordError] = []
    timestamps: list[RecordError] = []
    for number, record in enumerate(records):
        timestamp_ms = record.timestamp_ms
        if rules.config.compact and record.key is None and rules.origin is AppendOrigin.CLIENT:
            keys.append(RecordError(number, "a compacted topic takes no record without a key"))
        elif not rules.is_log_append_time and timestamp_ms != at.NO_TIMESTAMP_MS:
            if not earliest_ms <= timestamp_ms <= latest_ms:
                text = (
                    f"timestamp {timestamp_ms} of record {number} is out of range, expected "
                    f"{earliest_ms} to {latest_ms}"
                )
                timestamps.append(RecordError(number, text))
        elif claims_append_time:
            text = "a producer must not set the timestamp type to LogAppendTime"
            timestamps.append(RecordError(number, text))
    if not keys and not timestamps:
        return
    faults = tuple(sorted(keys + timestamps, key=lambda fault: fault.batch_index))
    if not keys:
        raise InvalidTimestamp(
            f"{len(faults)} records have timestamps that are not accepted: {faults[0].message}",
            faults,
        )
    named = "; ".join(f"record {f.batch_index}: {f.message}" for f in faults[:_NAMED_FAULTS])
    raise RecordsRefused(f"{len(faults)} records are not accepted: {named}", faults)
