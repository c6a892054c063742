"""LogDirectory: the lock, meta.properties, checkpoints and online state of one data directory."""

import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from klog_broker.log.directory.free_space import FreeSpace
from klog_broker.log.directory.sync_notes import SyncNotes
from klog_broker.log.errors import (
    DiskFull,
    LogDirectoryError,
    LogStorageError,
    OutOfDescriptors,
    ShortWrite,
    remove_tracebacks,
)
from klog_broker.metrics.histogram import Durations
from klog_broker.runtime.disk.files import FileLock, FileLockHeld, Files, OpenDirectory
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.descriptors import describe_exhaustion, is_exhausted
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
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


class LogDirectory:
    """One directory of the log.dirs setting.

    After a failure that leaves the state of the disk unknown, the directory is offline until the
    broker restarts.
    """

    def __init__(self, files: Files, path: Path, clock: Clock) -> None:
        self.files = files
        self.path = path
        self.error: BaseException | None = None
        self.meta: MetaProperties | None = None
        """The contents of meta.properties on the disk; None until read, or without such a file."""
        self.sync_notes = SyncNotes(files, path)
        self.space = FreeSpace(path)
        self.on_offline: Callable[[LogDirectory], None] | None = None
        self.flushes = Durations()
        """The durations of the successful flushes of logs in this directory. A flush lasts from the
        choice of the files to sync until the event loop learns that all of them are synced."""
        self.monotonic_ns = clock.monotonic_ns
        self._clock = clock
        self._refusals = RateLimit()
        self._damage = RateLimit()
        self._lock: FileLock | None = None
        self._names: OpenDirectory | None = None

    @property
    def directory_id(self) -> DirectoryId | None:
        """The directory.id of meta.properties; never None in an online directory after start-up."""
        return None if self.meta is None else self.meta.directory_id

    @property
    def is_offline(self) -> bool:
        return self.error is not None

    def go_offline(self, error: BaseException) -> LogStorageError:
        """Take the directory offline: logs in the directory are no longer written or read, and the
        lock is released. Returns the exception to raise."""
        if self.error is None:
            self.error = remove_tracebacks(error)
            _log.error("log_dir=%s offline=%r", self.path, error)
            if self.on_offline is not None:
                self.on_offline(self)
            # Kafka also releases the lock, so that the directory can be unmounted or given to
            # another broker.
            self.release_lock()
        return self.storage_error()

    def error_for(self, error: OSError, refused: object) -> LogStorageError:
        """Return the exception to raise for an operation that failed without any effect.

        If the disk is full, or if no descriptor is left, only this operation fails. Any other error
        takes the directory offline. ``refused`` is the partition or file of the operation, for the
        message.
        """
        if is_exhausted(error):
            return OutOfDescriptors(f"{self.path}: {describe_exhaustion(error)}")
        if not isinstance(error, ShortWrite) and error.errno not in _DISK_FULL_ERRORS:
            return self.go_offline(error)
        # Limit the rate of this line: all clients retry at once, and a line for each retry would
        # fill the disk further.
        if self._refusals.allows(self._clock.monotonic_ms()):
            _log.warning(
                "log_dir=%s no space left to write partition or file %s: %s%s",
                self.path,
                refused,
                error,
                self._refusals.pop_suppressed_note(),
            )
        return DiskFull(
            f"no space left in the data directory {self.path} for {refused}: {error}; make room on "
            f"the disk"
        )

    def log_damage(self, partition: TopicPartition, request: str, error: object) -> None:
        """Log that a request, described with its offset or time, has met damaged records. Limits
        the rate of the lines, because clients retry."""
        if self._damage.allows(self._clock.monotonic_ms()):
            _log.error(
                "topic=%s partition=%d damaged records, the client gets CORRUPT_MESSAGE: %s: %s%s",
                partition.topic,
                partition.partition,
                request,
                error,
                self._damage.pop_suppressed_note(),
            )

    def storage_error(self) -> LogStorageError:
        """Return the exception for requests to a log in this offline directory."""
        return LogStorageError(
            f"the data directory {self.path} is offline after: {self.error}; restart the broker "
            f"once the disk is in order"
        )

    # --- the directory's lock, and meta.properties, which names the owning broker ----------------
    def lock_directory(self) -> None:
        """Create the directory if it does not exist, and lock it.

        Raises LogDirectoryError if another broker uses the directory, or if the path cannot be
        used; OSError if no file descriptor is left.
        """
        try:
            self._make()
            self._lock = self.files.lock(self.path / names.LOCK)
            self._names = self.files.open_dir(self.path)
        except FileLockHeld:
            raise LogDirectoryError(
                f"the data directory {self.path} is in use by another broker, or log.dirs names "
                f"it twice by a symbolic link; stop the other broker, or give this one a directory "
                f"of its own (log.dirs)"
            ) from None
        except OSError as error:
            if is_exhausted(error):
                raise
            raise LogDirectoryError(self.unusable_reason(error)) from None

    def unusable_reason(self, error: OSError) -> str:
        """Return a sentence that explains why the path cannot be used, after ``error``."""
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
            return False  # The path is in a directory that this user may not search.

    def _make(self) -> None:
        """Create the directory and make its name durable, because a power cut could remove a
        directory without a durable name, together with acknowledged records."""
        made = self.path
        while not self.files.exists(made.parent):
            made = made.parent
        self.files.make_dirs(self.path)
        # Sync even if the directory existed: the process that created the directory may have been
        # killed before it could sync the name.
        with suppress(PermissionError):
            self.files.sync_dir(made.parent)
        while made != self.path:
            self.files.sync_dir(made)
            made = made / self.path.relative_to(made).parts[0]

    def sync_names(self) -> None:
        """Make the names of partition folders and checkpoints in this directory durable. Opens no
        file descriptor, so that a log can be deleted even if no descriptor is left. Blocks."""
        if self._names is None:
            raise OSError(errno.EBADF, "the data directory is closed", str(self.path))
        self._names.sync()

    def release_lock(self) -> None:
        """Close klog-syncs (the file that names the logs whose fsync is under way or failed) and
        the directory's descriptor, and release the lock."""
        self.sync_notes.close()
        if self._names is not None:
            self._names.close()
            self._names = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def read_meta(self) -> None:
        """Read meta.properties into ``meta`` if the file exists. Raises LogDirectoryError if the
        file cannot be read, has an unknown format version, or lacks a property; OSError if no file
        descriptor is free."""
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
                f"klog cannot use the data directory of {path}: {error}"
            ) from None

    def write_meta(self, meta: MetaProperties) -> None:
        """Replace meta.properties durably. Blocks."""
        self._write(names.META_PROPERTIES, encode_meta_properties(meta))
        self.meta = meta

    # --- the marker of a clean shutdown ----------------------------------------------------------
    def remove_clean_marker(self) -> bool:
        """Remove the clean shutdown marker durably, and return whether the marker existed. After
        the removal, a crash during loading counts as an unclean shutdown."""
        path = self.path / names.CLEAN_SHUTDOWN_MARKER
        if not self.files.exists(path):
            return False
        self.files.remove(path)
        self.files.sync_dir(self.path)
        return True

    def write_clean_marker(self) -> None:
        """Write the clean shutdown marker durably, after all logs of the directory were closed."""
        self._write(names.CLEAN_SHUTDOWN_MARKER, encode_clean_shutdown_marker())

    # --- checkpoints -----------------------------------------------------------------------------
    def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """Return the offsets of a checkpoint file, empty if the file does not exist.

        A damaged file is logged and treated as empty. Without recovery points, recovery reads more
        of the logs; without log start offsets, deleted records can reappear.
        """
        path = self.path / name
        if not self.files.exists(path):
            return {}
        try:
            return decode_offset_checkpoint(self.files.read_bytes(path))
        except StorageFormatError as error:
            _log.warning("ignoring damaged checkpoint %s: %s", path, error)
            return {}

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the checkpoint file durably. Blocks."""
        self._write(name, encode_offset_checkpoint(offsets))

    def replace_checkpoint(
        self,
        name: str,
        offsets: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, int],
    ) -> None:
        """Replace a checkpoint whose old file may be wrong. The old file is wrong if it names a log
        that is not in ``bounds``, or has an offset above the log's bound. Blocks.

        If the new file cannot be written, it depends on the old file what happens:

        - A correct old file stays, and OSError is raised.
        - A wrong old file is removed, the removal is made durable, and the new file is written a
          second time: the removal may have freed the space that the first attempt lacked. If the
          second attempt fails, OSError is raised and no file is left. No file does less harm than
          a wrong file, because recovery then reads more of the logs.
        """
        try:
            self.write_checkpoint(name, offsets)
        except OSError:
            if self._is_within(name, bounds):
                # The file may already be the new one, if only the sync of the directory failed.
                self.sync_names()
                raise
            self.files.remove(self.path / name)
            self.sync_names()
            self.write_checkpoint(name, offsets)

    def _is_within(self, name: str, bounds: Mapping[TopicPartition, int]) -> bool:
        """Whether each log of the checkpoint is in ``bounds`` and has an offset within its bound.
        False if the file cannot be read; a damaged file counts as empty."""
        try:
            rows = self.read_checkpoint(name)
        except OSError:
            return False
        return all(each in bounds and offset <= bounds[each] for each, offset in rows.items())

    def _write(self, name: str, data: bytes) -> None:
        self.files.write_atomically(self.path / name, data)
