"""A model of compaction in plain Python: record by record, with a dict for the key map.

The model reads with the iterators and builds batches field by field; it shares no code with the
package `compaction` but the names of the verdicts' bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from klog_broker.compaction.kernel import (
    DROP_RECORDS,
    KEEP_RECORDS,
    RETAIN_EMPTY,
    SET_HORIZON,
)
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import write_header
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.records.legacy import LegacyView, encode_message
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_section import wrap_int64
from pyspark_klog.records.record_sets import Entry
from pyspark_klog.records.varint import read_varint, read_varlong, varint

MAX_DECOMPRESSED_BYTES = 1 << 20
_STAYS_EMPTY = at.TIMESTAMP_TYPE_BIT | at.TRANSACTIONAL_BIT | at.CONTROL_BIT


def records_of(entry: Entry) -> Iterator[Record]:
    """The records of an entry; those of a batch rise within it."""
    if isinstance(entry, LegacyView):
        yield from entry.records(MAX_DECOMPRESSED_BYTES)
        return
    before = entry.base_offset - 1
    for record in entry.records(MAX_DECOMPRESSED_BYTES):
        if not before < record.offset <= entry.last_offset:
            raise InvalidRecords("offsets do not rise")
        before = record.offset
        yield record


@dataclass
class ModelMap:
    """Model of a KeyMap that holds at most ``most_keys`` keys."""

    most_keys: int
    offsets: dict[bytes, int] = field(default_factory=dict)
    latest_offset: int = -1

    def add(self, rows: Sequence[Entry], skip: Sequence[int], from_offset: int) -> bool:
        for entry, is_skipped in zip(rows, skip, strict=True):
            if entry.last_offset < from_offset:
                continue
            if not is_skipped:
                for record in records_of(entry):
                    if record.key is None or record.offset < from_offset:
                        continue
                    if record.key not in self.offsets and len(self.offsets) >= self.most_keys:
                        return False
                    self.offsets[record.key] = max(record.offset, self.offsets.get(record.key, -1))
            self.latest_offset = max(self.latest_offset, entry.last_offset)
        return True


@dataclass
class Model:
    """Model of a ChunkFilter."""

    key_map: ModelMap
    now_ms: int
    delete_retention_ms: int
    keep_old_tombstones: bool
    records_read: int = 0
    records_kept: int = 0

    def filter(self, rows: Sequence[Entry], verdicts: Sequence[int]) -> list[bytes]:
        """Return the remaining bytes of each entry."""
        left = []
        for entry, verdict in zip(rows, verdicts, strict=True):
            if isinstance(entry, LegacyView):
                left.append(self._filter_old(entry, verdict))
            else:
                left.append(self._filter_batch(entry, verdict))
        return left

    def is_kept(self, entry: Entry, record: Record) -> bool:
        """The rule for a record that is looked up."""
        if record.offset > self.key_map.latest_offset:
            return True
        if record.key is None or record.offset < self.key_map.offsets.get(record.key, -1):
            return False
        if record.value is not None:
            return True
        if isinstance(entry, LegacyView):
            return self.keep_old_tombstones
        return entry.delete_horizon_ms is None or self.now_ms < entry.delete_horizon_ms

    def _filter_batch(self, batch: BatchView, verdict: int) -> bytes:
        self.records_read += batch.record_count
        sets_horizon = bool(verdict & SET_HORIZON) and not batch.has_delete_horizon
        if batch.record_count and verdict & KEEP_RECORDS and not sets_horizon:
            self.records_kept += batch.record_count
            return batch.to_bytes()
        kept: list[tuple[Record, bytes]] = []
        if not verdict & DROP_RECORDS:
            records = list(records_of(batch))
            raws = raw_records(bytes(batch.records_section(MAX_DECOMPRESSED_BYTES)), len(records))
            kept = [
                (record, raw)
                for record, raw in zip(records, raws, strict=True)
                if verdict & KEEP_RECORDS or self.is_kept(batch, record)
            ]
        self.records_kept += len(kept)
        if not kept:
            return _emptied(batch) if verdict & RETAIN_EMPTY else b""
        if any(record.value is None for record, _ in kept) and not batch.has_delete_horizon:
            sets_horizon = True
        if len(kept) == batch.record_count and not sets_horizon:
            return batch.to_bytes()
        base_ms, attributes = batch.base_timestamp_ms, batch.attributes
        section = b"".join(raw for _, raw in kept)
        if sets_horizon:
            base_ms = min(self.now_ms + self.delete_retention_ms, at.INT64_MAX)
            attributes |= at.DELETE_HORIZON_BIT
            section = b"".join(
                retimed(raw, wrap_int64(record.timestamp_ms - base_ms)) for record, raw in kept
            )
        max_ms = batch.max_timestamp_ms
        if batch.timestamp_type is TimestampType.CREATE_TIME:
            max_ms = max(-1, *(record.timestamp_ms for record, _ in kept))
        return _batch_like(batch, attributes, base_ms, max_ms, len(kept), section)

    def _filter_old(self, entry: LegacyView, verdict: int) -> bytes:
        records = list(records_of(entry))
        self.records_read += len(records)
        kept = [
            record
            for record in records
            if not verdict & DROP_RECORDS
            and (verdict & KEEP_RECORDS or self.is_kept(entry, record))
        ]
        self.records_kept += len(kept)
        is_append_time = entry.timestamp_type is TimestampType.LOG_APPEND_TIME
        type_bit = at.TIMESTAMP_TYPE_BIT if is_append_time else 0
        if not kept:
            return _empty_for(entry, type_bit) if verdict & RETAIN_EMPTY else b""
        if len(kept) == len(records):
            return entry.to_bytes()
        shift = kept[0].offset if entry.magic == at.MAGIC_V1 else 0
        inner = b"".join(
            encode_message(
                entry.magic,
                record.offset - shift,
                record.timestamp_ms,
                record.key,
                record.value,
                type_bit,
            )
            for record in kept
        )
        return encode_message(
            entry.magic,
            kept[-1].offset,
            max(record.timestamp_ms for record in kept),
            None,
            compress(entry.codec, inner, magic=entry.magic),
            entry.codec | type_bit,
        )


def raw_records(section: bytes, count: int) -> list[bytes]:
    """The bytes of each record of a section that is known to be good."""
    found, position = [], 0
    for _ in range(count):
        length, start = read_varint(section, position, len(section))
        found.append(section[position : start + length])
        position = start + length
    return found


def retimed(raw: bytes, timestamp_delta: int) -> bytes:
    """A record with another timestamp delta, and its attributes 0."""
    _, start = read_varint(raw, 0, len(raw))
    _, rest_at = read_varlong(raw, start + 1, len(raw))
    body = b"\0" + varint(timestamp_delta) + raw[rest_at:]
    return varint(len(body)) + body


def _batch_like(
    source: BatchView, attributes: int, base_ms: int, max_ms: int, count: int, section: bytes
) -> bytes:
    codec = Codec(attributes & at.CODEC_MASK)
    batch = bytearray(at.BATCH_HEADER_BYTES) + compress(codec, section)
    write_header(
        batch,
        base_offset=source.base_offset,
        leader_epoch=source.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=source.last_offset_delta,
        timestamps_ms=(base_ms, max_ms),
        producer=(source.producer_id, source.producer_epoch, source.base_sequence),
        record_count=count,
    )
    return bytes(batch)


def _emptied(source: BatchView) -> bytes:
    attributes = source.attributes & _STAYS_EMPTY
    return _batch_like(source, attributes, -1, source.max_timestamp_ms, 0, b"")


def _empty_for(entry: LegacyView, type_bit: int) -> bytes:
    batch = bytearray(at.BATCH_HEADER_BYTES)
    write_header(
        batch,
        base_offset=entry.offset,
        leader_epoch=-1,
        attributes=type_bit,
        last_offset_delta=0,
        timestamps_ms=(-1, entry.timestamp_ms),
        producer=(-1, -1, -1),
        record_count=0,
    )
    return bytes(batch)
