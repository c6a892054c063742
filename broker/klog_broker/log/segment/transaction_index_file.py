"""A segment's transaction index, ``<base>.txnindex``, as the broker holds it.

There is a file from the first aborted transaction on. It has no room behind its last row: a row is
written before its marker, counts once the marker does, and is cut off if that does not come.
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

_ROWS_AT_ONCE = 120  # of a page


class TransactionIndexFile:
    """Rows rise by the offset of their markers, which is their ``last_offset``."""

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        self.rows = 0
        self.is_new = False
        """Whether its name may not be durable yet."""
        self.file: File | None = None
        """None: there is none, or it was not asked for yet."""
        self._files = files
        self.path = path
        """To be set by whoever gives it another name."""
        self._base_offset = base_offset
        self._uncounted_rows = 0
        if files.exists(path):
            self.file = files.open(path)
            self.rows = self.file.size() // ENTRY.size
            self.file.rest()

    # --- writing ---------------------------------------------------------------------------------
    def write(self, entries: Sequence[AbortedEntry]) -> None:
        """Write rows without effect until :meth:`commit`. OSError; then :meth:`cut_back` must be
        called."""
        if self.file is None:
            self.file = self._files.open(self.path, create=True)
            self.is_new = True
        self._uncounted_rows = len(entries)
        data = encode_transaction_index(entries)
        written = self.file.pwrite(data, self.rows * ENTRY.size)
        if written != len(data):
            raise ShortWrite(written, len(data))

    def commit(self) -> None:
        """The rows that were written count from now on: their markers are there."""
        self.rows += self._uncounted_rows
        self._uncounted_rows = 0

    def cut_back(self) -> None:
        """Take away rows that do not count, and what there may be of one. OSError."""
        if self.file is not None and self.file.size() != self.rows * ENTRY.size:
            self.file.truncate(self.rows * ENTRY.size)
        self._uncounted_rows = 0

    def cut_to_offset(self, offset: int) -> None:
        """Drop the rows of markers at ``offset`` and behind it, those behind a bad one, and a row
        that was cut off. OSError.

        All that lies behind the first row that goes was written after the rows before it.
        """
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
        """These are all rows now, durably; a crash leaves the old or the new. Blocks. OSError."""
        if self.file is None and not entries:
            return
        self._files.write_atomically(self.path, encode_transaction_index(entries))
        self.file = self._files.open(self.path)
        self.rows, self._uncounted_rows = len(entries), 0

    def is_sane(self, end_offset: int) -> bool:
        """Whether it can be what was written for a closed segment that ends there, by its first and
        its last row."""
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

    # --- reading ---------------------------------------------------------------------------------
    def read(self, from_offset: int, *, may_block: bool = True) -> Iterator[AbortedEntry]:
        """The rows of markers at ``from_offset`` and behind it, in order.

        ColdRead if the disk would have to be waited for and it may not block; StorageFormatError.
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
            raise DamagedLog(f"{self.path} has lost rows: expected {self.rows}")
        return decode_transaction_index(data)

    def rest(self) -> None:
        """Nobody is at it: it needs no descriptor."""
        if self.file is not None:
            self.file.rest()

    def close(self) -> None:
        """Close the file with the end of the calls that are under way; later uses raise OSError."""
        if self.file is not None:
            self.file = ClosedFile(self.file.path)


def _good_row(data: bytes, before: int) -> AbortedEntry | None:
    """The row, unless it can be none: its marker must lie behind the offset, and behind the
    transaction's first record. (Zeros, as a power cut leaves them, have both at 0.)"""
    try:
        (entry,) = decode_transaction_index(data)
    except StorageFormatError:
        return None
    return entry if max(before, entry.first_offset) < entry.last_offset else None
