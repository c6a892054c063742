"""Compressed bytes, which must be decompressed within the caller's bounds or refused.

The first three bytes of an input choose the codec and format, the bound of the output and that of
the parts; the rest is decompressed, or, for a round trip, compressed first.
"""

from functools import cache
from random import Random

import cramjam
import lz4.frame
import zstandard

from pyspark_klog.records.compression import LEVELS, Codec, check_codec_fits, compress, decompress
from pyspark_klog.records.errors import RecordsError
from tests.fuzz.mutating import mutated
from tests.fuzz.target import BrokenPromise, Target

BOUNDS = (0, 1, 100, 4_096, 65_536, 1 << 18)
PARTS = (None, 1, 2, 50)
ROUND_TRIP = 0x80
# The memory that decoders allocate for themselves.
_FIXED_BYTES = 1 << 20


@cache
def _corpus() -> list[bytes]:
    """Compressed data, each with the byte that names codec and format in front."""
    random = Random(7)
    plain = [
        b"",
        b"a",
        b"record " * 40,
        random.randbytes(300),
        bytes(100_000),
        random.randbytes(1_000) * 70,
    ]
    found = []
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        for magic in (0, 1, 2):
            if codec is Codec.ZSTD and magic < 2:
                continue
            head = bytes([codec | magic << 4])
            found += [head + compress(codec, data, magic=magic) for data in plain]
            found += [head + compress(codec, plain[2], magic=magic) * 3]
    for data in plain:
        head = bytes([Codec.SNAPPY | 2 << 4])
        found.append(head + bytes(cramjam.snappy.compress_raw(data)))
        for options in (
            {"block_linked": True, "content_checksum": True},
            {"block_checksum": True, "store_size": True, "block_size": 7},
        ):
            found.append(bytes([Codec.LZ4 | 2 << 4]) + lz4.frame.compress(data, **options))
        head = bytes([Codec.ZSTD | 2 << 4])
        writer = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
        found.append(head + writer.compress(data))
        # A skippable frame, and a frame behind it.
        found.append(head + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + writer.compress(data))
    return found


class Codecs(Target):
    """Feeds compressed bytes to the codecs."""

    name = "codecs"

    def make(self, random: Random) -> bytes:
        corpus = _corpus()
        bounds = bytes([random.randrange(len(BOUNDS)), random.randrange(len(PARTS))])
        if random.random() < 0.1:
            codec = random.randrange(1, 5) | random.choice((0, 1, 2)) << 4 | ROUND_TRIP
            size = random.choice((0, 1, 10, 1_000, 70_000))
            data = random.randbytes(size) if random.random() < 0.3 else b"ab" * (size // 2)
            return bytes([codec]) + bounds + data
        chosen = random.choice(corpus)
        body = chosen[1:]
        if random.random() < 0.97:
            body = mutated(body, random, corpus)
        return chosen[:1] + bounds + body

    def check(self, data: bytes) -> None:
        head = data[:3] + bytes(3 - len(data[:3]))
        codec, magic = Codec((head[0] & 7) % 5), (head[0] >> 4 & 3) % 3
        bound, parts = BOUNDS[head[1] % len(BOUNDS)], PARTS[head[2] % len(PARTS)]
        if head[0] & ROUND_TRIP:
            self._round_trip(codec, magic, head[1], data[3:])
            return
        try:
            found = decompress(codec, data[3:], magic=magic, max_bytes=bound, max_parts=parts)
        except RecordsError as error:
            if len(str(error)) < 15:
                raise BrokenPromise(f"an error that says nothing: {error}") from error
            return
        if codec is not Codec.NONE and len(found) > bound:
            raise BrokenPromise(f"{len(found)} bytes came out, allowed were {bound}")

    def _round_trip(self, codec: Codec, magic: int, choice: int, data: bytes) -> None:
        try:
            check_codec_fits(codec, magic)
        except RecordsError:
            return
        levels = LEVELS.get(codec)
        level = None
        if levels is not None and choice % 2:
            # The slowest levels of zstd take tens of milliseconds an input.
            level = (-1 if codec is Codec.GZIP else 1) + choice % 9
        packed = compress(codec, data, magic=magic, level=level)
        if decompress(codec, packed, magic=magic, max_bytes=len(data)) != data:
            raise BrokenPromise(f"{codec.name} of level {level} gives other bytes back")

    def most_bytes(self, data: bytes) -> int:
        bound = BOUNDS[(data[1] if len(data) > 1 else 0) % len(BOUNDS)]
        return 4 * max(bound, len(data)) + _FIXED_BYTES


TARGET = Codecs
