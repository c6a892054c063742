"""Renames or removes the files of a segment, for deletion and for compaction."""

from contextlib import nullcontext
from pathlib import Path

from klog_broker.log.segment.segment import Segment
from pyspark_klog.storage.names import DELETED_SUFFIX, Suffix, segment_file_name

_WITHOUT_SNAPSHOT = (
    Suffix.LOG,
    Suffix.OFFSET_INDEX,
    Suffix.TIME_INDEX,
    Suffix.TRANSACTION_INDEX,
)
_LOG_LAST = (*_WITHOUT_SNAPSHOT[1:], Suffix.LOG)


def mark_deleted(segment: Segment, *, keep_snapshot: bool = False) -> list[Path]:
    """Close the segment and append .deleted to the names of its files. Returns the new paths, which
    the caller must remove. With ``keep_snapshot`` the producer snapshot at the segment's base
    offset keeps its name."""
    files = {file.path: file for file in segment.opened_files()}
    segment.close()
    renamed = []
    kinds = _WITHOUT_SNAPSHOT if keep_snapshot else (*_WITHOUT_SNAPSHOT, Suffix.PRODUCER_SNAPSHOT)
    for suffix in kinds:
        path = segment.path(suffix)
        if segment.files.exists(path):
            new = path.with_name(path.name + DELETED_SUFFIX)
            segment.files.rename(path, new)
            renamed.append(new)
            if path in files:
                files[path].path = new
    return renamed


def rename_files(segment: Segment, suffix: str) -> None:
    """Rename the segment's files, so that the names end with ``suffix``. The .log file is renamed
    last: once it has the new name, all files have. After an OSError some files may be renamed."""
    segment.close_indexes()
    files = {file.path: file for file in segment.opened_files()}
    for kind in _LOG_LAST:
        old = segment.path(kind)
        if kind is not Suffix.LOG and not segment.files.exists(old):
            continue
        new = segment.directory / (segment_file_name(segment.base_offset, kind) + suffix)
        file = files.get(old)
        # Hold the descriptor, because opening the file again between the rename and the update of
        # ``file.path`` would fail under the old name.
        with nullcontext() if file is None else file.held():
            segment.files.rename(old, new)
            if file is not None:
                file.path = new
    segment.suffix = suffix
    segment.transaction_index.path = segment.path(Suffix.TRANSACTION_INDEX)


def remove_files(segment: Segment) -> None:
    """Close the segment and remove its files, under their current names. Raises OSError."""
    segment.close()
    for kind in _WITHOUT_SNAPSHOT:
        segment.files.remove(segment.path(kind))
