"""A scanned chunk as arrays for the kernels, and its compressed batches inflated run by run.

Kernels take no compressed batch. A run of them is inflated into one buffer, as if they had never
been compressed, so that a kernel is called once for many batches. Each batch costs one call of its
codec's library, with a bound; whatever that does not read as one whole stream is left to
``decompress``, which says what is right and what is wrong.
"""

from typing import Any, NamedTuple

import lz4.frame
import numpy as np
import numpy.typing as npt
import zstandard
from zlib_ng import zlib_ng

from pyspark_klog.records.compression import Codec, codec_of, compress, decompress
from pyspark_klog.records.errors import CorruptRecords, RecordsError
from pyspark_klog.records.kernels.scan import (
    ATTRIBUTES,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    SIZE_BYTES,
    TABLE_COLUMNS,
)
from pyspark_klog.records.kernels.status import error_for
from pyspark_klog.records.layout import BATCH_HEADER_BYTES, CODEC_MASK, MAGIC_V2, Buffer
from pyspark_klog.records.zstd_frames import check_complete

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# A run ends behind the batch that reaches this: it stays in the processor's cache.
_RUN_BYTES = 512 * 1024
_ROOM_BYTES = 2 * _RUN_BYTES
# More room than this is not kept for the next run.
_MOST_KEPT_BYTES = 4 << 20
# Batches that are not compressed go along if they are small, as a transaction's markers are.
_SMALL_BYTES = 512
# What a decoder is given room for at first, and how much more than the last batch took.
_FIRST_GUESS_BYTES = 128 * 1024
_GUESS_FACTOR = 2
# lz4's library takes room for the worst case of what it is given at once.
_MOST_AT_ONCE_BYTES = 256 * 1024
_GZIP_FORMAT = 31  # zlib's word for: gzip header and trailer, window of 32 KiB
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
_ZSTD_DEFAULT_LEVEL = 3

# How a row goes into a run.
_HEADER_ONLY, _INFLATED, _COPIED, _NOT_AT_ALL = range(4)


class Chunk(NamedTuple):
    """Bytes with the first rows of a scan's table of them."""

    data: Bytes
    table: Numbers  # a row of TABLE_COLUMNS for each batch

    @property
    def row_count(self) -> int:
        return len(self.table) // TABLE_COLUMNS

    def field(self, row: int, column: int) -> int:
        return int(self.table[row * TABLE_COLUMNS + column])

    def column(self, column: int) -> Numbers:
        return self.table[column::TABLE_COLUMNS]

    def end_position(self, row: int) -> int:
        return self.field(row, POSITION) + self.field(row, SIZE_BYTES)


def as_chunk(data: Buffer | Bytes, table: Numbers, row_count: int) -> Chunk:
    """The first ``row_count`` rows of a flat table, with their bytes."""
    view: Any = np.frombuffer(data, np.uint8).view()
    view.flags.writeable = False
    return Chunk(view, table[: row_count * TABLE_COLUMNS])


def records_error(status: int, chunk: Chunk, row: int, record: int) -> RecordsError:
    """The exception for what a kernel found wrong with a record of a row."""
    last_offset = chunk.field(row, LAST_OFFSET)
    return error_for(status, f"record {record} of the batch that ends at offset {last_offset}")


class Codecs:
    """Inflates and compresses sections of records, with objects that are used again and again; for
    one thread at a time. ``max_bytes`` bounds what a section may inflate to."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.room: Any = np.empty(0, np.uint8)
        """For a run, kept for the next one."""
        self._guess_bytes = _FIRST_GUESS_BYTES
        self._lz4: Any = None
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        self._zstd_compressor: zstandard.ZstdCompressor | None = None

    def inflate(self, codec: Codec, section: memoryview) -> Buffer:
        """As ``decompress``."""
        room_bytes = min(self._guess_bytes, self.max_bytes)
        found: Buffer | None = None
        if codec == Codec.LZ4:
            found = self._inflate_lz4(section, room_bytes)
        elif codec == Codec.ZSTD:
            found = self._inflate_zstd(section, room_bytes)
        elif codec == Codec.GZIP:
            found = _inflate_gzip(section, room_bytes)
        if found is None:
            found = decompress(codec, section, max_bytes=self.max_bytes)
        self._guess_bytes = max(_GUESS_FACTOR * len(found), _FIRST_GUESS_BYTES)
        return found

    def _inflate_lz4(self, section: memoryview, room_bytes: int) -> Buffer | None:
        if self._lz4 is None:
            self._lz4 = lz4.frame.create_decompression_context()
        try:
            found: bytes
            found, used_bytes, is_whole = lz4.frame.decompress_chunk(
                self._lz4, section, max_length=room_bytes
            )
        except RuntimeError:
            used_bytes, is_whole = 0, False
        if is_whole and used_bytes == len(section):
            return found
        self._lz4 = None  # it may be in the middle of something
        return None

    def _inflate_zstd(self, section: memoryview, room_bytes: int) -> Buffer | None:
        try:
            claimed_bytes = zstandard.frame_content_size(section)
            if 0 < claimed_bytes <= room_bytes:
                return self._zstd.decompress(section, allow_extra_data=False)
            if claimed_bytes >= 0:
                return None
            # As Java's clients write it: then that call would not tell what follows the frame.
            check_complete(section)
            with self._zstd.stream_reader(section, read_across_frames=True) as reader:
                found = reader.read(room_bytes)
                return None if reader.read(1) else found
        except (zstandard.ZstdError, CorruptRecords):
            return None

    def compress(self, codec: Codec, section: memoryview) -> bytes:
        """As ``compress`` does at the codec's default level."""
        if codec == Codec.ZSTD:
            if self._zstd_compressor is None:
                self._zstd_compressor = zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL)
            return self._zstd_compressor.compress(section)
        if codec == Codec.LZ4 and len(section) <= _MOST_AT_ONCE_BYTES:
            frame: bytes = lz4.frame.compress(
                section,
                compression_level=0,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                content_checksum=False,
                store_size=False,
            )
            return frame
        return compress(codec, section)


def _inflate_gzip(section: memoryview, room_bytes: int) -> Buffer | None:
    inflater = zlib_ng.decompressobj(_GZIP_FORMAT)
    try:
        # One byte more than there may be: else the end might not be seen.
        found = inflater.decompress(section, room_bytes + 1)
    except zlib_ng.error:  # type: ignore[misc]  # stubs: an instance
        return None
    is_whole = inflater.eof and not inflater.unused_data and len(found) <= room_bytes
    return found if is_whole else None


class Runs:
    """The compressed rows of a chunk, inflated run by run, in order.

    ``is_needed`` says of which rows a kernel is to read the records. Of the others only the header
    is in a run; rows of older formats are in none.
    """

    def __init__(self, chunk: Chunk, is_needed: Flags, codecs: Codecs) -> None:
        self._chunk = chunk
        self._codecs = codecs
        sizes, attributes = chunk.column(SIZE_BYTES), chunk.column(ATTRIBUTES)
        whole = np.where(sizes <= _SMALL_BYTES, _COPIED, _NOT_AT_ALL)
        whole = np.where(attributes & CODEC_MASK != 0, _INFLATED, whole)
        ways = np.where(is_needed, whole, _HEADER_ONLY)
        self._ways: list[int] = np.where(
            chunk.column(MAGIC) == MAGIC_V2, ways, _NOT_AT_ALL
        ).tolist()
        self._positions: list[int] = chunk.column(POSITION).tolist()
        self._sizes: list[int] = sizes.tolist()
        self._attributes: list[int] = attributes.tolist()

    def inflated(self, first: int) -> Chunk:
        """The rows from ``first`` on, which is compressed, as far as a run goes: until the next
        call. Headers are as they were, rows fit what they are now. Raises as ``decompress`` does
        if ``first`` is damaged; a run ends before another one that is."""
        room = memoryview(self._room())
        data = self._chunk.data.data
        sizes: list[int] = []
        end = 0
        for row in range(first, len(self._ways)):
            way = self._ways[row]
            if way == _NOT_AT_ALL:
                break
            section: Buffer = b""
            position = self._positions[row]
            header_end = position + BATCH_HEADER_BYTES
            if way == _INFLATED:
                try:
                    codec = codec_of(self._attributes[row])
                    section = self._codecs.inflate(
                        codec, data[header_end : position + self._sizes[row]]
                    )
                except RecordsError:
                    if row == first:
                        raise
                    break
            elif way == _COPIED:
                section = data[header_end : position + self._sizes[row]]
            records_at = end + BATCH_HEADER_BYTES
            size_bytes = BATCH_HEADER_BYTES + len(section)
            if end + size_bytes > len(room):
                room = memoryview(self._more_room(end, size_bytes))
            room[end:records_at] = data[position:header_end]
            end += size_bytes
            room[records_at:end] = section
            sizes.append(size_bytes)
            if end >= _RUN_BYTES:
                break
        table = self._chunk.table[first * TABLE_COLUMNS : (first + len(sizes)) * TABLE_COLUMNS]
        return as_chunk(self._codecs.room[:end], _as_plain(table, sizes), len(sizes))

    def entry(self, row: int) -> memoryview:
        """The bytes of a row, as they are in the chunk."""
        position = self._positions[row]
        return self._chunk.data.data[position : position + self._sizes[row]]

    def codec(self, row: int) -> Codec:
        return codec_of(self._attributes[row])

    def _room(self) -> Any:
        codecs = self._codecs
        if not _ROOM_BYTES <= len(codecs.room) <= _MOST_KEPT_BYTES:
            codecs.room = np.empty(_ROOM_BYTES, np.uint8)
        return codecs.room

    def _more_room(self, used_bytes: int, size_bytes: int) -> Any:
        used = self._codecs.room[:used_bytes]
        self._codecs.room = np.empty(used_bytes + size_bytes, np.uint8)
        self._codecs.room[:used_bytes] = used
        return self._codecs.room


def _as_plain(table: Numbers, sizes: list[int]) -> Numbers:
    """Rows of batches of these sizes, one after the other, not compressed."""
    plain = table.copy()
    size_column = np.array(sizes, np.int64)
    plain[SIZE_BYTES::TABLE_COLUMNS] = size_column
    plain[POSITION::TABLE_COLUMNS] = np.cumsum(size_column) - size_column
    plain[ATTRIBUTES::TABLE_COLUMNS] &= ~CODEC_MASK
    return plain
