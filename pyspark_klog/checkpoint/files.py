"""The files of a checkpoint as the commands use them, and those of a local folder."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pyspark_klog.checkpoint.errors import CheckpointError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""The scheme of a URI; a single letter is a drive of Windows."""


class CheckpointFiles(Protocol):
    """Reads and replaces small text files below the folder of a checkpoint. A file's name is its
    path below that folder, with slashes."""

    @property
    def path(self) -> str:
        """The folder, as the user knows it."""

    def names(self, folder: str) -> list[str]:
        """The names of the files and folders in a folder; none if the folder does not exist."""

    def read(self, name: str) -> str | None:
        """The text of a file; None if the file does not exist."""

    def replace(self, name: str, text: str) -> None:
        """Write a file, with its folders. A crash leaves the old file or the new one."""

    def delete(self, name: str) -> None:
        """Delete a file."""


class LocalFiles:
    """A checkpoint in a local folder.

    Spark writes `.N.crc` next to a file `N`, and refuses to read a file that does not match it. A
    file without a `.N.crc` is accepted, so it is deleted before the file is changed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def path(self) -> str:
        return str(self._root)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(each.name for each in (self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unusable("read", self._root / folder, error) from None

    def read(self, name: str) -> str | None:
        path = self._root / name
        try:
            return path.read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UnicodeDecodeError:
            raise CheckpointError(f"{path} is no text; expected a file of Spark's") from None
        except OSError as error:
            raise _unusable("read", path, error) from None

    def replace(self, name: str, text: str) -> None:
        path = self._root / name
        temporary = path.with_name(f".{path.name}.klog.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            self._delete_checksum(path)
            temporary.replace(path)
            self._sync_folder(path.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise _unusable("write", path, error) from None

    def delete(self, name: str) -> None:
        path = self._root / name
        try:
            self._delete_checksum(path)
            path.unlink(missing_ok=True)
            self._sync_folder(path.parent)
        except OSError as error:
            raise _unusable("delete", path, error) from None

    def _delete_checksum(self, path: Path) -> None:
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_files(path: str) -> CheckpointFiles:
    """The files of the checkpoint at a local path, or at a URI that Hadoop knows.

    :raises CheckpointError: if there is no checkpoint, or Hadoop cannot be used
    """
    files = _files_at(path)
    if not files.names("offsets") and files.read("metadata") is None:
        raise CheckpointError(
            f"{path} is no checkpoint of a streaming query: expected a folder offsets and a file "
            "metadata in it; give the query's checkpointLocation (for a file system of Hadoop "
            "with its scheme, as in hdfs://host/checkpoints/orders)"
        )
    return files


def _files_at(path: str) -> CheckpointFiles:
    scheme = _SCHEME.match(path)
    if scheme is None:
        return LocalFiles(Path(path))
    if scheme[1].lower() == "file":
        local = path[scheme.end() :]
        return LocalFiles(Path("/" + local.lstrip("/")))
    try:
        from pyspark_klog.checkpoint.hadoop_files import HadoopFiles
    except ImportError as error:
        raise CheckpointError(
            f"{path} is read through a Spark session, and this Python has no pyspark: {error}; "
            'pip install "pyspark-klog[spark]", or copy the checkpoint to a local path'
        ) from None
    return HadoopFiles(path)


def _unusable(verb: str, path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"cannot {verb} {path}: {error.strerror}; check the path and its rights")
