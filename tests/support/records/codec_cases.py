"""Compressed batches, whole, odd and damaged, for brokers of Kafka and klog to answer alike.

The libraries of the codecs make the compressed bytes; klog compresses nothing here.
"""

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cramjam
import lz4.frame
import zstandard

from pyspark_klog.records import layout as at
from pyspark_klog.records import lz4_v0
from pyspark_klog.records.builder import BatchBuilder, write_header
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.legacy import encode_message

SMALL = (b"one" * 40, b"two" * 40, b"three" * 40)
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_NOW_MS = 1_700_000_000_000
_XERIAL_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"extra"
_ZSTD_MAGIC = 0xFD2FB528

Payloads = Iterator[tuple[str, bytes]]


class CodecCase(NamedTuple):
    """Records for Produce, in the format ``magic``."""

    name: str
    magic: int
    values: tuple[bytes, ...]
    """The values of the records, for a broker that accepts them."""
    records: bytes


def cases() -> Iterator[CodecCase]:
    """All cases, each with a name of its own."""
    for magic, codec in ((magic, codec) for magic in (2, 1, 0) for codec in CODECS):
        if codec is Codec.ZSTD and magic < 2:
            continue
        for values, payloads in ((SMALL, small_payloads), (large_values(), _large_payloads)):
            for name, payload in payloads(codec, magic):
                records = _with_header(codec, payload, len(values), magic)
                full_name = f"v{magic} {codec.name.lower()}: {name}"
                yield CodecCase(full_name, magic, _values_in(name, magic, values), records)


def _values_in(name: str, magic: int, values: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The old formats have no count: as many messages are there as the streams hold."""
    if magic < 2 and name.endswith(("all, then another record's stream", "the records twice")):
        return values * 2
    return values[:1] if magic < 2 and name == "one of the records" else values


def large_values() -> tuple[bytes, ...]:
    """More bytes than any reader's buffer takes; no codec makes them smaller."""
    noise = random.Random(1).randbytes(390_000)
    return tuple(noise[start : start + 130_000] for start in range(0, len(noise), 130_000))


def small_payloads(codec: Codec, magic: int = 2) -> Payloads:
    """Compressed forms of SMALL, each with what is odd or wrong with it."""
    section = _section(SMALL, magic)

    def pack(data: bytes) -> bytes:
        return _packed(codec, data, magic)

    whole = pack(section)
    first = len(_section(SMALL[:1], magic))
    yield "whole", whole
    yield "two streams", pack(section[:first]) + pack(section[first:])
    yield "two streams, cut in a record", pack(section[:-40]) + pack(section[-40:])
    yield "an empty stream, then all", pack(b"") + whole
    yield "all, then an empty stream", whole + pack(b"")
    yield "all, then another record's stream", whole + pack(section)
    yield "all, then half a stream", whole + whole[: len(whole) // 2]
    yield "all, then the head of a stream", whole + whole[:3]
    for size in (1, 3, 9, 30, 300):
        yield f"{size} zero bytes behind", whole + bytes(size)
        yield f"{size} other bytes behind", whole + b"x" * size
    yield "cut by a byte", whole[:-1]
    yield "cut by nine bytes", whole[:-9]
    yield "cut in half", whole[: len(whole) // 2]
    yield "cut after three bytes", whole[:3]
    yield "a wrong first byte", bytes([whole[0] ^ 0x55]) + whole[1:]
    yield "half of the records", pack(section[: len(section) // 2])
    yield "one of the records", pack(section[:first])
    yield "the records twice", pack(section + section)
    yield "bytes behind the records", pack(section + b"xyz")
    yield "no payload", b""
    yield "an empty stream", pack(b"")
    yield from _OWN[codec](section, whole, magic)


def _large_payloads(codec: Codec, magic: int) -> Payloads:
    section = _section(large_values(), magic)

    def pack(data: bytes) -> bytes:
        return _packed(codec, data, magic)

    whole = pack(section)
    yield "large", whole
    yield "large, two streams", pack(section[:200_000]) + pack(section[200_000:])
    yield "large, all, then another record's stream", whole + pack(section)
    yield "large, 3 other bytes behind", whole + b"xxx"
    yield "large, 100,000 other bytes behind", whole + b"x" * 100_000
    yield "large, cut by a byte", whole[:-1]
    yield "large, cut in half", whole[: len(whole) // 2]
    if codec is Codec.SNAPPY:
        steps = range(0, len(section), 32_768)
        yield "large, in blocks", _xerial(*(_block(section[n : n + 32_768]) for n in steps))
        yield "large, a bare block", _block(section)
    if codec is Codec.LZ4:
        yield "large, linked blocks", _frame(section, magic, block_linked=True)
        yield "large, blocks of 4 MiB", _frame(section, magic, block_size=7)
        yield "large, block checksums", _frame(section, magic, block_checksum=True)
    if codec is Codec.ZSTD:
        streaming = zstandard.ZstdCompressor(write_checksum=True).compressobj()
        yield "large, no content size", streaming.compress(section) + streaming.flush()


# --- what is odd with one codec only -------------------------------------------------------------
def _of_gzip(section: bytes, whole: bytes, magic: int) -> Payloads:
    yield "a wrong checksum", _flipped(whole, -8)
    yield "a wrong size", _flipped(whole, -4)
    yield "a zlib stream", zlib.compress(section)
    yield "a head with a name", b"\x1f\x8b\x08\x08" + whole[4:10] + b"name\0" + whole[10:]
    start, rest = _gzip(section[: len(section) // 2]), _gzip(section[len(section) // 2 :])
    yield "two streams, zeros between", start + bytes(30) + rest
    yield "two streams, the second's checksum wrong", start + _flipped(rest, -8)
    yield "all, then a stream with a wrong checksum", whole + _flipped(rest, -8)
    yield "all, then a head and noise", whole + whole[:10] + b"\xff" * 40


def _of_snappy(section: bytes, whole: bytes, magic: int) -> Payloads:
    block = _block(section)
    yield "a bare block", block
    yield "a bare block, a byte behind", block + b"x"
    middle = len(section) // 2
    yield "two blocks", _xerial(_block(section[:middle]), _block(section[middle:]))
    yield "an empty block behind", whole + struct.pack(">i", 0)
    yield "a block of negative size behind", whole + struct.pack(">i", -1)
    yield "a block of a huge size behind", whole + struct.pack(">i", 2**31 - 1)
    for version in ((0, 0), (2, 1), (2, 2), (1, 0), (-1, -1)):
        yield f"version {version}", whole[:8] + struct.pack(">ii", *version) + whole[16:]
    yield "a wrong size in the block", _xerial(_flipped(block, 0))
    yield "a huge size in the block", _xerial(b"\xff\xff\xff\xff\x07" + block[2:])


def _of_lz4(section: bytes, whole: bytes, magic: int) -> Payloads:
    content = _frame(section, magic, content_checksum=True)
    yield "a content checksum", content
    yield "a wrong content checksum", _flipped(content, -1)
    block = _frame(section, magic, block_checksum=True)
    yield "a block checksum", block
    yield "a wrong block checksum", _flipped(block, -8)
    yield "a wrong head checksum", _flipped(whole, 6)
    yield "the content size", _frame(section, magic, store_size=True)
    yield "a skippable frame before", _SKIPPABLE + whole
    yield "a skippable frame behind", whole + _SKIPPABLE
    yield "no end mark", whole[:-4]
    yield "no end mark, then noise", whole[:-4] + b"\x01\x00\x00\x00x"


def _of_zstd(section: bytes, whole: bytes, magic: int) -> Payloads:
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(section)
    yield "a checksum", checked
    yield "a wrong checksum", _flipped(checked, -1)
    streaming = zstandard.ZstdCompressor().compressobj()
    yield "no content size", streaming.compress(section) + streaming.flush()
    yield "a skippable frame before", _SKIPPABLE + whole
    yield "a skippable frame behind", whole + _SKIPPABLE
    yield "half a skippable frame behind", whole + _SKIPPABLE[:-2]
    end = b"\x01\x00\x00"  # an empty last block
    yield "a window of 2 GiB", struct.pack("<IBB", _ZSTD_MAGIC, 0, (31 - 10) << 3) + end
    yield "a content size of 1 TiB", struct.pack("<IBQ", _ZSTD_MAGIC, 0b11100000, 1 << 40) + end


_OWN: dict[Codec, Callable[[bytes, bytes, int], Payloads]] = {
    Codec.GZIP: _of_gzip,
    Codec.SNAPPY: _of_snappy,
    Codec.LZ4: _of_lz4,
    Codec.ZSTD: _of_zstd,
}


# --- bytes ---------------------------------------------------------------------------------------
def _packed(codec: Codec, data: bytes, magic: int) -> bytes:
    """One gzip member, xerial stream, lz4 frame or zstd frame."""
    if codec is Codec.GZIP:
        return _gzip(data)
    if codec is Codec.SNAPPY:
        return _xerial(_block(data))
    if codec is Codec.LZ4:
        return _frame(data, magic)
    return zstandard.ZstdCompressor().compress(data)


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _xerial(*blocks: bytes) -> bytes:
    return _XERIAL_HEAD + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _frame(data: bytes, magic: int, **options: Any) -> bytes:
    """Compress as Kafka's clients do; ``options`` are those of lz4.frame."""
    usual = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    frame = bytes(lz4.frame.compress(data, **(usual | options)))
    return lz4_v0.with_wrong_checksum(frame) if magic == 0 else frame


def _flipped(data: bytes, index: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


def _section(values: tuple[bytes, ...], magic: int) -> bytes:
    """The records as they are before compression."""
    if magic == 2:
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, _NOW_MS)
        return builder.build()[at.BATCH_HEADER_BYTES :]
    timestamp_ms = _NOW_MS if magic else -1
    return b"".join(
        encode_message(magic, number if magic else 0, timestamp_ms, None, value)
        for number, value in enumerate(values)
    )


def _with_header(codec: Codec, payload: bytes, count: int, magic: int) -> bytes:
    """A batch of format 2, or a wrapper message, whose CRC fits."""
    if magic < 2:
        offset, timestamp_ms = (count - 1, _NOW_MS) if magic else (0, -1)
        return encode_message(magic, offset, timestamp_ms, None, payload, codec)
    data = bytearray(at.BATCH_HEADER_BYTES) + payload
    write_header(
        data,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        timestamps_ms=(_NOW_MS, _NOW_MS),
        producer=(-1, -1, -1),
        record_count=count,
    )
    return bytes(data)
