"""The LZ4 frames of format v0, whose header carries a wrong checksum.

Kafka's first LZ4 writer hashed the whole frame header, its magic included, where the frame format
hashes only the descriptor behind the magic. Messages of format v0 are still written so, since old
readers want it; readers of v0 ignore that byte. From format v1 on the checksum is the right one.
"""

from struct import Struct

from pyspark_klog.records.errors import DamagedCompression, DecompressedTooLarge
from pyspark_klog.records.layout import Buffer

FRAME_MAGIC = 0x184D2204
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_UINT32 = Struct("<I")
_MAGIC_BYTES = 4
# Bits of the descriptor's first byte.
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x10, 0x08, 0x04, 0x01
_UNCOMPRESSED_BIT = 0x80000000


def with_wrong_checksum(frame: bytes | bytearray) -> bytes:
    """One right LZ4 frame as format v0 wants it."""
    checksum_at = _checksum_position(frame, 0)
    out = bytearray(frame)
    out[checksum_at] = _checksum_byte(frame[:checksum_at])
    return bytes(out)


def with_right_checksums(data: memoryview, max_parts: int | None = None) -> bytearray:
    """LZ4 frames with any header checksum as right ones; bytes behind them stay as they are.

    DamagedCompression if the first is no whole frame, DecompressedTooLarge if they have more than
    ``max_parts`` blocks (a frame counts as one).
    """
    out = bytearray(data)
    position = parts = 0
    while not position or begins_frame(out, position):
        parts += 1
        if max_parts is not None and parts > max_parts:
            raise DecompressedTooLarge(f"lz4: more than {max_parts} blocks")
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
    """Whether a frame, or a skippable one, begins at ``position``."""
    if len(data) - position < _MAGIC_BYTES:
        return False
    magic: int = _UINT32.unpack_from(data, position)[0]
    return magic == FRAME_MAGIC or magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC


def _correct_frame(out: bytearray, start: int, max_blocks: int | None) -> tuple[int, int]:
    """Correct the header checksum of the frame at ``start``; returns the frame's end, and how many
    blocks it has."""
    if _uint32(out, start) & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
        return start + 8 + _uint32(out, start + 4), 0
    checksum_at = _checksum_position(out, start)
    out[checksum_at] = _checksum_byte(out[start + _MAGIC_BYTES : checksum_at])
    return _frame_end(out, checksum_at + 1, out[start + _MAGIC_BYTES], max_blocks)


def _checksum_position(data: bytes | bytearray, start: int) -> int:
    """Where the header checksum of the frame at ``start`` lies."""
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
    """The end of a frame whose blocks begin at ``position``, and how many they are."""
    blocks = 0
    while True:
        size = _uint32(data, position) & ~_UNCOMPRESSED_BIT
        position += 4
        if size == 0:
            return position + (4 if flags & _CONTENT_CHECKSUM else 0), blocks
        blocks += 1
        if max_blocks is not None and blocks > max_blocks:
            raise DecompressedTooLarge(f"lz4: more than {max_blocks} further blocks")
        # Past the end of the data the next look raises.
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
    """xxHash32, for headers of some 20 bytes: the LZ4 library does not offer its own."""
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
