"""Gives a segment's files other names, for deletion and to put them in place, or removes them."""

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
    """Rename the segment's files to .deleted; returns the new names, to be removed later."""
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
    """Let the names of the segment's files end with ``suffix``, the log's last: once that has its
    new name the others have theirs. OSError; then some may have it."""
    segment.close_indexes()
    files = {file.path: file for file in segment.opened_files()}
    for kind in _LOG_LAST:
        old = segment.path(kind)
        if kind is not Suffix.LOG and not segment.files.exists(old):
            continue
        new = segment.directory / (segment_file_name(segment.base_offset, kind) + suffix)
        file = files.get(old)
        # Nobody may look for it by its old name while the new one is not known.
        with nullcontext() if file is None else file.held():
            segment.files.rename(old, new)
            if file is not None:
                file.path = new
    segment.suffix = suffix
    segment.transaction_index.path = segment.path(Suffix.TRANSACTION_INDEX)


def remove_files(segment: Segment) -> None:
    """Close and remove all of a segment's files, under the names that they have now. OSError."""
    segment.close()
    for kind in _WITHOUT_SNAPSHOT:
        segment.files.remove(segment.path(kind))
