"""Valid inputs for targets: record sets in all formats, messages with likely values."""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from pyspark_klog.protocol.message import Field, Struct
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.legacy import encode_message
from tests.support.golden.cases import GOLDEN_DIR, Golden
from tests.support.protocol.samples import sample

NOW_MS = 1_700_000_000_000
_HEADER_FIELDS = (
    (at.BASE_OFFSET_AT, "q"),
    (at.BATCH_LENGTH_AT, "i"),
    (at.LEADER_EPOCH_AT, "i"),
    (at.MAGIC_AT, "b"),
    (at.ATTRIBUTES_AT, "h"),
    (at.LAST_OFFSET_DELTA_AT, "i"),
    (at.BASE_TIMESTAMP_AT, "q"),
    (at.MAX_TIMESTAMP_AT, "q"),
    (at.PRODUCER_ID_AT, "q"),
    (at.PRODUCER_EPOCH_AT, "h"),
    (at.BASE_SEQUENCE_AT, "i"),
    (at.RECORD_COUNT_AT, "i"),
)
_NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 127, 2**15 - 1, 2**31 - 1, 2**63 - 1, NOW_MS)


@cache
def golden_sets() -> list[bytes]:
    """Record sets by every other client, in every format and codec."""
    found = [Golden.load(path).data for path in sorted(GOLDEN_DIR.glob("*.json"))]
    return [data for data in found if len(data) < 2_000]


def batch(
    random: Random, *, sequence: int | None = None, producer: tuple[int, int] = (1, 0)
) -> bytes:
    """A valid batch; with a ``sequence``, one of that producer (id, epoch)."""
    producer_id, epoch = producer if sequence is not None else (-1, -1)
    builder = BatchBuilder(
        random.choice((0, 0, 0, 7, 2**40)),
        random.choice((Codec.NONE, Codec.NONE, *Codec)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1 if sequence is None else sequence,
        is_transactional=sequence is not None and random.random() < 0.3,
    )
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        headers = (("h", b"v"), ("ä", None)) if random.random() < 0.2 else ()
        key = random.choice((None, b"", b"key", b"k%d" % random.randrange(3)))
        value = random.choice((None, b"", b"value", random.randbytes(40)))
        builder.append(key, value, NOW_MS + random.randrange(5), headers)
    return builder.build()


def old_set(random: Random) -> bytes:
    """A valid record set in format 0 or 1, plain or in a compressed wrapper message."""
    magic = random.choice((0, 1))
    values = [random.choice((None, b"", b"value", random.randbytes(20))) for _ in range(3)]
    plain = b"".join(
        encode_message(magic, number, -1 if magic == 0 else NOW_MS, b"k", value)
        for number, value in enumerate(values[: random.randrange(1, 4)])
    )
    codec = random.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    if codec is Codec.NONE:
        return plain
    packed = compress(codec, plain, magic=magic)
    return encode_message(magic, 2, -1 if magic == 0 else NOW_MS, None, packed, codec)


def damaged_batch(data: bytes, random: Random) -> bytes:
    """A batch of format 2 with wrong fields or wrong records, and usually a CRC that fits.

    With a CRC that fits, only the checks after the CRC can find the fault.
    """
    changed = bytearray(data)
    if len(changed) < at.BATCH_HEADER_BYTES or changed[at.MAGIC_AT] != at.MAGIC_V2:
        return data
    for _ in range(random.choice((1, 1, 2, 3))):
        if random.random() < 0.6:
            place, code = random.choice(_HEADER_FIELDS)
            bits = 8 * struct.calcsize(code)
            (old,) = struct.unpack_from(f">{code}", changed, place)
            value = random.choice((*_NUMBERS, old + 1, old - 1, random.getrandbits(bits)))
            number = value & ((1 << bits) - 1)
            changed[place : place + bits // 8] = number.to_bytes(bits // 8, "big")
        elif len(changed) > at.RECORDS_AT:
            place = random.randrange(at.RECORDS_AT, len(changed))
            kind = random.randrange(3)
            if kind == 0:
                changed[place] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
            elif kind == 1:
                del changed[place : place + random.choice((1, 1, 2, 9))]
            else:
                changed[place:place] = changed[place : place + random.choice((1, 2, 9))]
    if random.random() < 0.9 and changed[at.MAGIC_AT] == at.MAGIC_V2:
        if random.random() < 0.9:
            size = len(changed) - at.LOG_OVERHEAD_BYTES
            struct.pack_into(">i", changed, at.BATCH_LENGTH_AT, size)
        try:
            BatchView(changed).update_crc()
        except Exception:
            return bytes(changed)
    return bytes(changed)


_LIKELY: dict[str, tuple[Any, ...]] = {
    "groups": ("group", "", "another"),
    "transactional": ("tx", "", "other-tx"),
    "members": ("", "member", "group-1"),
    "protocols": ("range", "sticky", "consumer"),
    "settings": ("retention.ms", "cleanup.policy", "segment.bytes", "log.cleaner.threads", "none"),
}
_SMALL = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def likely(
    cls: type[Any],
    version: int,
    flexible: bool,
    random: Random,
    topics: tuple[str, ...],
    topic_ids: tuple[UUID, ...],
) -> Any:
    """A message in which most values are plausible."""
    message = sample(cls, version, flexible, random)
    _make_likely(message, version, random, topics, topic_ids)
    return message


def _make_likely(
    message: Struct, version: int, random: Random, topics: tuple[str, ...], ids: tuple[UUID, ...]
) -> None:
    for name, row in type(message).__fields__.items():
        if not row.in_version(version):
            continue
        value = getattr(message, name)
        if isinstance(value, Struct):
            _make_likely(value, version, random, topics, ids)
        elif row.kind == "array" and row.element is not None:
            value = value or ()
            for each in value:
                if isinstance(each, Struct):
                    _make_likely(each, version, random, topics, ids)
            if row.element.struct is None and random.random() < 0.7:
                made = [_value(name, row.element, random, topics, ids) for _ in value]
                setattr(
                    message,
                    name,
                    [new if new is not None else old for new, old in zip(made, value, strict=True)],
                )
        elif value is not None and random.random() < 0.8:
            new = _value(name, row, random, topics, ids)
            if new is not None:
                setattr(message, name, new)


def _value(
    name: str, row: Field, random: Random, topics: tuple[str, ...], ids: tuple[UUID, ...]
) -> Any:
    if row.kind == "uuid":
        return random.choice(ids)
    if row.kind == "string":
        for word, choices in (
            ("group", _LIKELY["groups"]),
            ("transactional", _LIKELY["transactional"]),
            ("member", _LIKELY["members"]),
            ("instance", _LIKELY["members"]),
            ("protocol", _LIKELY["protocols"]),
            ("config", _LIKELY["settings"]),
            ("key", _LIKELY["groups"]),
        ):
            if word in name:
                return random.choice(choices)
        return random.choice((*topics, "1", "100"))
    if row.kind in _SMALL:
        if "ms" in name or "timeout" in name:
            return random.choice((0, 1, 100, 6_000))
        return random.choice((-1, 0, 0, 0, 1, 1, 2, 3, 100))
    if row.kind == "records":
        data = batch(random, sequence=random.choice((None, 0)))
        return damaged_batch(data, random) if random.random() < 0.3 else data
    return None
