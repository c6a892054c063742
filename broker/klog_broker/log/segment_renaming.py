"""Files of segments that are to be deleted."""

from pathlib import Path

from klog_broker.log.segment import Segment
from pyspark_klog.storage.names import DELETED_SUFFIX, Suffix

_SUFFIXES = (
    Suffix.LOG,
    Suffix.OFFSET_INDEX,
    Suffix.TIME_INDEX,
    Suffix.TRANSACTION_INDEX,
    Suffix.PRODUCER_SNAPSHOT,
)


def mark_deleted(segment: Segment) -> list[Path]:
    """Rename the segment's files to .deleted; returns the new names, to be removed later."""
    files = {file.path: file for file in segment.opened_files()}
    segment.close()
    renamed = []
    for suffix in _SUFFIXES:
        path = segment.path(suffix)
        if segment.files.exists(path):
            new = path.with_name(path.name + DELETED_SUFFIX)
            segment.files.rename(path, new)
            renamed.append(new)
            if path in files:
                files[path].path = new
    return renamed
