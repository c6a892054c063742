"""Whether zstd data ends where a frame ends: zstd's streaming reader does not tell."""

import zstandard

from pyspark_klog.records.errors import DamagedCompression, DecompressedTooLarge

_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_BLOCK_HEADER_BYTES = 3
_CHECKSUM_BYTES = 4
_RLE = 1


def check_complete(data: memoryview, max_parts: int | None = None) -> None:
    """Raise DamagedCompression unless ``data`` is one or more whole frames; looks at lengths only.

    DecompressedTooLarge if they have more than ``max_parts`` blocks, a frame counted as one, too.
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
            raise DecompressedTooLarge(f"zstd: more than {max_parts} blocks")
        if position > len(data):
            raise DamagedCompression(f"zstd: the {len(data)} bytes end inside a frame")


def _frame_end(data: memoryview, start: int, parts: int, max_parts: int | None) -> tuple[int, int]:
    """The end of the frame, or of as many blocks of it as may be; and how many parts there are."""
    header = data[start : start + 18]  # no header is longer
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
        if block & 1:  # the last one
            return position + (_CHECKSUM_BYTES if has_checksum else 0), parts
        if max_parts is not None and parts > max_parts:
            return position, parts
