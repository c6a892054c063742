"""The segment that the log cleaner writes, as files whose names end with .cleaned.

The log does not use the segment until it is swapped in (segment_swap.py). Start-up removes files
whose names still end with .cleaned. Methods that read or write files block: they are for helper
threads.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from klog_broker.log.errors import ShortWrite
from klog_broker.log.log_config import LogConfig
from klog_broker.log.recovery.segment_recovery import index_all
from klog_broker.log.segment.segment import Segment
from klog_broker.log.segment.segment_renaming import remove_files
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.disk.files import Files
from pyspark_klog.storage.names import CLEANED_SUFFIX
from pyspark_klog.storage.transaction_index import AbortedEntry


class CleanedSegment:
    """A new segment that begins empty; batches must be written in the order of their offsets."""

    def __init__(
        self, files: Files, directory: Path, base_offset: int, config: LogConfig, now_ms: int
    ) -> None:
        self._segment = Segment.create(
            files,
            directory,
            base_offset,
            replace(config, preallocate=False),
            now_ms,
            suffix=CLEANED_SUFFIX,
        )
        self._aborted: list[AbortedEntry] = []

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes

    def write(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Append whole batches, whose bytes come in ``pieces``. Raises OSError."""
        segment = self._segment
        for data in pieces:
            written = segment.log_file.pwrite(data, segment.size_bytes)
            if written != len(data):
                raise ShortWrite(written, len(data))
            segment.size_bytes += written

    def add_aborted(self, entries: Sequence[AbortedEntry]) -> None:
        """Add aborted transactions whose markers were written to the segment."""
        self._aborted += entries

    def finish(self, checks: RecordChecks, modified_ms: int) -> Generator[int, None, Segment]:
        """Check all written batches, make the indexes from them, and sync; returns the segment.

        ``modified_ms`` is the time of the last write to the replaced segments. Each step checks
        some MB, and yields the number of bytes that it has checked, or syncs one file, and yields
        0. Raises OSError and InvariantViolation.
        """
        segment = self._segment
        if self._aborted:
            segment.transaction_index.write(self._aborted)
            segment.transaction_index.commit()
        yield from index_all(segment, checks)
        segment.deactivate()
        segment.log_file.set_modified_ms(modified_ms)
        for file in segment.sync_files():
            file.sync()
            yield 0
        segment.transaction_index.is_new = False
        segment.release_descriptors()
        return segment

    def remove(self) -> None:
        """Remove the files of this cleaned segment, because the log will not use it. Raises
        OSError."""
        remove_files(self._segment)
