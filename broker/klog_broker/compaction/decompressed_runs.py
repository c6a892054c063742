"""Makes arrays for the kernels from a scanned chunk, and decompresses its batches run by run.

Kernels (functions that numba compiles) cannot read compressed batches. A run is a sequence of
consecutive batches in one buffer, the compressed ones decompressed, as if they had never been
compressed, so that one kernel call handles many batches. The section of a batch is the bytes of its
records, without its header. For lz4, zstd and gzip, a section usually costs one call of the codec's
library, with a size limit. If that call does not read the section as one whole stream, and for
other codecs, ``decompress`` (pyspark_klog.records.compression) reads it, and decides whether it is
valid.
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

# A run (batches decompressed into one buffer) ends after the batch that reaches this size, so that
# the run stays in the processor's cache.
_RUN_BYTES = 512 * 1024
_RUN_BUFFER_BYTES = 2 * _RUN_BYTES
# A buffer for decompressed batches (a run) that has grown beyond this size is not reused for the
# next run.
_MOST_KEPT_BYTES = 4 << 20
# An uncompressed batch of at most this size, such as a transaction marker, is copied into a run's
# buffer of decompressed batches. A larger one whose records the kernel must read ends the run, and
# the kernel reads it without a copy.
_SMALL_BYTES = 512
# The output limit of the single codec call that decompresses a batch's records: _GUESS_FACTOR times
# the decompressed size of the previous batch's records, but at least _FIRST_GUESS_BYTES. Records
# that exceed this limit are decompressed again by ``decompress``, whose limit is ``max_bytes``, the
# largest size that is allowed at all.
_FIRST_GUESS_BYTES = 128 * 1024
_GUESS_FACTOR = 2
# A batch's records of more bytes than this are not compressed in one lz4 call, because the library
# reserves output memory for the worst case of each call's input.
_MOST_AT_ONCE_BYTES = 256 * 1024
_GZIP_FORMAT = 31  # zlib's number for gzip header and trailer with a window of 32 KiB
_ZSTD_MAX_WINDOW_BYTES = 128 << 20
_ZSTD_DEFAULT_LEVEL = 3

# The part of a batch that a run (batches in one buffer, the compressed ones decompressed) has: only
# the header, the decompressed batch, a copy of the uncompressed batch, or nothing, because the run
# ends before the batch.
_HEADER_ONLY, _INFLATED, _COPIED, _NOT_AT_ALL = range(4)


class TableChunk(NamedTuple):
    """Bytes of a log, and a table with header fields of batches in these bytes."""

    data: Bytes
    table: Numbers  # made by kernels.scan; TABLE_COLUMNS numbers for each batch, one after another

    @property
    def row_count(self) -> int:
        return len(self.table) // TABLE_COLUMNS

    def field(self, row: int, column: int) -> int:
        return int(self.table[row * TABLE_COLUMNS + column])

    def column(self, column: int) -> Numbers:
        return self.table[column::TABLE_COLUMNS]

    def end_position(self, row: int) -> int:
        return self.field(row, POSITION) + self.field(row, SIZE_BYTES)


def as_chunk(data: Buffer | Bytes, table: Numbers, row_count: int) -> TableChunk:
    """Return a TableChunk of the bytes, with the first ``row_count`` rows of ``table``, a flat
    array of TABLE_COLUMNS numbers for each batch."""
    view: Any = np.frombuffer(data, np.uint8).view()
    view.flags.writeable = False
    return TableChunk(view, table[: row_count * TABLE_COLUMNS])


def records_error(status: int, chunk: TableChunk, row: int, record: int) -> RecordsError:
    """Return the exception for an invalid record of the batch in this row of the chunk's table.

    ``status`` is the number of the error, as a kernel returned it.
    """
    last_offset = chunk.field(row, LAST_OFFSET)
    return error_for(status, f"record {record} of the batch that ends at offset {last_offset}")


class Codecs:
    """Decompresses and compresses the records of batches (sections) with reused codec objects.

    For one thread at a time. ``max_bytes`` limits the decompressed size of a batch's records.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.run_buffer: Any = np.empty(0, np.uint8)
        """The buffer into which consecutive batches (a run) are decompressed; reused for the next
        run."""
        self._guess_bytes = _FIRST_GUESS_BYTES
        self._lz4: Any = None
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        self._zstd_compressor: zstandard.ZstdCompressor | None = None

    def inflate(self, codec: Codec, section: memoryview) -> Buffer:
        """Decompress the records of a batch. Results and errors are those of
        records.compression.decompress."""
        limit_bytes = min(self._guess_bytes, self.max_bytes)
        found: Buffer | None = None
        if codec == Codec.LZ4:
            found = self._inflate_lz4(section, limit_bytes)
        elif codec == Codec.ZSTD:
            found = self._inflate_zstd(section, limit_bytes)
        elif codec == Codec.GZIP:
            found = _inflate_gzip(section, limit_bytes)
        if found is None:
            found = decompress(codec, section, max_bytes=self.max_bytes)
        self._guess_bytes = max(_GUESS_FACTOR * len(found), _FIRST_GUESS_BYTES)
        return found

    def _inflate_lz4(self, section: memoryview, limit_bytes: int) -> Buffer | None:
        if self._lz4 is None:
            self._lz4 = lz4.frame.create_decompression_context()
        try:
            found: bytes
            found, used_bytes, is_whole = lz4.frame.decompress_chunk(
                self._lz4, section, max_length=limit_bytes
            )
        except RuntimeError:
            used_bytes, is_whole = 0, False
        if is_whole and used_bytes == len(section):
            return found
        self._lz4 = None  # drop the lz4 context, which may be in the middle of a frame
        return None

    def _inflate_zstd(self, section: memoryview, limit_bytes: int) -> Buffer | None:
        try:
            claimed_bytes = zstandard.frame_content_size(section)
            if 0 < claimed_bytes <= limit_bytes:
                return self._zstd.decompress(section, allow_extra_data=False)
            if claimed_bytes >= 0:
                return None
            # Java clients do not store the content size. For such a frame, decompress() would not
            # notice bytes after the frame.
            check_complete(section)
            with self._zstd.stream_reader(section, read_across_frames=True) as reader:
                found = reader.read(limit_bytes)
                return None if reader.read(1) else found
        except (zstandard.ZstdError, CorruptRecords):
            return None

    def compress(self, codec: Codec, section: memoryview) -> bytes:
        """Compress the records of a batch at the codec's default level. The result is that of
        records.compression.compress."""
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


def _inflate_gzip(section: memoryview, limit_bytes: int) -> Buffer | None:
    inflater = zlib_ng.decompressobj(_GZIP_FORMAT)
    try:
        # Allow one byte more than the limit: with exactly the limit, zlib might not report the end
        # of a stream of that size.
        found = inflater.decompress(section, limit_bytes + 1)
    except zlib_ng.error:  # type: ignore[misc]  # stubs: an instance
        return None
    is_whole = inflater.eof and not inflater.unused_data and len(found) <= limit_bytes
    return found if is_whole else None


class Runs:
    """The compressed batches (rows) of a chunk, decompressed run by run, in order.

    A run is a sequence of batches in one buffer. ``is_needed`` flags the rows whose records a
    kernel is to read; a run has only the headers of other rows. A run ends before a row of an older
    format, and before a needed row of more than _SMALL_BYTES that is not compressed.
    """

    def __init__(self, chunk: TableChunk, is_needed: Flags, codecs: Codecs) -> None:
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

    def inflated(self, first: int) -> TableChunk:
        """Decompress batches into one buffer, beginning with the compressed batch in row ``first``,
        and return them (the run); valid until the next call.

        The run's bytes have the batches' headers unchanged, followed by decompressed records. The
        run's table has the positions and sizes of the batches in these bytes. Raises RecordsError
        if the batch in row ``first`` is damaged. The run ends before a later damaged batch.
        """
        buffer = memoryview(self._run_buffer())
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
            if end + size_bytes > len(buffer):
                buffer = memoryview(self._grow_run_buffer(end, size_bytes))
            buffer[end:records_at] = data[position:header_end]
            end += size_bytes
            buffer[records_at:end] = section
            sizes.append(size_bytes)
            if end >= _RUN_BYTES:
                break
        table = self._chunk.table[first * TABLE_COLUMNS : (first + len(sizes)) * TABLE_COLUMNS]
        return as_chunk(self._codecs.run_buffer[:end], _as_plain(table, sizes), len(sizes))

    def entry(self, row: int) -> memoryview:
        """Return the bytes of the batch in this row as the chunk has them, still compressed."""
        position = self._positions[row]
        return self._chunk.data.data[position : position + self._sizes[row]]

    def codec(self, row: int) -> Codec:
        return codec_of(self._attributes[row])

    def _run_buffer(self) -> Any:
        codecs = self._codecs
        if not _RUN_BUFFER_BYTES <= len(codecs.run_buffer) <= _MOST_KEPT_BYTES:
            codecs.run_buffer = np.empty(_RUN_BUFFER_BYTES, np.uint8)
        return codecs.run_buffer

    def _grow_run_buffer(self, used_bytes: int, size_bytes: int) -> Any:
        used = self._codecs.run_buffer[:used_bytes]
        self._codecs.run_buffer = np.empty(used_bytes + size_bytes, np.uint8)
        self._codecs.run_buffer[:used_bytes] = used
        return self._codecs.run_buffer


def _as_plain(table: Numbers, sizes: list[int]) -> Numbers:
    """Return a copy of these rows of the chunk's table, changed to describe a run (batches that
    were decompressed into one buffer): the same batches uncompressed, with these sizes, one after
    another in the run's buffer."""
    plain = table.copy()
    size_column = np.array(sizes, np.int64)
    plain[SIZE_BYTES::TABLE_COLUMNS] = size_column
    plain[POSITION::TABLE_COLUMNS] = np.cumsum(size_column) - size_column
    plain[ATTRIBUTES::TABLE_COLUMNS] &= ~CODEC_MASK
    return plain
