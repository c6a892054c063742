"""Down-conversion of records to format v1 or v0, with the same results as Kafka 3.9.

Clients that fetch with versions before 4, and brokers before 0.11, read only these formats. The
kernels (functions that numba compiles) in kernels/down_conversion.py write the records; Python code
handles compressed batches and wrapper messages one by one. Nearly all work runs without the GIL, so
that a broker can convert in a helper thread.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.checksums import crc32
from pyspark_klog.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress
from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    RecordsError,
    UnsupportedCodec,
)
from pyspark_klog.records.kernels import status
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_sets import Entry, entry_at

# Converting a compressed batch or wrapper message takes some time whatever its size. In this time
# the compiled kernel that writes messages could write about this many bytes, so they are charged to
# the work budget (`ConversionBudget`) in addition to the bytes that are inflated and written.
_ENTRY_WORK_BYTES = 8 * 1024
# The messages converted from one compressed batch may take this many times max_bytes, the bound on
# its inflated size.
_MOST_GROWTH = 2
_UNBOUNDED = 1 << 62
_NULL_KEY = at.INT32.pack(-1)
_OVERFLOW_HEAD = Struct(">qi")


class DownConverted(NamedTuple):
    """The result of a down-conversion: a message set, and how many of its records were converted.

    Messages that already had an old enough format were copied, and do not count as converted.
    """

    data: bytes | memoryview
    records_converted: int


@dataclass(slots=True)
class ConversionBudget:
    """A work budget that several conversions share: bytes that may be inflated and written, and
    _ENTRY_WORK_BYTES for each compressed batch or wrapper message.

    ``limit_bytes`` is the whole budget, and ``done_bytes`` is the part used so far.
    """

    limit_bytes: int
    done_bytes: int = 0

    @property
    def left_bytes(self) -> int:
        return max(0, self.limit_bytes - self.done_bytes)


def down_convert(
    buffer: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    start: int = 0,
    end: int | None = None,
    allow_partial: bool = False,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> DownConverted:
    """Convert the batches and messages (the entries) of ``buffer[start:end]`` to formats no newer
    than ``magic`` (0 or 1).

    Entries in an old enough format are copied. The CRC of each converted entry is checked. Control
    batches are left out. Offsets, codec and timestamps stay (v0 has no timestamps), while headers
    and producer fields are lost. A compressed entry becomes one wrapper message, and an
    uncompressed entry becomes plain messages.

    ``first_offset`` is the fetch offset. When an uncompressed entry is converted, its records below
    this offset are left out, because not all old clients skip them. Compressed entries and copied
    ones keep such records.

    Raises CorruptRecords, InvalidRecords, UnsupportedCodec for an unknown codec or a zstd batch,
    even one without records, and DecompressedTooLarge if an entry inflates to more than
    ``max_bytes`` or the messages of a batch take more than twice ``max_bytes``.
    """
    end = len(buffer) if end is None else end
    conversion = _Conversion(
        buffer, magic, first_offset, start, end, max_bytes, ConversionBudget(_UNBOUNDED)
    )
    ending = conversion.convert_until(_UNBOUNDED)
    if ending.error is not None:
        raise ending.error
    if ending.is_cut_off and not allow_partial:
        raise CorruptRecords(
            f"the batch or message at byte {conversion.position} is cut off after "
            f"{end - conversion.position} bytes"
        )
    found = conversion.converted()
    return found._replace(data=bytes(found.data))


def down_convert_fetched(
    data: Buffer, magic: int, *, first_offset: int, max_bytes: int, work: ConversionBudget
) -> DownConverted | None:
    """Convert like :func:`down_convert` the bytes that were read for a Fetch.

    Whole entries (batches and messages) are converted until the message set has about the size of
    ``data``, like in Kafka, or until the budget ``work`` is used up. The last entry may be cut off.
    While the budget is unused, the first entry is converted whatever it costs. Returns None if the
    budget is used up before any entry has given messages.

    An entry that cannot be converted ends the message set; its error is raised only if no entry
    before it gave any messages. If the converted entries give no messages, for example because they
    are control batches, the result is :func:`overflow_message`.
    """
    conversion = _Conversion(data, magic, first_offset, 0, len(data), max_bytes, work)
    ending = conversion.convert_until(len(data))
    if conversion.size_bytes:
        return conversion.converted()
    if ending.error is not None:
        raise ending.error
    if conversion.position < len(data) and not ending.is_cut_off:
        return None
    return DownConverted(overflow_message(len(data)), 0)


def overflow_message(fetch_bytes: int) -> bytes:
    """Return the first 12 bytes (offset and size) of a message of more than ``fetch_bytes`` bytes.

    ``fetch_bytes`` is the size of the fetched data. Like Kafka, the broker sends these bytes when
    down-conversion leaves no message, for example of control batches. An old client takes the bytes
    for a message that its fetch size cut off, and reports an error. With an empty message set the
    client would fetch the same offset forever.
    """
    size = max(fetch_bytes + 1, at.BATCH_HEADER_BYTES)
    return _OVERFLOW_HEAD.pack(-1, size)


class _ConversionEnd(NamedTuple):
    """Why a down-conversion stopped: at an error, or at a partial batch or message at the end of
    the buffer.

    With neither, the down-conversion reached the end of the buffer, the size limit of its result
    or the limit of its work budget.
    """

    error: RecordsError | None
    is_cut_off: bool


class _Conversion:
    """The down-conversion of one buffer. ``position`` is the start of the next entry (batch or
    message) to convert."""

    def __init__(
        self,
        buffer: Buffer,
        magic: int,
        first_offset: int,
        start: int,
        end: int,
        max_bytes: int,
        work: ConversionBudget,
    ) -> None:
        if magic not in (at.MAGIC_V0, at.MAGIC_V1):
            raise ValueError(f"magic {magic}: down-conversion writes only format 0 or 1")
        import numpy as np

        from pyspark_klog.records.kernels import down_conversion

        self.position = start
        self.size_bytes = 0
        self._np = np
        self._kernels = down_conversion
        self._buffer = buffer
        self._source = self._array(buffer)
        self._magic = magic
        self._first_offset = first_offset
        self._end = end
        self._max_bytes = max_bytes
        self._work = work
        self._state = np.zeros(down_conversion.STATE_FIELDS, dtype=np.int64)
        # All calls of the kernel convert_entries write to this buffer. Its size suffices for the
        # largest possible result; memory pages that no call writes to cost no time.
        self._out = self._empty(down_conversion.MOST_GROWTH * (end - start))
        self._pieces: list[Any] = []

    def convert_until(self, stop_bytes: int) -> _ConversionEnd:
        """Convert batches and messages until the result has ``stop_bytes`` bytes, the work budget
        is used up, the buffer ends, or a batch or message cannot be converted."""
        while True:
            found = self._run_plain(stop_bytes)
            if found in (status.OK, status.FULL, status.INCOMPLETE):
                return _ConversionEnd(None, found == status.INCOMPLETE)
            try:
                if found != status.NOT_PLAIN:
                    raise status.error_for(found, f"the batch or message at byte {self.position}")
                entry = entry_at(self._buffer, self.position, self._end)
                if not entry.is_control and not self._convert_compressed(entry):
                    return _ConversionEnd(None, False)
            except RecordsError as error:
                return _ConversionEnd(error, False)
            self.position += entry.size_bytes

    def converted(self) -> DownConverted:
        """Return the message set converted so far."""
        data: bytes | memoryview = b""
        if self._pieces:
            # Like ``b"".join``, but numpy copies without the GIL.
            joined: Any = self._np.concatenate(self._pieces)
            data = memoryview(joined)
        return DownConverted(data, int(self._state[self._kernels.MESSAGES]))

    def _run_plain(self, stop_bytes: int) -> int:
        """Convert batches and messages with the compiled kernel up to the next one that must be
        inflated or cannot be converted, and return the kernel's status.

        The kernel also stops when the result has ``stop_bytes`` bytes or the work budget is used
        up.
        """
        stop_bytes = min(stop_bytes - self.size_bytes, self._work.left_bytes)
        if self.position >= self._end:
            return status.OK
        if stop_bytes <= 0:
            return status.FULL
        kernels, state = self._kernels, self._state
        found: int = kernels.convert_entries(
            *(self._source, self.position, self._end, self._magic, self._first_offset),
            *(stop_bytes, self._out, state),
        )
        self.position = int(state[kernels.POSITION])
        written = int(state[kernels.OUT_END])
        self._work.done_bytes += written
        self._add(self._out[:written].copy())
        return found

    def _convert_compressed(self, entry: Entry) -> bool:
        """Convert a compressed batch or wrapper message to one wrapper message; return False if the
        rest of the work budget does not suffice."""
        if entry.attributes & at.CODEC_MASK == Codec.ZSTD:
            raise UnsupportedCodec(
                "a batch compressed with zstd cannot be converted down: record formats 0 and 1 "
                "do not support zstd; fetch with version 10 or later"
            )
        work, max_bytes = self._work, self._max_bytes
        if work.done_bytes:
            max_bytes = min(max_bytes, work.left_bytes - _ENTRY_WORK_BYTES)
            if max_bytes <= 0:
                return False
        entry.check_crc()
        try:
            messages, inflated_bytes = self._messages(entry, max_bytes)
        except DecompressedTooLarge:
            if max_bytes == self._max_bytes:
                raise
            # Inflating the batch or message took the rest of the work budget, so that no further
            # one is converted.
            work.done_bytes = work.limit_bytes
            return False
        work.done_bytes += inflated_bytes + len(messages) + _ENTRY_WORK_BYTES
        if len(messages):
            self._add_wrapper(entry, messages)
        return True

    def _messages(self, entry: Entry, max_bytes: int) -> tuple[memoryview, int]:
        """Return (the messages converted from ``entry``, inflated size of ``entry`` in bytes)."""
        if isinstance(entry, BatchView):
            if not entry.record_count:
                return memoryview(b""), 0
            inflated = entry.records_section(max_bytes)
            out, found = self._messages_of_batch(entry, inflated, max_bytes)
        else:
            inflated = entry.inflate(max_bytes)
            out = self._empty(len(inflated))
            found = self._kernels.convert_messages(
                self._array(inflated), 0, len(inflated), entry.offset, out, self._state
            )
        if found != status.OK:
            raise status.error_for(found, f"in the batch or message at byte {entry.position}")
        return memoryview(out)[: int(self._state[self._kernels.OUT_END])], len(inflated)

    def _messages_of_batch(self, batch: BatchView, inflated: Buffer, max_bytes: int) -> Any:
        kernels, count = self._kernels, batch.record_count
        if not 0 <= count <= len(inflated) // at.MIN_RECORD_BYTES:
            return self._empty(0), status.BAD_COUNT
        overhead = (kernels.V0_OVERHEAD_BYTES, kernels.V1_OVERHEAD_BYTES)[self._magic]
        size_bytes = len(inflated) + count * (overhead - at.MIN_RECORD_BYTES)
        if size_bytes > _MOST_GROWTH * max_bytes:
            raise DecompressedTooLarge(
                f"the {count} records of the batch at byte {batch.position} take {size_bytes} "
                f"bytes in format {self._magic}, the limit is {_MOST_GROWTH * max_bytes}"
            )
        is_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        out = self._empty(size_bytes)
        return out, kernels.convert_section(
            *(self._array(inflated), 0, len(inflated), count),
            *(batch.base_offset, batch.base_timestamp_ms),
            batch.max_timestamp_ms if is_append_time else at.NO_TIMESTAMP_MS,
            *(self._magic, int(self._magic == at.MAGIC_V1), out, self._state),
        )

    def _add_wrapper(self, entry: Entry, messages: memoryview) -> None:
        """Compress ``messages`` and add them to the result, as the value of one wrapper message.

        Unlike ``encode_message``, the method does not copy the value behind the header, because the
        value may be large.
        """
        codec, state, kernels = entry.codec, self._state, self._kernels
        value = compress(codec, messages, magic=self._magic)
        attributes = int(codec)
        fields = _NULL_KEY + at.INT32.pack(len(value))
        if self._magic == at.MAGIC_V1:
            if entry.timestamp_type is TimestampType.LOG_APPEND_TIME:
                attributes |= at.TIMESTAMP_TYPE_BIT
            fields = at.INT64.pack(int(state[kernels.MAX_TIMESTAMP_MS])) + fields
        head = at.INT8.pack(self._magic) + at.INT8.pack(attributes) + fields
        size = 4 + len(head) + len(value)
        crc = at.UINT32.pack(crc32(value, crc32(head)))
        overhead = at.LOG_OVERHEAD.pack(int(state[kernels.LAST_OFFSET]), size)
        self._add(self._array(overhead + crc + head))
        self._add(self._array(value))

    def _add(self, piece: Any) -> None:
        if len(piece):
            self._pieces.append(piece)
            self.size_bytes += len(piece)

    def _array(self, data: Buffer) -> Any:
        array = self._np.frombuffer(data, dtype=self._np.uint8)
        array.flags.writeable = False
        return array

    def _empty(self, size_bytes: int) -> Any:
        return self._np.empty(size_bytes, dtype=self._np.uint8)
