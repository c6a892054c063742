"""Removes or completes the files that a killed process left half done in a partition's directory.

A file name that ends with .swap belongs to a cleaned segment, complete and synced, that was about
to replace old segments (segment_swap.py; Kafka uses the same names). A cleaned segment replaces all
segments whose base offsets lie within its offset range.
"""

import logging
from pathlib import Path

from klog_broker.log.segment.batch_positions import iterate_batches
from klog_broker.runtime.disk.files import Files
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    Suffix,
    parse_segment_file_name,
    segment_file_name,
)

_log = logging.getLogger("klog.log")
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)
_SEGMENT_SUFFIXES = (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX, Suffix.TRANSACTION_INDEX, Suffix.LOG)


def clear_leftovers(files: Files, directory: Path) -> list[str]:
    """Remove unfinished files, and put complete cleaned segments in the place of the segments that
    they replace.

    Returns the file names that the directory has afterwards. Blocks. Raises OSError.
    """
    names = files.list_dir(directory)
    if not any(name.endswith(_LEFTOVER_SUFFIXES) for name in names):
        return names
    _clear(files, directory, names)
    return files.list_dir(directory)


def _clear(files: Files, directory: Path, names: list[str]) -> None:
    unfinished: list[int] = []
    swaps: list[int] = []
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            found = parse_segment_file_name(name.removesuffix(CLEANED_SUFFIX))
            unfinished += [found[0]] if found is not None else []
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            files.remove(directory / name)
        elif name.endswith(Suffix.LOG + SWAP_SUFFIX):
            found = parse_segment_file_name(name.removesuffix(SWAP_SUFFIX))
            swaps += [found[0]] if found is not None else []
    # Kafka may split a segment that was too large, and renames the new segments to .swap from the
    # last to the first. So a .cleaned file that is left shows that the .swap files with larger base
    # offsets are an incomplete set.
    whole = [base for base in swaps if not unfinished or base < min(unfinished)]
    _remove_other_swaps(files, directory, whole)
    for base_offset in whole:
        _put_in_place(files, directory, base_offset)


def _remove_other_swaps(files: Files, directory: Path, whole: list[int]) -> None:
    for name in files.list_dir(directory):
        if name.endswith(SWAP_SUFFIX):
            found = parse_segment_file_name(name.removesuffix(SWAP_SUFFIX))
            if found is None or found[0] not in whole:
                files.remove(directory / name)


def _put_in_place(files: Files, directory: Path, base_offset: int) -> None:
    end_offset = _log_file_end_offset(
        files, directory / _name(base_offset, Suffix.LOG, SWAP_SUFFIX)
    )
    if end_offset is None and files.exists(directory / _name(base_offset, Suffix.LOG, "")):
        for kind in _SEGMENT_SUFFIXES:
            files.remove(directory / _name(base_offset, kind, SWAP_SUFFIX))
        return
    replaced = []
    for name in files.list_dir(directory):
        found = parse_segment_file_name(name)
        if found is None or found[1] not in _SEGMENT_SUFFIXES:
            continue
        if found[0] == base_offset or base_offset < found[0] < (end_offset or 0):
            files.remove(directory / name)
            replaced += [found[0]] if found[1] is Suffix.LOG else []
    # Make the removal of the old names durable before the cleaned segment gets its final name:
    # after a crash, old and cleaned segments must not lie in the directory together.
    files.sync_dir(directory)
    for kind in _SEGMENT_SUFFIXES:
        swap = directory / _name(base_offset, kind, SWAP_SUFFIX)
        if files.exists(swap):
            files.rename(swap, directory / _name(base_offset, kind, ""))
    files.sync_dir(directory)
    _log.info(
        "log=%s cleaned_segment=%d replaced=%d segments; the replacement began before this start",
        directory,
        base_offset,
        len(replaced),
    )


def _log_file_end_offset(files: Files, path: Path) -> int | None:
    """Return the offset after the last batch of a log file, read from the batch headers.

    Returns None for an empty file, and for one whose headers do not lead to its end: such a file
    must not replace any segment.
    """
    file = files.open(path, writable=False)
    end_offset: int | None = None
    size = file.size()
    try:
        for place in iterate_batches(
            lambda position, length: file.pread(length, position), 0, size, size, path
        ):
            end_offset = place.last_offset + 1
    except InvariantViolation as error:
        _log.warning("log=%s cleaned segment is damaged: %s", path, error)
        return None
    finally:
        file.close()
    return end_offset


def _name(base_offset: int, kind: Suffix, suffix: str) -> str:
    return segment_file_name(base_offset, kind) + suffix
