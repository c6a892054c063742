"""Compression with Kafka's four codecs, and decompression with a bound on the inflated size.

Compressed bytes have the form that Kafka's Java clients write. Decompression checks the bound while
it inflates, so a compression bomb costs no more memory than a small multiple of the bound.
Concatenated gzip members, lz4 frames and zstd frames are read as one stream, except that
`inflate_produced` reads only the first lz4 frame. Snappy is read raw or in the framing of xerial's
Java library, and written in that framing. Bytes after a stream of gzip, lz4 or snappy are ignored
where Kafka ignores them (docs/decisions/0056-what-compressed-records-may-be.md).
"""

from enum import IntEnum
from typing import NamedTuple

import lz4.frame
import zstandard
from zlib_ng import zlib_ng

from pyspark_klog.records import lz4_v0, snappy, zstd_frames
from pyspark_klog.records.errors import (
    DamagedCompression,
    DecompressedTooLarge,
    UnsupportedCodec,
)
from pyspark_klog.records.layout import CODEC_MASK, MAGIC_V0, MAGIC_V2, Buffer

# Bound on the inflated size of one batch or wrapper message, if the caller passes no bound.
DEFAULT_MAX_DECOMPRESSED_BYTES = 128 << 20


class Codec(IntEnum):
    """A compression codec; the value is its number in a batch's or message's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Inflated(NamedTuple):
    """Inflated bytes, and whether every client would read all of the compressed bytes."""

    data: bytes | bytearray
    is_plain: bool
    """Whether the compressed bytes are one gzip member, one lz4 frame, one raw snappy block or one
    xerial stream with the usual header, without further bytes.

    Always True for zstd and for uncompressed data. If False, some clients read only the first part
    of the data, or nothing.
    """
    has_further_frames: bool = False
    """Whether another lz4 frame begins after the inflated ones. Java's clients ignore it."""


_GZIP_FORMAT = 31  # zlib's wbits for a gzip header and trailer with a window of 32 KiB
_GZIP_MEMBER_START = b"\x1f\x8b\x08"
# After a gzip member Java looks for another one only if more than 18 bytes are left.
_NO_GZIP_MEMBER_BYTES = 18
_LZ4_MAGIC_BYTES = 4
# Bit of the flags after an lz4 frame's magic: set if each block can be read without earlier blocks.
_LZ4_INDEPENDENT_BLOCKS = 0x20
# A decoder copies the part of its input that it has not consumed yet. Passing the input in slices
# bounds the bytes that are copied.
_SLICE_BYTES = 64 * 1024
_FIRST_SLICE_BYTES = 1024
_OUTPUT_STEP_BYTES = 256 * 1024
# The largest window that zstd's decoders accept by default; klog accepts no larger one either.
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
_LZ4_DEFAULT_LEVEL = 9
_LZ4_STEP_BYTES = 256 * 1024  # a multiple of the size of an lz4 block, 64 KiB

# Levels that ``compress`` accepts: those of Kafka's settings (KIP-390) and level 0 of gzip, which
# klog's settings refuse like Kafka's. compress(level=None) uses the codec's default.
LEVELS: dict[Codec, range] = {
    Codec.GZIP: range(-1, 10),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}


def codec_of(attributes: int) -> Codec:
    """Return the codec in the attributes of a batch or message.

    Raises UnsupportedCodec for an unknown number.
    """
    number = attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise UnsupportedCodec(f"codec {number} is unknown, the known ones are 0 to {Codec.ZSTD:d}")
    return Codec(number)


def compress(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    *,
    magic: int = MAGIC_V2,
    level: int | None = None,
) -> bytes:
    """Compress ``data`` in the form that record format ``magic`` (0, 1 or 2) requires.

    Raises UnsupportedCodec for zstd before v2, and ValueError for a level that is not in LEVELS;
    SNAPPY and NONE accept no level.
    """
    if level is not None and (codec not in LEVELS or level not in LEVELS[codec]):
        allowed = f"{LEVELS[codec][0]} to {LEVELS[codec][-1]}" if codec in LEVELS else "none"
        raise ValueError(
            f"compression level {level} for {codec.name.lower()}: allowed is {allowed}"
        )
    check_codec_fits(codec, magic)
    if codec == Codec.GZIP:
        deflater = zlib_ng.compressobj(
            -1 if level is None else level, zlib_ng.DEFLATED, _GZIP_FORMAT
        )
        return deflater.compress(data) + deflater.flush()
    if codec == Codec.SNAPPY:
        return snappy.compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, magic, level)
    if codec == Codec.ZSTD:
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    return bytes(data)


def decompress(
    codec: Codec,
    data: Buffer,
    *,
    magic: int = MAGIC_V2,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    max_parts: int | None = None,
) -> bytes | bytearray:
    """Inflate ``data``, including all lz4 frames.

    Raises DecompressedTooLarge if the result would exceed ``max_bytes``, DamagedCompression for
    partial or damaged data and for other bytes after the frames of zstd, and UnsupportedCodec for
    zstd in record formats v0 and v1. A damaged lz4 frame after the first one is ignored.
    ``Codec.NONE`` copies ``data`` without a bound.

    ``max_parts`` bounds the number of parts: gzip members, lz4 frames (in format v0 also their
    blocks), headers and blocks of xerial's snappy framing, or zstd frames and blocks. Each part
    costs some Python time, however small it is. More parts raise DecompressedTooLarge.
    """
    return _inflate(codec, data, magic, max_bytes, max_parts, all_lz4_frames=True).data


def inflate_produced(
    codec: Codec,
    data: Buffer,
    *,
    magic: int,
    max_bytes: int,
    max_parts: int | None = None,
) -> Inflated:
    """Inflate records that a producer sent, at least as strictly as Kafka's brokers do.

    The function differs from :func:`decompress` for lz4: only the first frame is read, and this
    frame must be readable by Java's clients (DamagedCompression).
    """
    return _inflate(codec, data, magic, max_bytes, max_parts, all_lz4_frames=False)


def _inflate(
    codec: Codec,
    data: Buffer,
    magic: int,
    max_bytes: int,
    max_parts: int | None,
    *,
    all_lz4_frames: bool,
) -> Inflated:
    check_codec_fits(codec, magic)
    with memoryview(data) as view:
        if codec == Codec.NONE:
            return Inflated(bytes(view), True)
        try:
            if codec == Codec.GZIP:
                return _decompress_gzip(view, max_bytes, max_parts)
            if codec == Codec.SNAPPY:
                return Inflated(*snappy.decompress_any(view, max_bytes, max_parts))
            if codec == Codec.LZ4:
                if magic == MAGIC_V0:
                    view = memoryview(lz4_v0.with_right_checksums(view, max_parts))
                if not all_lz4_frames:
                    _check_lz4_is_javas(view)
                return _decompress_lz4(view, max_bytes, max_parts, all_frames=all_lz4_frames)
            return Inflated(_decompress_zstd(view, max_bytes, max_parts), True)
        except DecompressedTooLarge:
            parts = "" if max_parts is None else f", or more than {max_parts} parts"
            raise DecompressedTooLarge(
                f"{len(view)} bytes of {codec.name.lower()} hold more than the limit "
                f"of {max_bytes} bytes{parts}; the rest was not inflated"
            ) from None


def check_codec_fits(codec: Codec, magic: int) -> None:
    """Raise UnsupportedCodec if the format ``magic`` cannot hold ``codec``."""
    if codec == Codec.ZSTD and magic < MAGIC_V2:
        raise UnsupportedCodec(f"zstd needs record format 2, this is format {magic}")


def _compress_lz4(data: bytes | bytearray | memoryview, magic: int, level: int | None) -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor(
        # Kafka's default level 9 selects the fast compressor, which is level 0 in this library.
        compression_level=0 if level in (None, _LZ4_DEFAULT_LEVEL) else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
    )
    frame = bytearray(compressor.begin())
    # Compress in steps, because each call allocates memory for the worst case of its input.
    with memoryview(data) as view:
        for start in range(0, len(view), _LZ4_STEP_BYTES):
            frame += compressor.compress(view[start : start + _LZ4_STEP_BYTES])
    frame += compressor.flush()
    return lz4_v0.with_wrong_checksum(frame) if magic == MAGIC_V0 else bytes(frame)


def _check_parts(count: int, max_parts: int | None) -> None:
    if max_parts is not None and count > max_parts:
        raise DecompressedTooLarge


def _decompress_gzip(data: memoryview, max_bytes: int, max_parts: int | None) -> Inflated:
    out = bytearray()
    position = parts = 0
    while not parts or _begins_gzip_member(data, position):
        parts += 1
        _check_parts(parts, max_parts)
        inflater = zlib_ng.decompressobj(_GZIP_FORMAT)
        slice_bytes = _FIRST_SLICE_BYTES
        piece: bytes | memoryview = b""
        is_full = False  # the last call returned limit_bytes: the inflater may have more
        while not inflater.eof:
            if not piece and not is_full:
                if position >= len(data):
                    raise DamagedCompression(f"gzip: the {len(data)} bytes end inside a member")
                piece = data[position : position + slice_bytes]
                position += len(piece)
                slice_bytes = min(2 * slice_bytes, _SLICE_BYTES)
            limit_bytes = min(max_bytes - len(out) + 1, _OUTPUT_STEP_BYTES)
            try:
                found = inflater.decompress(piece, limit_bytes)
            except zlib_ng.error as error:  # type: ignore[misc]  # stubs: an instance
                raise DamagedCompression(f"gzip: {error}") from None
            out += found
            if len(out) > max_bytes:
                raise DecompressedTooLarge
            is_full = len(found) == limit_bytes
            piece = inflater.unconsumed_tail
        position -= len(inflater.unused_data)
    return Inflated(out, parts == 1 and position == len(data))


def _begins_gzip_member(data: memoryview, position: int) -> bool:
    """Whether Java's reader takes the bytes at ``position`` for another gzip member.

    Java ignores other bytes after a member.
    """
    rest_bytes = len(data) - position
    start = data[position : position + len(_GZIP_MEMBER_START)]
    return rest_bytes > _NO_GZIP_MEMBER_BYTES and start == _GZIP_MEMBER_START


def _check_lz4_is_javas(data: memoryview) -> None:
    """Raise DamagedCompression if ``data`` begins with a frame that lz4's library reads and Java's
    clients refuse: a skippable frame, or one with linked blocks."""
    if len(data) <= _LZ4_MAGIC_BYTES or not lz4_v0.begins_frame(data, 0):
        return  # lz4's library itself refuses data that does not begin with a frame
    if int.from_bytes(data[:_LZ4_MAGIC_BYTES], "little") != lz4_v0.FRAME_MAGIC:
        raise DamagedCompression("lz4: a skippable frame, which Java's clients do not skip")
    if not data[_LZ4_MAGIC_BYTES] & _LZ4_INDEPENDENT_BLOCKS:
        raise DamagedCompression("lz4: linked blocks, which Java's clients do not read")


def _decompress_lz4(
    data: memoryview, max_bytes: int, max_parts: int | None, *, all_frames: bool
) -> Inflated:
    out = bytearray()
    position = parts = 0
    while not parts or (all_frames and lz4_v0.begins_frame(data, position)):
        parts += 1
        _check_parts(parts, max_parts)
        inflated_bytes = len(out)
        try:
            position = _decompress_lz4_frame(data, position, out, max_bytes)
        except DamagedCompression:
            if parts == 1:
                raise
            # Java's clients read only the first frame, so a damaged later frame is ignored.
            del out[inflated_bytes:]
            break
    rest_magic = int.from_bytes(data[position : position + _LZ4_MAGIC_BYTES], "little")
    is_plain = parts == 1 and position == len(data)
    return Inflated(out, is_plain, has_further_frames=rest_magic == lz4_v0.FRAME_MAGIC)


def _decompress_lz4_frame(data: memoryview, position: int, out: bytearray, max_bytes: int) -> int:
    """Append the inflated frame at ``position`` to ``out``, and return the end of the frame."""
    decoder = lz4.frame.LZ4FrameDecompressor()
    slice_bytes = _FIRST_SLICE_BYTES
    while not decoder.eof:
        piece = data[:0]
        if decoder.needs_input:
            if position >= len(data):
                raise DamagedCompression(f"lz4: the {len(data)} bytes end inside a frame")
            piece = data[position : position + slice_bytes]
            position += len(piece)
            slice_bytes = min(2 * slice_bytes, _SLICE_BYTES)
        limit_bytes = min(max_bytes - len(out) + 1, _OUTPUT_STEP_BYTES)
        try:
            out += decoder.decompress(piece, limit_bytes)
        except RuntimeError as error:
            raise DamagedCompression(f"lz4: {error}") from None
        if len(out) > max_bytes:
            raise DecompressedTooLarge
    return position - len(decoder.unused_data or b"")


def _decompress_zstd(data: memoryview, max_bytes: int, max_parts: int | None) -> bytearray:
    zstd_frames.check_complete(data, max_parts)
    out = bytearray()
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    with decoder.stream_reader(data, read_across_frames=True) as reader:
        try:
            while piece := reader.read(min(max_bytes - len(out) + 1, _OUTPUT_STEP_BYTES)):
                out += piece
                if len(out) > max_bytes:
                    raise DecompressedTooLarge
        except zstandard.ZstdError as error:
            raise DamagedCompression(f"zstd: {error}") from None
    return out
