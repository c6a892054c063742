"""The transaction index of a segment, ``<base offset>.txnindex``.

The first aborted transaction creates the file. The file has no preallocated space: a row is written
before its abort marker and committed together with the marker. If the marker cannot be written, the
row is cut off.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from klog_broker.log.errors import ColdRead, DamagedLog, ShortWrite
from klog_broker.runtime.disk.files import ClosedFile, File, Files
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.transaction_index import (
    ENTRY,
    AbortedEntry,
    decode_transaction_index,
    encode_transaction_index,
)

_ROWS_AT_ONCE = 120  # about one page


class TransactionIndexFile:
    """The rows of aborted transactions, in ascending order of the markers' offsets. The
    ``last_offset`` of a row is the offset of the marker."""

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        self.rows = 0
        self.is_new = False
        """Whether the transaction index file was created, and its name may not be durable yet."""
        self.file: File | None = None
        """The open transaction index file; None if the segment has no such file."""
        self._files = files
        self.path = path
        """The current path of the transaction index. A caller that renames the file must set this
        attribute."""
        self._base_offset = base_offset
        self._uncounted_rows = 0
        if files.exists(path):
            self.file = files.open(path)
            self.rows = self.file.size() // ENTRY.size
            self.file.release_descriptor()

    # --- writing rows ----------------------------------------------------------------------------
    def write(self, entries: Sequence[AbortedEntry]) -> None:
        """Write rows of aborted transactions, which do not belong to the index until
        :meth:`commit`. After an OSError the caller must call :meth:`cut_back`."""
        if self.file is None:
            self.file = self._files.open(self.path, create=True)
            self.is_new = True
        self._uncounted_rows = len(entries)
        data = encode_transaction_index(entries)
        written = self.file.pwrite(data, self.rows * ENTRY.size)
        if written != len(data):
            raise ShortWrite(written, len(data))

    def commit(self) -> None:
        """Make the rows of the last :meth:`write` part of the index: their markers are in the
        log."""
        self.rows += self._uncounted_rows
        self._uncounted_rows = 0

    def cut_back(self) -> None:
        """Cut off the rows that were written but not committed, including a partly written one.
        Raises OSError."""
        if self.file is not None and self.file.size() != self.rows * ENTRY.size:
            self.file.truncate(self.rows * ENTRY.size)
        self._uncounted_rows = 0

    def cut_to_offset(self, offset: int) -> None:
        """Drop the rows whose abort markers are at or after ``offset``, the first bad row with all
        rows after it, and an incomplete row at the end. Raises OSError."""
        if self.file is None:
            return
        data = self.file.pread(self.rows * ENTRY.size, 0)
        keep, last_offset = 0, self._base_offset - 1
        for at in range(0, len(data), ENTRY.size):
            entry = _good_row(data[at : at + ENTRY.size], last_offset)
            if entry is None or entry.last_offset >= offset:
                break
            keep, last_offset = keep + 1, entry.last_offset
        self.rows = keep
        self.cut_back()

    def replace(self, entries: Sequence[AbortedEntry]) -> None:
        """Replace all rows of the transaction index, and sync the file. A crash leaves either the
        old or the new rows. Blocks. Raises OSError."""
        if self.file is None and not entries:
            return
        self._files.write_atomically(self.path, encode_transaction_index(entries))
        self.file = self._files.open(self.path)
        self.rows, self._uncounted_rows = len(entries), 0

    def is_sane(self, end_offset: int) -> bool:
        """Whether the transaction index is plausible for a closed segment that ends at
        ``end_offset``: the size of its file, its first row and its last row."""
        if self.file is None or not self.file.size():
            return True
        if self.file.size() % ENTRY.size:
            return False
        for row in {0, self.rows - 1}:
            data = self.file.pread(ENTRY.size, row * ENTRY.size)
            entry = _good_row(data, self._base_offset - 1)
            if entry is None or entry.last_offset >= end_offset:
                return False
        return True

    # --- reading rows, and closing the file ------------------------------------------------------
    def read(self, from_offset: int, *, may_block: bool = True) -> Iterator[AbortedEntry]:
        """Iterate over the rows of markers at or after ``from_offset``, in order.

        With ``may_block=False`` raises ColdRead if the rows are not in the page cache. Raises
        StorageFormatError for a row that cannot be decoded, DamagedLog if rows are missing.
        """
        low, high = 0, self.rows
        while low < high:
            middle = (low + high) // 2
            if self._rows_at(middle, 1, may_block)[0].last_offset < from_offset:
                low = middle + 1
            else:
                high = middle
        while low < self.rows:
            found = self._rows_at(low, min(_ROWS_AT_ONCE, self.rows - low), may_block)
            yield from found
            low += len(found)

    def _rows_at(self, row: int, count: int, may_block: bool) -> list[AbortedEntry]:
        file = self.file
        assert file is not None
        position, size = row * ENTRY.size, count * ENTRY.size
        data = file.pread(size, position) if may_block else file.pread_now(size, position)
        if data is None:
            raise ColdRead(partial(file.read_ahead, 0, self.rows * ENTRY.size))
        if len(data) < size:
            raise DamagedLog(f"{self.path} has too few rows, expected {self.rows}")
        return decode_transaction_index(data)

    def release_descriptor(self) -> None:
        """Give up the file descriptor of the transaction index while it is not in use. The next use
        opens the file again."""
        if self.file is not None:
            self.file.release_descriptor()

    def close(self) -> None:
        """Let later uses of the transaction index raise OSError. The file itself is closed once no
        read, write or sync of it is running."""
        if self.file is not None:
            self.file = ClosedFile(self.file.path)


def _good_row(data: bytes, before: int) -> AbortedEntry | None:
    """Decode one row of a transaction index, or return None if the row is bad.

    The marker's offset in the row must be greater than the transaction's first offset (a power cut
    can leave rows of zeros, in which both are 0), and greater than ``before``: the marker's offset
    in the row before, or the last offset before the segment.
    """
    try:
        (entry,) = decode_transaction_index(data)
    except StorageFormatError:
        return None
    return entry if max(before, entry.first_offset) < entry.last_offset else None
