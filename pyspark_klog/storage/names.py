"""The names of a data directory's directories and files.

Offsets in file names have 20 digits, so that names sort in the order of their offsets.
"""

import re
from enum import StrEnum

from pyspark_klog.ids import UUID, Offset, TopicPartition
from pyspark_klog.storage.errors import StorageFormatError

OFFSET_DIGITS = 20
MAX_NAME_BYTES = 255


class Suffix(StrEnum):
    """The ending of a segment file's name, after the base offset."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


# Appended to the names of a deleted segment's files; the broker removes the files after
# file.delete.delay.ms.
DELETED_SUFFIX = ".deleted"
# The log cleaner writes a new segment under `.cleaned`, and renames it to `.swap` once the segment
# is complete and about to replace the old segments.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_DIRECTORY_SUFFIX = "-delete"
TEMPORARY_SUFFIX = ".tmp"

# Names of files in a partition's directory.
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
# Names of files and directories in a data directory (log.dirs).
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"
# The metadata log of a KRaft controller or broker. The name looks like a partition's directory, but
# __cluster_metadata is no topic that clients can use.
KRAFT_METADATA_DIRECTORY = "__cluster_metadata-0"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
# The file that holds, for each compacted log, the offset up to which the log cleaner has cleaned
# it.
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
# A file of klog's own, which Kafka does not have: the names of the logs for which an fsync is under
# way, or has failed.
SYNC_NOTES = "klog-syncs"

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)\Z", re.ASCII)
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})\Z", re.ASCII)
# Kafka adds `-stray` to the directory name of a replica that the controller does not know, and
# `-future` to that of a replica that is being moved into this data directory.
_SET_ASIDE_DIRECTORY = re.compile(
    r"([a-zA-Z0-9._-]+)-(\d{1,10})\.([0-9a-f]{32})-(stray|future)\Z", re.ASCII
)
_DELETED_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})\.([0-9a-f]{32})-delete\Z", re.ASCII)


def segment_file_name(base_offset: int, suffix: Suffix) -> str:
    """Return the name of a segment's file, for example ``00000000000000000042.log``."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix.value}"


def parse_segment_file_name(name: str) -> tuple[Offset, Suffix] | None:
    """Return the base offset and suffix in a segment file's name; None for any other name."""
    match = _SEGMENT_FILE.match(name)
    return (Offset(int(match[1])), Suffix(match[2])) if match else None


def partition_directory_name(topic_partition: TopicPartition) -> str:
    """Return the name of a partition's directory, for example ``topic-0``."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory_name(name: str) -> TopicPartition:
    """Return the partition that a directory's name stands for.

    :raises StorageFormatError: if the name is not that of a partition's directory, or the partition
        is deleted, stray or being moved
    """
    if _SET_ASIDE_DIRECTORY.match(name):
        raise StorageFormatError(
            f"the directory {name!r} is a stray or future replica of Kafka, which klog ignores; "
            f"delete it, or, if the partition has no other directory, rename it to topic-partition "
            f"and start a standalone broker once with --adopt"
        )
    match = None if is_deleted_directory(name) else _PARTITION_DIRECTORY.match(name)
    if match is None:
        raise StorageFormatError(
            f"the directory {name!r} does not belong to a partition: expected a name "
            f"topic-partition, as in flights-0; move the directory out of the data directory"
        )
    return TopicPartition(match[1], int(match[2]))


def deleted_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """Return ``topic-0.<32 hex digits>-delete``, the directory name of a deleted partition.

    A long topic name is cut, so that the directory's name has at most 255 bytes.
    """
    suffix = f"-{topic_partition.partition}.{unique.hex}{DELETED_DIRECTORY_SUFFIX}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(suffix)] + suffix


def is_deleted_directory(name: str) -> bool:
    """Return whether the name is that of a deleted partition's directory."""
    return _DELETED_DIRECTORY.match(name) is not None
