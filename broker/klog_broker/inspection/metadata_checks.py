"""Compares klog-metadata, the file with the topics of a standalone broker and the data directory of
each log, with the data directories and partition folders on the disk."""

from collections.abc import Collection, Mapping
from pathlib import Path

from klog_broker.inspection.report import Report
from klog_broker.inspection.small_files import read_small
from klog_broker.metadata.errors import StoreRefused
from klog_broker.metadata.local_file import FILE_NAME, StoredState, decode_state
from pyspark_klog.ids import DirectoryId, TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import decode_meta_properties, encode_topic_id


def check_known_data(
    directory: Path, partitions: Collection[TopicPartition], report: Report
) -> None:
    """Report the logs that klog-metadata (the file that names the data directory of each log)
    assigns to this data directory but that are not in ``partitions``, the partitions with a folder
    in this directory. Reports, too, that this directory has no directory.id, and which of the
    broker's other data directories in klog-metadata are not at their recorded paths. OSError if
    klog-metadata cannot be read."""
    file = directory / FILE_NAME
    try:
        state = decode_state(read_small(file), file)
    except (FileNotFoundError, StorageFormatError, StoreRefused):
        return  # no finding here: `check_all` of directory_checks.py reports a damaged file
    directories = state.assignments.directories
    own = _directory_id(directory) or _id_by_path(directories, directory)
    if _directory_id(directory) is None and directories:
        report.error(
            file,
            "the directory has no meta.properties with a directory.id, "
            "by which a broker finds its logs",
        )
    for topic_partition in _logs_in(state, own):
        if topic_partition not in partitions:
            report.error(
                file,
                f"the file assigns {topic_partition} to this directory, but there is no folder",
            )
    for key, path in directories.items():
        if key != own and _directory_id(Path(path)) != key:
            text = f"a broker also needs the data directory {path}, but directory.id"
            report.note(file, f"{text} {encode_topic_id(key)} is not at this path now")


def _directory_id(directory: Path) -> DirectoryId | None:
    try:
        return decode_meta_properties(read_small(directory / names.META_PROPERTIES)).directory_id
    except (OSError, StorageFormatError):
        return None


def _id_by_path(directories: Mapping[DirectoryId, str], directory: Path) -> DirectoryId | None:
    wanted = str(directory.absolute())
    return next((key for key, path in directories.items() if path == wanted), None)


def _logs_in(state: StoredState, directory_id: DirectoryId | None) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in state.image.topics.values()
        for number, each in state.assignments.of_topic(topic.topic_id).items()
        if each == directory_id
    ]
