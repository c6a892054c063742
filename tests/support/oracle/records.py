"""Record sets for generated Produce requests, and how those of a Fetch response are compared."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import (
    ControlType,
    EndTransactionMarker,
    end_transaction_batch,
)
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_sets import entries
from tests.fuzz.corpus import batch as likely_batch
from tests.fuzz.corpus import damaged_batch, old_set
from tests.support.records.record_sets import empty_batch

NOW_MS = 1_700_000_000_000
NO_PRODUCER = -1


@dataclass(frozen=True)
class MadeRecords:
    """A record set that is built when the broker's producer id is known."""

    kind: str
    seed: int
    producer_id: int = NO_PRODUCER
    epoch: int = 0
    sequence: int = 0
    is_transactional: bool = False

    def build(self, producer_id: int) -> bytes:
        """The bytes, the same for every broker but for the producer id."""
        return KINDS[self.kind](self, producer_id, Random(self.seed))


def batch(
    count: int = 3,
    codec: Codec = Codec.NONE,
    *,
    first: int = 0,
    timestamp_ms: int = NOW_MS,
    size: int = 5,
    key: bytes | None = b"key",
    **options: Any,
) -> bytes:
    """A batch of ``count`` records; values are numbered from ``first``."""
    builder = BatchBuilder(codec=codec, **options)
    for number in range(first, first + count):
        builder.append(key, b"%0*d" % (size, number), timestamp_ms + number)
    return builder.build()


def _own(spec: MadeRecords, producer_id: int, _: Random, **options: Any) -> bytes:
    if producer_id != NO_PRODUCER:
        options |= {
            "producer_id": producer_id,
            "producer_epoch": spec.epoch,
            "base_sequence": spec.sequence,
            "is_transactional": spec.is_transactional,
        }
    return batch(**options)


def _with(**options: Any) -> Callable[[MadeRecords, int, Random], bytes]:
    return lambda spec, producer_id, random: _own(spec, producer_id, random, **options)


def _changed(change: Callable[[bytearray], object], *, update_crc: bool = True) -> Any:
    """A plain batch with a change behind which the CRC fits again."""

    def build(spec: MadeRecords, producer_id: int, random: Random) -> bytes:
        data = bytearray(_own(spec, producer_id, random))
        change(data)
        if update_crc:
            BatchView(data).update_crc()
        return bytes(data)

    return build


def _put(place: int, layout: Any, value: int) -> Callable[[bytearray], object]:
    return lambda data: layout.pack_into(data, place, value)


def _twice(spec: MadeRecords, producer_id: int, random: Random) -> bytes:
    return _own(spec, producer_id, random) + _own(spec, producer_id, random, first=3)


KINDS: dict[str, Callable[[MadeRecords, int, Random], bytes]] = {
    "plain": _own,
    "gzip": _with(codec=Codec.GZIP),
    "snappy": _with(codec=Codec.SNAPPY),
    "lz4": _with(codec=Codec.LZ4),
    "zstd": _with(codec=Codec.ZSTD),
    "a null key": _with(key=None),
    "an empty key": _with(key=b""),
    "no records": lambda *given: empty_batch(BatchView(_own(*given))),
    "one record": _with(count=1),
    "a hundred records": _with(count=100),
    "at max.message.bytes": _with(count=1, size=200 - 61 - 12),
    "above max.message.bytes": _with(count=1, size=200 - 61 - 11),
    "a time below 0": _changed(_put(at.BASE_TIMESTAMP_AT, at.INT64, -1_000)),
    "no time": _with(count=1, timestamp_ms=-1),
    "a time far ahead": _with(timestamp_ms=1 << 50),
    "log append time": _with(
        timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW_MS
    ),
    "a base offset": _with(base_offset=7),
    "a control batch": _with(is_control=True),
    "a marker": lambda spec, producer_id, random: end_transaction_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        producer_id=producer_id,
        producer_epoch=spec.epoch,
        timestamp_ms=NOW_MS,
    ),
    "two batches": _twice,
    "two batches, the second cut off": lambda *given: _twice(*given)[:-1],
    "cut off": lambda *given: _own(*given)[:-1],
    "only a header": lambda *given: _own(*given)[:61],
    "a byte behind": lambda *given: _own(*given) + b"x",
    "16 bytes": lambda *_: bytes(16),
    "17 bytes": lambda *_: bytes(17),
    "a wrong crc": _changed(_put(at.CRC_AT, at.UINT32, 7), update_crc=False),
    "magic 3": _changed(_put(at.MAGIC_AT, at.INT8, 3), update_crc=False),
    "magic -1": _changed(_put(at.MAGIC_AT, at.INT8, -1), update_crc=False),
    "codec 5": _changed(_put(at.ATTRIBUTES_AT, at.INT16, 5)),
    "codec 7": _changed(_put(at.ATTRIBUTES_AT, at.INT16, 7)),
    "gzip of plain bytes": _changed(_put(at.ATTRIBUTES_AT, at.INT16, 1)),
    "an unknown attribute": _changed(_put(at.ATTRIBUTES_AT, at.INT16, 1 << 9)),
    "a delete horizon": _changed(_put(at.ATTRIBUTES_AT, at.INT16, 1 << 6)),
    "a last offset delta of 9": _changed(_put(at.LAST_OFFSET_DELTA_AT, at.INT32, 9)),
    "a count of 2": _changed(_put(at.RECORD_COUNT_AT, at.INT32, 2)),
    "a count of 4": _changed(_put(at.RECORD_COUNT_AT, at.INT32, 4)),
    "a count of -1": _changed(_put(at.RECORD_COUNT_AT, at.INT32, -1)),
    "a wrong max timestamp": _changed(_put(at.MAX_TIMESTAMP_AT, at.INT64, NOW_MS + 1_000)),
    "a max timestamp of -1": _changed(_put(at.MAX_TIMESTAMP_AT, at.INT64, -1)),
    "a sequence without a producer": _changed(_put(at.BASE_SEQUENCE_AT, at.INT32, 5)),
    "a leader epoch": _changed(_put(at.LEADER_EPOCH_AT, at.INT32, 5)),
    "likely": lambda spec, producer_id, random: likely_batch(random),
    "damaged": lambda spec, producer_id, random: damaged_batch(likely_batch(random), random),
    "of an old format": lambda spec, producer_id, random: old_set(random),
}


def read_records(data: Any, name_producer: Callable[[int], object]) -> object:
    """A record set as rows to compare: each batch's header, each record.

    Sizes of compressed batches and CRCs are left out: each broker compresses with its own library.
    Times that a broker set are left out, too.
    """
    if data is None:
        return None
    rows: list[object] = []
    try:
        for entry in entries(bytes(data), allow_partial=True):
            is_ours = entry.timestamp_type is not TimestampType.LOG_APPEND_TIME
            is_ours = is_ours and not entry.is_control
            rows.append(
                (
                    type(entry).__name__,
                    entry.codec.name,
                    entry.timestamp_type.name,
                    _producer_of(entry, name_producer),
                    [
                        (
                            each.offset,
                            each.timestamp_ms if is_ours else "a time",
                            each.key,
                            each.value,
                            list(each.headers),
                        )
                        for each in entry.records()
                    ],
                )
            )
    except (RecordsError, ValueError) as error:
        rows.append(type(error).__name__)
    return rows


def _producer_of(entry: Any, name_producer: Callable[[int], object]) -> object:
    if not isinstance(entry, BatchView):
        return None
    return (
        name_producer(entry.producer_id),
        entry.producer_epoch,
        entry.base_sequence,
        entry.is_transactional,
        entry.is_control,
    )
