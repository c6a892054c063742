"""`klog dump-log`: prints the contents of a log's files, line by line."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from klog_broker.inspection import index_rows
from klog_broker.inspection.lines import Finding, Level, Row, printable
from klog_broker.inspection.log_rows import batch_row, record_rows
from klog_broker.inspection.small_files import SMALL_FILES, small_file_rows
from klog_broker.inspection.state_json import DECODERS, Decoder, decode_offsets, decode_transactions
from klog_broker.inspection.stored_entries import BadBytes, StoredEntry, stored_entries
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.names import (
    Suffix,
    parse_partition_directory_name,
    parse_segment_file_name,
)
from pyspark_klog.storage.partition_files import ReadCounter, ReadOnlyFile


class DumpOptions(NamedTuple):
    """The options of `klog dump-log`, with the names that they have in Kafka's DumpLogSegments."""

    print_data_log: bool = False
    deep_iteration: bool = False
    offsets_decoder: bool = False
    transaction_log_decoder: bool = False
    index_sanity_check: bool = False
    verify_index_only: bool = False


class Line(NamedTuple):
    """A line that `klog dump-log` prints, and the file that the line describes."""

    path: Path
    what: Row | Finding


def files_to_dump(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield each path that is a file. In place of a folder, yield the files in it that can be
    dumped, in the order of their names.

    :raises OSError: if a path does not exist, or a folder cannot be listed
    """
    for path in paths:
        if not path.is_dir():
            path.stat()
            yield path
            continue
        for entry in sorted(path.iterdir()):
            if entry.is_file() and (parse_segment_file_name(entry.name) or _is_small(entry)):
                yield entry


def dump(paths: Iterable[Path], options: DumpOptions) -> Iterator[Line]:
    """Yield the lines of all files. A file that is removed during the dump, or whose name is not
    known, gets a note (Level.NOTE).

    :raises OSError: if a file cannot be read
    """
    for path in paths:
        try:
            yield Line(
                path, Row("file", {"size": path.stat().st_size}, printable(f"Dumping {path}"))
            )
            for what in _rows_of(path, options):
                yield Line(path, what)
        except FileNotFoundError:
            yield Line(path, Finding(Level.NOTE, path, "the file was removed before it was read"))


def _is_small(path: Path) -> bool:
    return path.name in SMALL_FILES


def _rows_of(path: Path, options: DumpOptions) -> Iterator[Row | Finding]:
    if _is_small(path):
        yield from small_file_rows(path)
        return
    found = parse_segment_file_name(path.name)
    if found is None:
        text = "the name is not a log file's: expected 20 digits and .log, .index ..."
        yield Finding(Level.NOTE, path, text)
        return
    base, suffix = found
    with ReadOnlyFile(path, ReadCounter()) as file:
        if suffix is Suffix.LOG:
            yield from _log_rows(file, base, options)
        elif suffix is Suffix.OFFSET_INDEX:
            yield from _checked(index_rows.offset_index_rows(file, base), path, options)
        elif suffix is Suffix.TIME_INDEX:
            yield from _checked(index_rows.time_index_rows(file, base), path, options)
        elif suffix is Suffix.TRANSACTION_INDEX:
            yield from index_rows.transaction_index_rows(file)
        else:
            yield from index_rows.snapshot_rows(file)


def _checked(
    rows: Iterable[Row | Finding], path: Path, options: DumpOptions
) -> Iterator[Row | Finding]:
    """Yield all lines of an index. If the options ask for a check of the indexes, yield only the
    findings and the line that says that an offset index is empty. With ``index_sanity_check``, add
    a line for an index without findings."""
    is_quiet = options.index_sanity_check or options.verify_index_only
    is_sound = True
    for what in rows:
        is_sound &= isinstance(what, Row)
        if isinstance(what, Finding) or not is_quiet or what.kind == "empty":
            yield what
    if options.index_sanity_check and is_sound:
        yield Row("passed", {}, f"{path} passed sanity check.")


def _log_rows(file: ReadOnlyFile, base: int, options: DumpOptions) -> Iterator[Row | Finding]:
    yield Row("start", {"startOffset": base}, f"Log starting offset: {base}")
    decoder = _decoder(file.path, options)
    with_data = options.print_data_log or decoder is not None
    is_deep = options.deep_iteration or with_data
    for stored in stored_entries(file, base):
        if isinstance(stored, BadBytes):
            yield _bad_bytes(file.path, stored)
            continue
        yield batch_row(stored)
        if not stored.is_valid:
            text = "the CRC does not fit the batch's bytes"
            yield Finding(Level.ERROR, file.path, text, stored.position)
        if stored.entry is None:
            yield Finding(Level.ERROR, file.path, stored.error or "", stored.position)
        elif is_deep:
            yield from _records(file.path, stored, with_data, decoder)


def _records(
    path: Path, stored: StoredEntry, with_data: bool, decoder: Decoder | None
) -> Iterator[Row | Finding]:
    try:
        yield from record_rows(stored, with_data=with_data, decoder=decoder)
    except KlogError as error:
        text = f"a record of the batch cannot be read: {error}"
        yield Finding(Level.ERROR, path, text, stored.position)


def _bad_bytes(path: Path, bad: BadBytes) -> Finding:
    if bad.is_zeros and bad.is_tail:
        text = f"{bad.size_bytes} bytes of zeros at the end: preallocated, or never written"
        return Finding(Level.RECOVERABLE, path, text, bad.position)
    if bad.is_tail:
        text = f"{bad.size_bytes} bytes at the end are not a whole batch: {bad.text}"
        return Finding(Level.RECOVERABLE, path, text, bad.position)
    text = f"{bad.size_bytes} bytes, up to the next good batch, are not a batch: {bad.text}"
    return Finding(Level.ERROR, path, text, bad.position)


def _decoder(path: Path, options: DumpOptions) -> Decoder | None:
    """Return the function that decodes the records of a log: as the options ask, or else by the
    topic of the folder that the file is in; None if keys and values are printed as they are."""
    if options.offsets_decoder:
        return decode_offsets
    if options.transaction_log_decoder:
        return decode_transactions
    try:
        partition: TopicPartition = parse_partition_directory_name(path.absolute().parent.name)
    except StorageFormatError:
        return None
    return DECODERS.get(partition.topic)
