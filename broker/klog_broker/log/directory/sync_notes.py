"""Which logs are being synced, noted where a killed process cannot take it along.

A sync that fails drops what it was to write: the system marks those pages clean, and the next
process reads bytes from the cache that are not on the disk, and that no later sync writes. Hence a
log's name stands in a mapped file from before a sync until that has succeeded. The note is as
lasting as the cache that it warns of: both outlive the process, and both end with a power cut. So
it costs two stores, and is never synced itself (docs/decisions/0029).
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klog_broker.log.errors import ShortWrite
from klog_broker.runtime.disk.files import Files, Mapping
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.runtime.threads.locks import make_lock
from pyspark_klog.storage.names import SYNC_NOTES

_SLOT_BYTES = 256  # a length, which counts as the note, and a directory's name
_SLOTS = 64
_SIZE_BYTES = _SLOTS * _SLOT_BYTES
# More logs than there are slots: every log is noted. No partition's directory has this name.
_ALL = "*"


class SyncNotes:
    """Of one data directory. Any thread may note; logs are known by their directories' names."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / SYNC_NOTES
        self._lock = make_lock()
        self._mapping: Mapping | None = None
        self._slots: list[str] = []
        self._found: frozenset[str] = frozenset()
        self._is_closed = False

    def open(self) -> None:
        """Read what the last process left, and begin to note. Blocks. OSError."""
        file = self._files.open(self._path, create=True)
        found = file.pread(_SIZE_BYTES, 0).ljust(_SIZE_BYTES, b"\0")
        # Written, so that there is room on the disk: a store into a hole could kill the process.
        written = file.pwrite(found, 0)
        if written != len(found):
            raise ShortWrite(written, len(found))
        self._mapping = file.map(_SIZE_BYTES)
        file.rest()
        self._slots = [_name_in(found, slot) for slot in range(_SLOTS)]
        self._found = frozenset(name for name in self._slots if name)

    def is_suspect(self, log: str) -> bool:
        """Whether the process before this one may have seen a sync of the log fail: of what was
        not synced before, the cache may hold what the disk lacks."""
        return log in self._found or _ALL in self._found

    def forget_found(self) -> None:
        """All logs of the directory are loaded, and what was suspect is on the disk."""
        with self._lock:
            for slot, name in enumerate(self._slots):
                if name in self._found:
                    self._strike_out(slot)
        self._found = frozenset()

    @contextmanager
    def noted(self, log: str) -> Iterator[None]:
        """Within it the log is synced. The note stays if that fails."""
        self._note(log)
        try:
            yield
        except OSError as error:
            if is_exhausted(error) or isinstance(error, FileNotFoundError):
                self._synced(log)  # No sync was tried, or the log has been deleted.
            raise
        self._synced(log)

    def _note(self, log: str) -> None:
        with self._lock:
            if self._is_closed:
                # A failure of this sync would leave no note.
                raise OSError(errno.EBADF, "the notes of syncs were closed", str(self._path))
            if log in self._slots or self._mapping is None:
                return
            is_full = "" not in self._slots
            slot = _SLOTS - 1 if is_full else self._slots.index("")
            name = _ALL if is_full else log
            self._slots[slot] = name
            data, start = name.encode(), slot * _SLOT_BYTES
            view = self._mapping.view
            view[start] = 0
            view[start + 1 : start + 1 + len(data)] = data
            view[start] = len(data)

    def _synced(self, log: str) -> None:
        with self._lock:
            if log in self._slots:
                self._strike_out(self._slots.index(log))

    def _strike_out(self, slot: int) -> None:
        self._slots[slot] = ""
        if self._mapping is not None:
            self._mapping.view[slot * _SLOT_BYTES] = 0

    def close(self) -> None:
        """Nothing is synced any more."""
        with self._lock:
            self._is_closed = True
            mapping, self._mapping = self._mapping, None
            if mapping is not None:
                mapping.close()


def noted_logs(data: bytes) -> list[str]:
    """The directories' names in the bytes of a ``klog-syncs``; ``*`` for all logs."""
    data = data[:_SIZE_BYTES].ljust(_SIZE_BYTES, b"\0")
    return [name for slot in range(_SLOTS) if (name := _name_in(data, slot))]


def _name_in(data: bytes, slot: int) -> str:
    start = slot * _SLOT_BYTES
    # After a power cut there may be anything, and nothing is suspect.
    return data[start + 1 : start + 1 + data[start]].decode(errors="replace")
