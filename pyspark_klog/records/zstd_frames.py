"""Checks that zstd data ends at a frame's end: zstd's streaming reader accepts cut-off frames."""

import zstandard

from pyspark_klog.records.errors import DamagedCompression, DecompressedTooLarge

_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
_RLE = 1


def check_complete(data: memoryview, max_parts: int | None = None) -> None:
    """Raise DamagedCompression unless ``data`` consists of one or more whole frames.

    Only lengths are checked, no contents. Raises DecompressedTooLarge if the number of frames and
    blocks together exceeds ``max_parts``.
    """
    position = parts = 0
    while position < len(data) or not position:
        if int.from_bytes(data[position : position + 4], "little") & _SKIPPABLE_MASK == (
            _SKIPPABLE_MAGIC
        ):
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            parts += 1
        else:
            position, parts = _frame_end(data, position, parts + 1, max_parts)
        if max_parts is not None and parts > max_parts:
            raise DecompressedTooLarge(f"zstd: more than {max_parts} frames and blocks")
        if position > len(data):
            raise DamagedCompression(f"zstd: the {len(data)} bytes end inside a frame")


def _frame_end(data: memoryview, start: int, parts: int, max_parts: int | None) -> tuple[int, int]:
    """Return (end of the frame at ``start``, ``parts`` plus the number of blocks in the frame).

    ``parts`` is the number of frames and blocks so far, including this frame. When the sum exceeds
    ``max_parts``, the function stops and returns the end of the last block it has counted.
    """
    header = data[start : start + 18]  # 18 bytes: the longest header of a zstd frame
    try:
        position = start + zstandard.frame_header_size(header)
        has_checksum = zstandard.get_frame_parameters(header).has_checksum
    except zstandard.ZstdError as error:
        raise DamagedCompression(f"zstd: no frame begins at byte {start}: {error}") from None
    while True:
        if len(data) - position < _BLOCK_HEADER_BYTES:
            raise DamagedCompression(f"zstd: the {len(data)} bytes end inside a frame")
        block = int.from_bytes(data[position : position + _BLOCK_HEADER_BYTES], "little")
        is_rle = block >> 1 & 3 == _RLE
        position += _BLOCK_HEADER_BYTES + (1 if is_rle else block >> 3)
        parts += 1
        if block & 1:  # bit 0 is set in the header of a frame's last block
            return position + (_CHECKSUM_BYTES if has_checksum else 0), parts
        if max_parts is not None and parts > max_parts:
            return position, parts
