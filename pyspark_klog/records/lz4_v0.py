"""Converts between right LZ4 frames and those of format v0, whose header checksum is wrong.

Kafka's first LZ4 writer hashed the whole frame header including the magic, where the LZ4 format
hashes only the descriptor after the magic. Messages of format v0 are still written with the wrong
checksum, because old readers expect it; other readers of v0 ignore the checksum. From format v1 on
the checksum is right.
"""

from struct import Struct

from pyspark_klog.records.errors import DamagedCompression, DecompressedTooLarge
from pyspark_klog.records.layout import Buffer

FRAME_MAGIC = 0x184D2204
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_UINT32 = Struct("<I")
_MAGIC_BYTES = 4
# Bits of the first byte of a frame descriptor.
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x10, 0x08, 0x04, 0x01
_UNCOMPRESSED_BIT = 0x80000000


def with_wrong_checksum(frame: bytes | bytearray) -> bytes:
    """Return a copy of the LZ4 frame with the wrong header checksum that format v0 requires."""
    checksum_at = _checksum_position(frame, 0)
    out = bytearray(frame)
    out[checksum_at] = _checksum_byte(frame[:checksum_at])
    return bytes(out)


def with_right_checksums(data: memoryview, max_parts: int | None = None) -> bytearray:
    """Return a copy of the LZ4 frames in ``data`` with right header checksums.

    Bytes after the frames are copied as they are. Raises DamagedCompression if ``data`` does not
    begin with a frame, or ends inside the header or the blocks of the first frame, and
    DecompressedTooLarge if the number of frames and blocks together exceeds ``max_parts``.
    """
    out = bytearray(data)
    position = parts = 0
    while not position or begins_frame(out, position):
        parts += 1
        if max_parts is not None and parts > max_parts:
            raise DecompressedTooLarge(f"lz4: more than {max_parts} frames and blocks")
        left = None if max_parts is None else max_parts - parts
        try:
            position, blocks = _correct_frame(out, position, left)
        except DamagedCompression:
            if not position:
                raise
            break
        parts += blocks
    return out


def begins_frame(data: Buffer, position: int) -> bool:
    """Whether an LZ4 frame or a skippable frame begins at ``position``."""
    if len(data) - position < _MAGIC_BYTES:
        return False
    magic: int = _UINT32.unpack_from(data, position)[0]
    return magic == FRAME_MAGIC or magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC


def _correct_frame(out: bytearray, start: int, max_blocks: int | None) -> tuple[int, int]:
    """Correct the header checksum of the frame at ``start`` in place; a skippable frame has none.

    Return the end of the frame and the number of its blocks.
    """
    if _uint32(out, start) & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
        return start + 8 + _uint32(out, start + 4), 0
    checksum_at = _checksum_position(out, start)
    out[checksum_at] = _checksum_byte(out[start + _MAGIC_BYTES : checksum_at])
    return _frame_end(out, checksum_at + 1, out[start + _MAGIC_BYTES], max_blocks)


def _checksum_position(data: bytes | bytearray, start: int) -> int:
    """Return the position of the header checksum of the frame at ``start``."""
    if _uint32(data, start) != FRAME_MAGIC:
        raise DamagedCompression(f"lz4: no frame begins at byte {start}")
    if len(data) - start < 7:
        raise DamagedCompression("lz4: the header of a frame is cut off")
    flags = data[start + _MAGIC_BYTES]
    position = start + _MAGIC_BYTES + 2
    position += 8 if flags & _CONTENT_SIZE else 0
    position += 4 if flags & _DICTIONARY else 0
    if position >= len(data):
        raise DamagedCompression("lz4: the header of a frame is cut off")
    return position


def _frame_end(
    data: bytearray, position: int, flags: int, max_blocks: int | None
) -> tuple[int, int]:
    """Return the end and the number of blocks of a frame whose blocks begin at ``position``."""
    blocks = 0
    while True:
        size = _uint32(data, position) & ~_UNCOMPRESSED_BIT
        position += 4
        if size == 0:
            return position + (4 if flags & _CONTENT_CHECKSUM else 0), blocks
        blocks += 1
        if max_blocks is not None and blocks > max_blocks:
            raise DecompressedTooLarge(f"lz4: more than {max_blocks} blocks in a frame")
        # If the block passes the end of the data, the next _uint32 raises DamagedCompression.
        position += size + (4 if flags & _BLOCK_CHECKSUM else 0)


def _uint32(data: bytes | bytearray, position: int) -> int:
    if len(data) - position < 4:
        raise DamagedCompression(f"lz4: a frame is cut off at byte {len(data)}")
    return int(_UINT32.unpack_from(data, position)[0])


def _checksum_byte(covered: bytes | bytearray) -> int:
    return xxh32(covered) >> 8 & 0xFF


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotl(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def xxh32(data: bytes | bytearray, seed: int = 0) -> int:
    """Return the xxHash32 of ``data``, an LZ4 frame header of at most 18 bytes.

    The Python binding of the LZ4 library does not offer this function.
    """
    position, length = 0, len(data)
    if length >= 16:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while length - position >= 16:
            for lane in range(4):
                word = _UINT32.unpack_from(data, position)[0]
                lanes[lane] = _rotl((lanes[lane] + word * _P2) & _MASK, 13) * _P1 & _MASK
                position += 4
        state = sum(_rotl(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        state = seed + _P5
    state = (state + length) & _MASK
    while length - position >= 4:
        word = _UINT32.unpack_from(data, position)[0]
        state = _rotl((state + word * _P3) & _MASK, 17) * _P4 & _MASK
        position += 4
    for byte in data[position:]:
        state = _rotl((state + byte * _P5) & _MASK, 11) * _P1 & _MASK
    state = (state ^ state >> 15) * _P2 & _MASK
    state = (state ^ state >> 13) * _P3 & _MASK
    return state ^ state >> 16
