"""Validates the records of an append and converts them to the stored batch (Kafka's LogValidator).

Stored batches are always v2. A v2 batch that already has the target codec is patched in place.
Other records are rewritten: older formats, another codec, a compressed batch whose offset deltas
are not 0, 1, 2 ..., and compressed bytes that Kafka accepts but some clients cannot read (several
gzip members or snappy streams, or bytes after the stream).

``validate_and_convert`` does all the long work. A helper thread can call it, because it does not
access the log. ``set_offsets`` then sets the offsets of the batch.
"""

from typing import NamedTuple, TypeGuard

from klog_broker.log.batch_rows import BatchRow, header_row
from klog_broker.log.errors import RecordTooLarge
from klog_broker.log.log_config import LogConfig
from klog_broker.log.validation.append_rules import (
    COMPRESSING,
    AppendOrigin,
    Rules,
    raise_for_faults,
)
from klog_broker.log.validation.loop_share import LoopShare
from klog_broker.log.validation.record_checks import (
    MAX_RECORDS,
    NotInOrder,
    RecordChecks,
    RecordNotAllowed,
    RecordSummary,
    Wrapper,
)
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, is_cut_off
from pyspark_klog.records.builder import write_header
from pyspark_klog.records.compression import Codec, codec_of, compress
from pyspark_klog.records.errors import (
    CorruptRecords,
    DamagedCompression,
    DecompressedTooLarge,
    InvalidRecords,
)
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_sets import read_entry_head

__all__ = [
    "Validated",
    "check_size",
    "is_stored_unchanged",
    "set_offsets",
    "validate",
    "validate_and_convert",
]

_LEAST_MESSAGE_BYTES = at.LOG_OVERHEAD_BYTES + at.MIN_MESSAGE_SIZE[0]


class Validated(NamedTuple):
    """A validated batch, ready to be written, in a writable buffer."""

    data: bytearray | memoryview
    row: BatchRow
    log_append_time_ms: int  # -1 for CreateTime


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
    """Validate ``records`` and set the offsets: :func:`validate_and_convert`, then
    :func:`set_offsets`."""
    validated = validate_and_convert(
        records, now_ms=now_ms, config=config, checks=checks, origin=origin
    )
    return set_offsets(validated, first_offset, leader_epoch, now_ms)


def validate_and_convert(
    records: bytes | bytearray | memoryview,
    *,
    now_ms: int,
    config: LogConfig,
    checks: RecordChecks,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    share: LoopShare | None = None,
) -> Validated:
    """Validate ``records`` and convert them to the batch that is stored, with offsets from 0 on
    until ``set_offsets`` sets the final offsets.

    A writable buffer may be patched in place; a read-only buffer is copied.

    Raises CorruptRecords for a wrong length, magic or CRC, DamagedCompression, InvalidRecords for a
    malformed batch or record (its subclasses RecordsRefused and InvalidTimestamp say which records
    break the topic's rules), UnsupportedCodec, DecompressedTooLarge or RecordTooLarge. ``share`` is
    the validation work that the event loop may do (None: no limit, for example in a helper thread).
    Raises LoopShareExceeded if validation would take more work; ``records`` are then unchanged.
    """
    if origin is AppendOrigin.COORDINATOR and is_stored_unchanged(records, config):
        check_size(len(records), config)
        return Validated(records, header_row(records, 0), at.NO_TIMESTAMP_MS)
    rules = Rules(now_ms, config, checks, origin, share)
    if not len(records) or is_cut_off(records, 0, len(records)):
        raise InvalidRecords(
            f"{len(records)} bytes of records hold no whole batch (format 0 or 1: no whole message)"
        )
    if read_entry_head(records).magic == at.MAGIC_V2:
        return _prepare_batch(records, rules)
    return _prepare_messages(records, rules)


def is_stored_unchanged(
    records: bytes | bytearray | memoryview, config: LogConfig
) -> TypeGuard[bytearray]:
    """Whether a batch of this broker's own coordinators is stored unchanged, without validation of
    its records: a bytearray in the topic's codec (compression.type=producer: in any codec), if the
    topic uses CreateTime."""
    wanted = config.compression
    return (
        type(records) is bytearray
        and (wanted is None or wanted == records[at.ATTRIBUTES_AT + 1] & at.CODEC_MASK)
        and config.message_timestamp_type is TimestampType.CREATE_TIME
    )


def set_offsets(
    validated: Validated, first_offset: int, leader_epoch: int, now_ms: int
) -> Validated:
    """Set the offsets, beginning at ``first_offset``, and the leader epoch of a validated batch.

    Under LogAppendTime, also sets the append time to ``now_ms``.
    """
    data, append_time_ms = validated.data, validated.log_append_time_ms
    if append_time_ms not in (at.NO_TIMESTAMP_MS, now_ms):
        # Batches that were appended while a helper thread validated this batch may have a later
        # append time. Append times must not decrease, so set the time of this append.
        append_time_ms = now_ms
        BatchView(data).set_max_timestamp(now_ms, TimestampType.LOG_APPEND_TIME)
    # The CRC stays correct, because it does not cover the base offset and the leader epoch.
    at.INT64.pack_into(data, at.BASE_OFFSET_AT, first_offset)
    at.INT32.pack_into(data, at.LEADER_EPOCH_AT, leader_epoch)
    return Validated(data, header_row(data, 0), append_time_ms)


# --- batches of format v2 ------------------------------------------------------------------------
def _prepare_batch(records: bytes | bytearray | memoryview, rules: Rules) -> Validated:
    batch = BatchView(records)
    row = header_row(records, 0)
    _check_only_one(records, batch)
    if rules.origin is AppendOrigin.CLIENT and row.base_offset != 0:
        raise InvalidRecords(
            f"the batch has base offset {row.base_offset}; a producer's batch must begin with 0"
        )
    check_size(batch.size_bytes, rules.config)
    batch.check_crc()
    _check_header(row, rules.origin)
    try:
        return _prepare_records(records, batch, row, rules)
    except DamagedCompression:
        raise
    except CorruptRecords as error:
        # The CRC is correct, so the producer itself wrote these malformed records. Answer
        # INVALID_RECORD, because Java producers retry after CORRUPT_MESSAGE.
        raise InvalidRecords(str(error)) from None


def _prepare_records(
    records: bytes | bytearray | memoryview, batch: BatchView, row: BatchRow, rules: Rules
) -> Validated:
    codec = codec_of(row.attributes)
    is_control = bool(row.attributes & at.CONTROL_BIT)
    target = rules.target_codec(codec, is_control=is_control)
    is_kept = target is codec
    section: bytes | bytearray | memoryview
    if codec is Codec.NONE:
        section, start, end = records, at.RECORDS_AT, batch.size_bytes
    else:
        _check_count(row.record_count)
        with (
            memoryview(records) as view,
            view[at.RECORDS_AT : batch.size_bytes] as compressed,
        ):
            section, is_plain, _ = rules.inflate(codec, compressed, at.MAGIC_V2)
        is_kept = is_kept and is_plain
        start, end = 0, len(section)
    looking = min(row.record_count, (end - start) // at.MIN_RECORD_BYTES)
    rules.count_work(looking * rules.checks.work_per_record)
    # If the header says LogAppendTime, the timestamp of each record is the batch's max timestamp.
    claims_append_time = bool(row.attributes & at.TIMESTAMP_TYPE_BIT)
    allowed = rules.allowed(is_control=is_control)
    if is_kept and not claims_append_time:
        try:
            walk = rules.checks.walk(
                section,
                start,
                end,
                row.record_count,
                row.base_timestamp_ms,
                allowed.earliest_ms,
                allowed.latest_ms,
                allowed.key_required,
            )
            return _patch(records, batch.size_bytes, walk.max_timestamp_ms, rules)
        except NotInOrder:
            if codec is Codec.NONE:
                raise
            # Some old clients write wrong offset deltas. Like Kafka, rewrite their batches (below).
        except RecordNotAllowed:
            pass  # look_at_records below finds all faulty records.
    rules.count_work(2 * looking * rules.checks.work_per_record)
    base_timestamp_ms = row.max_timestamp_ms if claims_append_time else row.base_timestamp_ms
    found = rules.checks.look_at_records(
        section,
        start,
        end,
        row.record_count,
        base_timestamp_ms,
        allowed,
        claims_append_time=claims_append_time,
    )
    raise_for_faults(found, allowed)
    if codec is Codec.NONE and not found.in_order:
        raise InvalidRecords("a record's offset delta is not its number in the batch")
    if is_kept and found.in_order:
        return _patch(records, batch.size_bytes, found.max_timestamp_ms, rules)
    _check_timestamps(found)
    if target is not Codec.NONE:
        rules.count_work(COMPRESSING * found.size_bytes)
    data: bytearray | memoryview
    if found.in_order and not claims_append_time:
        with memoryview(section) as view, view[start:end] as unchanged:
            data = _compressed_batch(unchanged, target, rules)
    else:
        _check_plain_size(found, target, rules.config)
        data = rules.checks.write_records(
            section, start, end, found, claims_append_time=claims_append_time
        )
        del section
        if target is not Codec.NONE:
            data = _compressed_batch(memoryview(data)[at.RECORDS_AT :], target, rules)
    kept_bits = row.attributes & (at.TRANSACTIONAL_BIT | at.CONTROL_BIT)
    producer = (row.producer_id, row.producer_epoch, row.base_sequence)
    return _finish(data, target | kept_bits, base_timestamp_ms, found, producer, rules)


def _check_only_one(records: bytes | bytearray | memoryview, batch: BatchView) -> None:
    """Raise InvalidRecords if another whole batch or message follows the batch. An incomplete one
    is ignored."""
    if batch.size_bytes < len(records) and not is_cut_off(records, batch.size_bytes, len(records)):
        raise InvalidRecords("more than one batch; expected exactly one in format 2")


def check_size(size_bytes: int, config: LogConfig) -> None:
    """Raise RecordTooLarge if ``size_bytes`` exceeds max.message.bytes."""
    if size_bytes > config.max_message_bytes:
        raise RecordTooLarge(
            f"a batch of {size_bytes} bytes is larger than "
            f"max.message.bytes={config.max_message_bytes}"
        )


def _check_count(record_count: int) -> None:
    if record_count > MAX_RECORDS:
        raise DecompressedTooLarge(
            f"a compressed batch of {record_count} records, at most {MAX_RECORDS} are accepted; "
            f"send smaller batches"
        )


def _check_header(row: BatchRow, origin: AppendOrigin) -> None:
    if origin is not AppendOrigin.CLIENT:
        return
    if row.last_offset < row.base_offset:
        raise InvalidRecords(
            f"the batch begins at offset {row.base_offset}, but ends at {row.last_offset}"
        )
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
    if row.producer_id < 0 and row.attributes & at.TRANSACTIONAL_BIT:
        raise InvalidRecords(f"a transactional batch has no producer id: {row.producer_id}")


def _patch(
    records: bytes | bytearray | memoryview, size_bytes: int, max_timestamp_ms: int, rules: Rules
) -> Validated:
    view = memoryview(records)[:size_bytes]
    data: bytearray | memoryview = bytearray(view) if view.readonly else view
    batch = BatchView(data)
    append_time_ms = -1
    if rules.is_log_append_time:
        append_time_ms = max_timestamp_ms = rules.now_ms
    # Correct a wrong max timestamp in the batch's header. The CRC is computed again only if a field
    # changes.
    batch.set_max_timestamp(max_timestamp_ms, rules.config.message_timestamp_type)
    return Validated(data, header_row(data, 0), append_time_ms)


def _check_timestamps(found: RecordSummary) -> None:
    if found.least_timestamp_ms < at.NO_TIMESTAMP_MS:
        raise InvalidRecords(f"timestamp {found.least_timestamp_ms} ms: expected -1 (none) or more")


def _check_plain_size(found: RecordSummary, target: Codec, config: LogConfig) -> None:
    """Raise RecordTooLarge if a batch that will be stored uncompressed exceeds max.message.bytes.
    Called before the memory of the batch is allocated."""
    if target is Codec.NONE:
        check_size(at.BATCH_HEADER_BYTES + found.size_bytes, config)


def _compressed_batch(section: memoryview, codec: Codec, rules: Rules) -> bytearray:
    """Return a new buffer: space for a batch header, then ``section`` compressed with ``codec``."""
    config = rules.config
    if codec is Codec.NONE:
        check_size(at.BATCH_HEADER_BYTES + len(section), config)
        return bytearray(at.BATCH_HEADER_BYTES) + section
    level = config.compression_level if config.compression else None
    return bytearray(at.BATCH_HEADER_BYTES) + compress(codec, section, level=level)


def _finish(
    data: bytearray | memoryview,
    attributes: int,
    base_timestamp_ms: int,
    found: RecordSummary,
    producer: tuple[int, int, int],
    rules: Rules,
) -> Validated:
    """Write the batch header in front of the records in ``data``, and return the batch."""
    # Rewriting the records may have changed the size of the batch.
    check_size(len(data), rules.config)
    append_time_ms = -1
    max_timestamp_ms = found.max_timestamp_ms
    if rules.is_log_append_time:
        append_time_ms = max_timestamp_ms = rules.now_ms
        attributes |= at.TIMESTAMP_TYPE_BIT
    write_header(
        data,
        base_offset=0,
        leader_epoch=at.NO_LEADER_EPOCH,
        attributes=attributes,
        last_offset_delta=found.record_count - 1,
        timestamps_ms=(base_timestamp_ms, max_timestamp_ms),
        producer=producer,
        record_count=found.record_count,
    )
    return Validated(data, header_row(data, 0), append_time_ms)


# --- message sets of formats v0 and v1 -----------------------------------------------------------
def _prepare_messages(records: bytes | bytearray | memoryview, rules: Rules) -> Validated:
    """Convert a message set of format 0 or 1 (Produce versions 0 to 2) to one v2 batch."""
    source, wrapper, messages = _messages_of(records, rules)
    allowed = rules.allowed()
    looking = len(messages) // _LEAST_MESSAGE_BYTES
    rules.count_work(2 * looking * rules.checks.work_per_record)
    found = rules.checks.look_at_messages(messages, wrapper, allowed, MAX_RECORDS)
    if not found.record_count:
        raise InvalidRecords("the message set holds no record")
    if wrapper is not None:
        _check_wrapper(records, wrapper, found)
    raise_for_faults(found, allowed)
    _check_timestamps(found)
    target = rules.target_codec(source, is_control=False)
    if target is not Codec.NONE:
        rules.count_work(COMPRESSING * found.size_bytes)
    _check_plain_size(found, target, rules.config)
    data = rules.checks.write_messages(messages, wrapper, found)
    del messages
    if target is not Codec.NONE:
        data = _compressed_batch(memoryview(data)[at.RECORDS_AT :], target, rules)
    nobody = (at.NO_PRODUCER_ID, at.NO_PRODUCER_EPOCH, at.NO_SEQUENCE)
    return _finish(data, target, found.first_timestamp_ms, found, nobody, rules)


def _messages_of(
    records: bytes | bytearray | memoryview, rules: Rules
) -> tuple[Codec, Wrapper | None, Buffer]:
    """Return the codec of the message set, the wrapper message (None if the set is uncompressed),
    and the uncompressed messages."""
    first = LegacyView(records)
    if not first.attributes & at.CODEC_MASK:
        return Codec.NONE, None, records
    check_size(first.size_bytes, rules.config)
    first.check_crc()
    codec = first.codec
    end = first.size_bytes
    if end < len(records) and not is_cut_off(records, end, len(records)):
        raise InvalidRecords(
            "a compressed message among others: a set holds one wrapper and nothing else, or "
            "plain messages only"
        )
    claims_append_time = first.timestamp_type is TimestampType.LOG_APPEND_TIME
    wrapper = Wrapper(first.magic, first.timestamp_ms if claims_append_time else None)
    with first.value_view() as value:
        inflated = rules.inflate(codec, value, first.magic)
    if inflated.has_further_frames:
        # Kafka decompresses only the first frame and silently drops the messages in the further
        # frames.
        raise InvalidRecords("the wrapper holds more than one lz4 frame; expected exactly one")
    return codec, wrapper, inflated.data


def _check_wrapper(
    records: bytes | bytearray | memoryview, wrapper: Wrapper, found: RecordSummary
) -> None:
    """Check that the offset of a v1 wrapper is not below the relative offset of its last message. 0
    is always accepted, because old versions of librdkafka sent 0."""
    offset = read_entry_head(records).offset
    if wrapper.magic == at.MAGIC_V1 and offset != 0 and offset < found.last_offset:
        raise InvalidRecords(
            f"the wrapper has offset {offset}, less than the relative offset {found.last_offset} "
            f"of its last message"
        )
