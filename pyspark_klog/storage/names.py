"""The names of directories and files. The offsets in them are 20 digits, so that names sort."""

import re
from enum import StrEnum

from pyspark_klog.ids import UUID, Offset, TopicPartition
from pyspark_klog.storage.errors import StorageFormatError

OFFSET_DIGITS = 20
MAX_NAME_BYTES = 255


class Suffix(StrEnum):
    """What follows the base offset in a file's name."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


# Appended to a name: the file is of a deleted segment and goes after file.delete.delay.ms.
DELETED_SUFFIX = ".deleted"
# The log cleaner's: a result that is not ready, and one that is being put in place.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_DIRECTORY_SUFFIX = "-delete"
TEMPORARY_SUFFIX = ".tmp"

# In a partition's directory.
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
# In a data directory.
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"
# The log of a KRaft controller: no topic of anybody's.
KRAFT_METADATA_DIRECTORY = "__cluster_metadata-0"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
# Up to where the log cleaner has cleaned each compacted log.
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
# klog's own: the logs that are being synced.
SYNC_NOTES = "klog-syncs"

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)\Z", re.ASCII)
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})\Z", re.ASCII)
# Kafka's: a replica that its controller did not know, and one that was being moved here.
_SET_ASIDE_DIRECTORY = re.compile(
    r"([a-zA-Z0-9._-]+)-(\d{1,10})\.([0-9a-f]{32})-(stray|future)\Z", re.ASCII
)
_DELETED_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})\.([0-9a-f]{32})-delete\Z", re.ASCII)


def segment_file_name(base_offset: int, suffix: Suffix) -> str:
    """``00000000000000000042.log``"""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix.value}"


def parse_segment_file_name(name: str) -> tuple[Offset, Suffix] | None:
    """Base offset and kind; None for a name of another form."""
    match = _SEGMENT_FILE.match(name)
    return (Offset(int(match[1])), Suffix(match[2])) if match else None


def partition_directory_name(topic_partition: TopicPartition) -> str:
    """``topic-0``"""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory_name(name: str) -> TopicPartition:
    """The inverse; StorageFormatError for a name of another form, or of a deleted partition."""
    if _SET_ASIDE_DIRECTORY.match(name):
        raise StorageFormatError(
            f"the directory {name!r} is a copy that Kafka had set aside and is not served; delete "
            f"it, or rename it to topic-partition and adopt it if there is no such directory"
        )
    match = None if is_deleted_directory(name) else _PARTITION_DIRECTORY.match(name)
    if match is None:
        raise StorageFormatError(
            f"the directory {name!r} is no partition's: expected topic-partition, as in flights-0; "
            f"move it out of the data directory"
        )
    return TopicPartition(match[1], int(match[2]))


def deleted_directory_name(topic_partition: TopicPartition, unique: UUID) -> str:
    """``topic-0.<32 hex digits>-delete``; a long topic name is cut so that it fits 255 bytes."""
    suffix = f"-{topic_partition.partition}.{unique.hex}{DELETED_DIRECTORY_SUFFIX}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(suffix)] + suffix


def is_deleted_directory(name: str) -> bool:
    """Whether the directory is of a partition that has been deleted."""
    return _DELETED_DIRECTORY.match(name) is not None
