"""Read a broker's data directory: its partitions, and the offsets in its checkpoint files."""

from collections.abc import Mapping
from pathlib import Path

from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import decode_leader_epochs, decode_offset_checkpoint


def partitions_in(path: Path) -> frozenset[TopicPartition]:
    """Return the partitions of a data directory, except deleted, stray and future replicas.

    KRaft's folder __cluster_metadata-0, if there is one, counts as a partition, too.

    :raises OSError: if the directory cannot be listed
    """
    found = set()
    for entry in path.iterdir():
        try:
            partition = names.parse_partition_directory_name(entry.name)
        except StorageFormatError:
            continue
        if entry.is_dir():
            found.add(partition)
    return frozenset(found)


def read_checkpoint(path: Path, name: str) -> Mapping[TopicPartition, Offset] | None:
    """Return the offsets in the checkpoint file ``name``; None if the file does not exist.

    :raises StorageFormatError: if the file is damaged; the error's text names the file
    """
    try:
        data = (path / name).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return decode_offset_checkpoint(data)
    except StorageFormatError as error:
        raise StorageFormatError(f"{path / name}: {error}") from None


def first_epoch_start(directory: Path) -> Offset | None:
    """Return the start offset of the partition's oldest leader epoch; None if no epoch is stored.

    The broker removes epochs below the log start offset. The oldest epoch starts before the first
    local segment only if older segments are in remote storage.
    """
    try:
        data = (directory / names.LEADER_EPOCH_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return None
    epochs = decode_leader_epochs(data) if data else []
    return epochs[0].start_offset if epochs else None
