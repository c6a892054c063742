"""A data directory: its owner, its lock, its checkpoints, and whether it is online."""

import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from klog_broker.log.directory.free_space import FreeSpace
from klog_broker.log.directory.sync_notes import SyncNotes
from klog_broker.log.errors import (
    LogDirectoryError,
    LogStorageError,
    NoRoomLeft,
    OutOfDescriptors,
    ShortWrite,
    forget_frames,
)
from klog_broker.metrics.histogram import Durations
from klog_broker.runtime.disk.files import FileLock, FileLockHeld, Files, OpenDirectory
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.descriptors import is_exhausted, why
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.ids import DirectoryId, Offset, TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import (
    MetaProperties,
    decode_meta_properties,
    decode_offset_checkpoint,
    encode_clean_shutdown_marker,
    encode_meta_properties,
    encode_offset_checkpoint,
)

_log = logging.getLogger("klog.log")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class LogDirectory:
    """One of log.dirs. Offline for good after a failure that leaves its state unknown."""

    def __init__(self, files: Files, path: Path, clock: Clock) -> None:
        self.files = files
        self.path = path
        self.error: BaseException | None = None
        self.meta: MetaProperties | None = None
        """meta.properties as it is on the disk; None before it was read, and if there is none."""
        self.sync_notes = SyncNotes(files, path)
        self.space = FreeSpace(path)
        self.on_offline: Callable[[LogDirectory], None] | None = None
        self.flushes = Durations()
        """How long flushes took, from their plans to their outcomes."""
        self.monotonic_ns = clock.monotonic_ns
        self._clock = clock
        self._refusals = RateLimit()
        self._lock: FileLock | None = None
        self._names: OpenDirectory | None = None

    @property
    def directory_id(self) -> DirectoryId | None:
        """The id in meta.properties; every online directory has one after the start."""
        return None if self.meta is None else self.meta.directory_id

    @property
    def is_offline(self) -> bool:
        return self.error is not None

    def go_offline(self, error: BaseException) -> LogStorageError:
        """From now on nothing in the directory is written or served, and nothing of it stays open.
        Returns the exception to raise."""
        if self.error is None:
            self.error = forget_frames(error)
            _log.error("log_dir=%s offline=%r", self.path, error)
            if self.on_offline is not None:
                self.on_offline(self)
            # Kafka does so, too: the directory can be unmounted, and another broker can take it.
            self.release()
        return self.storage_error()

    def refuse(self, error: OSError, refused: object) -> LogStorageError:
        """The exception to raise for an operation that failed and left nothing behind. If the disk
        is full or no descriptor is left, only this operation is refused; after any other failure
        the directory is offline. ``refused`` names the partition or file for the message.
        """
        if is_exhausted(error):
            return OutOfDescriptors(f"{self.path}: {why(error)}")
        if not isinstance(error, ShortWrite) and error.errno not in _NO_ROOM:
            return self.go_offline(error)
        # All clients try again at once: the log lines of that must not fill the disk.
        if self._refusals.allows(self._clock.monotonic_ms()):
            _log.warning(
                "log_dir=%s refused=%s no space left: %s%s",
                self.path,
                refused,
                error,
                self._refusals.take_note(),
            )
        return NoRoomLeft(
            f"no space left in the data directory {self.path} for {refused}: {error}; make room on "
            f"the disk"
        )

    def storage_error(self) -> LogStorageError:
        return LogStorageError(
            f"the data directory {self.path} is offline after: {self.error}; restart the broker "
            f"once the disk is in order"
        )

    # --- whose it is -----------------------------------------------------------------------------
    def take(self) -> None:
        """Make the directory if need be, and lock it. LogDirectoryError if it is in use."""
        try:
            self._make()
            self._lock = self.files.lock(self.path / names.LOCK)
            self._names = self.files.open_dir(self.path)
        except FileLockHeld:
            raise LogDirectoryError(
                f"the data directory {self.path} is in use by another broker; stop that one, or "
                f"give this one a directory of its own (log.dirs)"
            ) from None
        except OSError as error:
            if is_exhausted(error):
                raise
            raise LogDirectoryError(self.why_unusable(error)) from None

    def why_unusable(self, error: OSError) -> str:
        """A sentence that says what is wrong with the path, which ``error`` came from."""
        expected = "expected a directory that this user can read and write (--data or log.dirs)"
        place = self.path
        while not self._is_there(place) and place != place.parent:
            place = place.parent
        if self._is_there(place) and not self.files.is_dir(place):
            what = "is" if place == self.path else f"cannot be made: {place} is"
            return f"the data directory {self.path} {what} a file; {expected}"
        if isinstance(error, PermissionError):
            verb = "be used" if place == self.path else "be made"
            return (
                f"the data directory {self.path} cannot {verb}: this user has no right to "
                f"{error.filename or place}; {expected}"
            )
        text = error.strerror or error
        return f"the data directory {self.path} cannot be used: {text}; {expected}"

    def _is_there(self, path: Path) -> bool:
        try:
            return self.files.exists(path)
        except OSError:
            return False  # in a directory that this user may not look into

    def _make(self) -> None:
        """Make the directory durably: a power cut must not remove it with acknowledged records."""
        made = self.path
        while not self.files.exists(made.parent):
            made = made.parent
        self.files.make_dirs(self.path)
        # Also if it existed: its maker may have been killed before the name was synced.
        with suppress(PermissionError):
            self.files.sync_dir(made.parent)
        while made != self.path:
            self.files.sync_dir(made)
            made = made / self.path.relative_to(made).parts[0]

    def sync_names(self) -> None:
        """Make the names in this directory durable: of partitions, of checkpoints. Needs no new
        descriptor, so that a deletion never fails for want of one. Blocks."""
        if self._names is None:
            raise OSError(errno.EBADF, "the data directory is not in use", str(self.path))
        self._names.sync()

    def release(self) -> None:
        self.sync_notes.close()
        if self._names is not None:
            self._names.close()
            self._names = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def read_meta(self) -> None:
        """Read meta.properties, if there is such a file. LogDirectoryError if it cannot be read or
        is of another version."""
        path = self.path / names.META_PROPERTIES
        if not self.files.exists(path):
            return
        try:
            self.meta = decode_meta_properties(self.files.read_bytes(path))
        except OSError as error:
            if is_exhausted(error):
                raise
            raise LogDirectoryError(
                f"{path} cannot be read: {error.strerror or error}; expected a file that this user "
                f"can read"
            ) from None
        except StorageFormatError as error:
            raise LogDirectoryError(
                f"{path} is not of a data directory that klog can use: {error}"
            ) from None

    def write_meta(self, meta: MetaProperties) -> None:
        self._write(names.META_PROPERTIES, encode_meta_properties(meta))
        self.meta = meta

    # --- the marker of a clean stop --------------------------------------------------------------
    def take_clean_marker(self) -> bool:
        """Whether the last broker closed everything. The marker is removed durably, so that a crash
        while loading counts as a crash."""
        path = self.path / names.CLEAN_SHUTDOWN_MARKER
        if not self.files.exists(path):
            return False
        self.files.remove(path)
        self.files.sync_dir(self.path)
        return True

    def write_clean_marker(self) -> None:
        self._write(names.CLEAN_SHUTDOWN_MARKER, encode_clean_shutdown_marker())

    # --- checkpoints -----------------------------------------------------------------------------
    def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """The offsets of a checkpoint. A damaged file is logged and counts as empty: recovery then
        reads more."""
        path = self.path / name
        if not self.files.exists(path):
            return {}
        try:
            return decode_offset_checkpoint(self.files.read_bytes(path))
        except StorageFormatError as error:
            _log.warning("checkpoint=%s ignored=%s", path, error)
            return {}

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the checkpoint, durably. Blocks."""
        self._write(name, encode_offset_checkpoint(offsets))

    def replace_checkpoint(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, int],
    ) -> None:
        """As :meth:`write_checkpoint`, where the old one may be wrong now: of a log that is gone,
        or past what a log has, which is in ``bounds``.

        If the new one cannot be written (OSError) an old one that is right stays: without log
        starts, records that were deleted would be seen again. A wrong one is removed, durably,
        which needs no descriptor; without a checkpoint recovery only reads more. That makes room on
        a full disk, too, so that the new one is tried once more.
        """
        try:
            self.write_checkpoint(name, offsets)
        except OSError:
            if self._is_within(name, bounds):
                # It may be the new one already, if only the last sync has failed.
                self.sync_names()
                raise
            self.files.remove(self.path / name)
            self.sync_names()
            self.write_checkpoint(name, offsets)

    def _is_within(self, name: str, bounds: Mapping[TopicPartition, int]) -> bool:
        """Whether no offset of the checkpoint passes its bound."""
        try:
            rows = self.read_checkpoint(name)
        except OSError:
            return False
        return all(each in bounds and offset <= bounds[each] for each, offset in rows.items())

    def _write(self, name: str, data: bytes) -> None:
        self.files.write_atomically(self.path / name, data)
