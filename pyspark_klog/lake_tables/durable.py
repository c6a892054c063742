"""Local files whose bytes and names are on the disk once they are closed."""

import os
from io import BufferedWriter
from pathlib import Path

_BUFFER_BYTES = 1 << 20


class DurableStream(BufferedWriter):
    """A new local file; ``close`` calls fsync for the file and for its directory."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        """Create the file, and its directory if needed.

        :raises FileExistsError: if the file exists, without ``overwrite``
        """
        make_directory(path.parent)
        raw = path.open("wb" if overwrite else "xb", buffering=0)
        super().__init__(raw, _BUFFER_BYTES)
        self._directory = path.parent

    def close(self) -> None:
        """Write what is buffered, sync the file and its directory, and close the file."""
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync_directory(self._directory)


def make_directory(directory: Path) -> None:
    """Create a directory and those above it, unless they exist; new ones survive a power failure,
    because the directory above each is synced."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that the names of its new files survive a power failure."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """Wait until the disk has the bytes of a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
