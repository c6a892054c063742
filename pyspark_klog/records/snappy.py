"""Snappy blocks, bare or in the framing of xerial's Java library (which Kafka's clients write).

The framing: eight bytes of magic, two int32 (version, oldest compatible version), then blocks, each
an int32 length and that many bytes of snappy.
"""

from struct import Struct

import cramjam

from pyspark_klog.records.errors import CorruptRecords, DecompressedTooLarge

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = Struct(">8sii")
assert XERIAL_HEADER.size == 16
_BLOCK_LENGTH = Struct(">i")
_VERSION = 1
# What xerial's stream puts into one block.
_BLOCK_BYTES = 32 * 1024
# No element of snappy gives more than 64 bytes for 3; a block that claims more is lying.
_MAX_RATIO = 22


def compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    """``data`` in xerial's framing, 32 KiB a block."""
    out = bytearray(XERIAL_HEADER.pack(XERIAL_MAGIC, _VERSION, _VERSION))
    with memoryview(data) as view:
        for start in range(0, len(view), _BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
            out += _BLOCK_LENGTH.pack(len(block))
            out += block
    return bytes(out)


def decompress_any(
    data: memoryview, max_bytes: int, max_parts: int | None = None
) -> bytes | bytearray:
    """Inflate either form; DecompressedTooLarge before ``max_bytes`` would be passed, or more than
    ``max_parts`` blocks be looked at."""
    if len(data) < XERIAL_HEADER.size or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(data, max_bytes)
    out = bytearray()
    position = parts = 0
    while position < len(data):
        parts += 1
        if max_parts is not None and parts > max_parts:
            raise DecompressedTooLarge(f"snappy: more than {max_parts} blocks")
        # A header may come again where streams were put one after the other.
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += XERIAL_HEADER.size
            continue
        if len(data) - position < _BLOCK_LENGTH.size:
            raise CorruptRecords("snappy: the length of a block is cut off")
        length: int = _BLOCK_LENGTH.unpack_from(data, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise CorruptRecords(
                f"snappy: a block of {length} bytes, {len(data) - position} are left"
            )
        out += _decompress_block(data[position : position + length], max_bytes - len(out))
        position += length
    return out


def _decompress_block(block: memoryview, room_bytes: int) -> bytes:
    claimed = _claimed_bytes(block)
    if claimed > room_bytes:
        raise DecompressedTooLarge(f"snappy: {claimed} more bytes, the limit leaves {room_bytes}")
    if claimed > len(block) * _MAX_RATIO:
        raise CorruptRecords(f"snappy: {len(block)} bytes cannot hold the {claimed} they claim")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy: {error}") from None


def _claimed_bytes(block: memoryview) -> int:
    """The size that a block says it inflates to: an unsigned varint of 32 bits at its start."""
    claimed = 0
    for index, byte in enumerate(block[:5]):
        claimed |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return claimed
    raise CorruptRecords("snappy: a block does not begin with its size")
