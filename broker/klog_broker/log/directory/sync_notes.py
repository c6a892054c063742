"""klog-syncs: names the logs that are being synced, in a mapped file that outlives its process.

When fsync fails, Linux marks the dirty pages clean. The next process then reads bytes from the page
cache that are not on the disk and that no later fsync writes. Hence a log's name is in this file
from before a flush of the log until the flush has succeeded, and the recovery of a log that is
named here writes the log's last bytes again and syncs them. The file itself is never synced: like
the page cache, its mapped pages outlive the process and are lost in a power cut. So to add a name
costs only a few stores into memory (docs/decisions/0029).
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

_SLOT_BYTES = 256  # A byte with the name's length (0: a free slot), then a log folder's name.
_SLOTS = 64
_SIZE_BYTES = _SLOTS * _SLOT_BYTES
# When each slot of the file has a log's name, this name is stored in the last slot, and stands for
# every log. No log's folder has this name.
_ALL = "*"


class SyncNotes:
    """The file klog-syncs of one data directory: the names of the log folders whose files are being
    synced, or whose sync has failed. Threads may call `note_sync` concurrently."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / SYNC_NOTES
        self._lock = make_lock()
        self._mapping: Mapping | None = None
        self._slots: list[str] = []
        self._found: frozenset[str] = frozenset()
        self._is_closed = False

    def open(self) -> None:
        """Map the file, and read the names of logs that the previous broker process left in it.
        Blocks. Raises OSError."""
        file = self._files.open(self._path, create=True)
        found = file.pread(_SIZE_BYTES, 0).ljust(_SIZE_BYTES, b"\0")
        # Write all bytes, so that the file has no holes. On a full disk, a store into a hole of a
        # mapped file would kill the process.
        written = file.pwrite(found, 0)
        if written != len(found):
            raise ShortWrite(written, len(found))
        self._mapping = file.map(_SIZE_BYTES)
        file.release_descriptor()
        self._slots = [_name_in(found, slot) for slot in range(_SLOTS)]
        self._found = frozenset(name for name in self._slots if name)

    def is_suspect(self, log: str) -> bool:
        """Whether a sync of the log may have failed in the previous broker process. The page cache
        may then hold bytes past the recovery point that are not on the disk."""
        return log in self._found or _ALL in self._found

    def remove_old_notes(self) -> None:
        """Remove from the file klog-syncs the log names that the previous broker process left.

        Call this once all logs of the directory are loaded: by then recovery has rewritten and
        synced the last bytes of these logs.
        """
        with self._lock:
            for slot, name in enumerate(self._slots):
                if name in self._found:
                    self._free_slot(slot)
        self._found = frozenset()

    @contextmanager
    def note_sync(self, log: str) -> Iterator[None]:
        """Context manager around a sync of the log: the log's name is in the file from before the
        sync until the sync has succeeded, and stays there if the sync fails."""
        self._note(log)
        try:
            yield
        except OSError as error:
            if is_exhausted(error) or isinstance(error, FileNotFoundError):
                # No sync was tried, because no descriptor was free, or the log was deleted.
                self._synced(log)
            raise
        self._synced(log)

    def _note(self, log: str) -> None:
        with self._lock:
            if self._is_closed:
                # The file is closed, so a failed sync of this log would leave no trace in it.
                raise OSError(errno.EBADF, "the list of unsynced logs is closed", str(self._path))
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
                self._free_slot(self._slots.index(log))

    def _free_slot(self, slot: int) -> None:
        self._slots[slot] = ""
        if self._mapping is not None:
            self._mapping.view[slot * _SLOT_BYTES] = 0

    def close(self) -> None:
        """Close the mapped file. Later syncs within :meth:`note_sync` raise OSError."""
        with self._lock:
            self._is_closed = True
            mapping, self._mapping = self._mapping, None
            if mapping is not None:
                mapping.close()


def noted_logs(data: bytes) -> list[str]:
    """Return the names of log folders in the bytes of a klog-syncs file; ``*`` stands for all
    logs."""
    data = data[:_SIZE_BYTES].ljust(_SIZE_BYTES, b"\0")
    return [name for slot in range(_SLOTS) if (name := _name_in(data, slot))]


def _name_in(data: bytes, slot: int) -> str:
    start = slot * _SLOT_BYTES
    # After a power cut the file may hold any bytes, so decode without errors. A wrong name is
    # harmless: at most, recovery writes and syncs the bytes of a log once more without need.
    return data[start + 1 : start + 1 + data[start]].decode(errors="replace")
