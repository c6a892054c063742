"""Reads snappy as a raw block or in xerial's framing, and writes xerial's framing.

Kafka's Java clients write the framing of xerial's Java library: eight bytes of magic, two int32
(version, oldest compatible version), then blocks. A block is an int32 length and that many bytes of
snappy.
"""

from struct import Struct

import cramjam

from pyspark_klog.records.errors import DamagedCompression, DecompressedTooLarge

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = Struct(">8sii")
assert XERIAL_HEADER.size == 16
_BLOCK_LENGTH = Struct(">i")
_VERSION = 1
_USUAL_HEADER = XERIAL_HEADER.pack(XERIAL_MAGIC, _VERSION, _VERSION)
# Uncompressed bytes per block; xerial's stream uses the same size.
_BLOCK_BYTES = 32 * 1024
# Snappy's best element inflates 3 bytes to 64. So a block that claims a higher ratio is damaged.
_MAX_RATIO = 22


def compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    """Compress ``data`` in xerial's framing, with 32 KiB of input per block."""
    out = bytearray(_USUAL_HEADER)
    with memoryview(data) as view:
        for start in range(0, len(view), _BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
            out += _BLOCK_LENGTH.pack(len(block))
            out += block
    return bytes(out)


def decompress_any(
    data: memoryview, max_bytes: int, max_parts: int | None = None
) -> tuple[bytes | bytearray, bool]:
    """Inflate snappy data, a raw block or xerial's framing of blocks; return (inflated bytes,
    whether every Kafka client can read ``data``).

    The boolean is False for xerial data with an unusual or a repeated header, or with bytes after
    the last block. Raises DecompressedTooLarge before the result would exceed ``max_bytes``, or
    before more than ``max_parts`` headers and blocks are read. Like Kafka, the function ignores up
    to three bytes after the last block.
    """
    if len(data) < XERIAL_HEADER.size or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(data, max_bytes), True
    out = bytearray()
    is_plain = True
    position = parts = 0
    while len(data) - position >= _BLOCK_LENGTH.size:
        parts += 1
        if max_parts is not None and parts > max_parts:
            raise DecompressedTooLarge(f"snappy: more than {max_parts} headers and blocks")
        # If several xerial streams are concatenated, each begins with a header.
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            # Clients such as aiokafka recognize xerial's framing only by a header with the usual
            # versions, so not every client can read data with another header.
            is_plain = position == 0 and data[: XERIAL_HEADER.size] == _USUAL_HEADER
            position += XERIAL_HEADER.size
            continue
        length: int = _BLOCK_LENGTH.unpack_from(data, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise DamagedCompression(
                f"snappy: a block gives its length as {length}, expected 1 to "
                f"{len(data) - position}, the bytes left"
            )
        out += _decompress_block(data[position : position + length], max_bytes - len(out))
        position += length
    return out, is_plain and position == len(data)


def _decompress_block(block: memoryview, limit_bytes: int) -> bytes:
    claimed = _claimed_bytes(block)
    if claimed > len(block) * _MAX_RATIO:
        raise DamagedCompression(
            f"snappy: a block of {len(block)} bytes cannot inflate to {claimed} bytes"
        )
    if claimed > limit_bytes:
        raise DecompressedTooLarge(
            f"snappy: a block inflates to {claimed} bytes, but the limit allows {limit_bytes}"
        )
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DamagedCompression(f"snappy: {error}") from None


def _claimed_bytes(block: memoryview) -> int:
    """Return the inflated size that the block claims: an unsigned 32-bit varint at its start."""
    claimed = 0
    for index, byte in enumerate(block[:5]):
        claimed |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return claimed
    raise DamagedCompression("snappy: a block does not begin with its inflated size")
