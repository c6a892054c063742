"""Snappy blocks, bare or in the framing of xerial's Java library (which Kafka's clients write).

The framing: eight bytes of magic, two int32 (version, oldest compatible version), then blocks, each
an int32 length and that many bytes of snappy.
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
# What xerial's stream puts into one block.
_BLOCK_BYTES = 32 * 1024
# No element of snappy gives more than 64 bytes for 3; a block that claims more is lying.
_MAX_RATIO = 22


def compress_xerial(data: bytes | bytearray | memoryview) -> bytes:
    """``data`` in xerial's framing, 32 KiB a block."""
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
    """Inflate either form; return also whether the data are plain: one usual header, nothing behind
    the last block.

    DecompressedTooLarge before ``max_bytes`` would be passed, or more than ``max_parts`` blocks be
    looked at. Up to three bytes behind the last block are ignored, as by Kafka.
    """
    if len(data) < XERIAL_HEADER.size or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(data, max_bytes), True
    out = bytearray()
    is_plain = True
    position = parts = 0
    while len(data) - position >= _BLOCK_LENGTH.size:
        parts += 1
        if max_parts is not None and parts > max_parts:
            raise DecompressedTooLarge(f"snappy: more than {max_parts} blocks")
        # A header may come again where streams were put one after the other.
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            # aiokafka looks for the version, too.
            is_plain = position == 0 and data[: XERIAL_HEADER.size] == _USUAL_HEADER
            position += XERIAL_HEADER.size
            continue
        length: int = _BLOCK_LENGTH.unpack_from(data, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise DamagedCompression(
                f"snappy: a block of {length} bytes, {len(data) - position} are left"
            )
        out += _decompress_block(data[position : position + length], max_bytes - len(out))
        position += length
    return out, is_plain and position == len(data)


def _decompress_block(block: memoryview, room_bytes: int) -> bytes:
    claimed = _claimed_bytes(block)
    if claimed > len(block) * _MAX_RATIO:
        raise DamagedCompression(f"snappy: {len(block)} bytes cannot hold the {claimed} they claim")
    if claimed > room_bytes:
        raise DecompressedTooLarge(f"snappy: {claimed} more bytes, the limit leaves {room_bytes}")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DamagedCompression(f"snappy: {error}") from None


def _claimed_bytes(block: memoryview) -> int:
    """The size that a block says it inflates to: an unsigned varint of 32 bits at its start."""
    claimed = 0
    for index, byte in enumerate(block[:5]):
        claimed |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return claimed
    raise DamagedCompression("snappy: a block does not begin with its size")
