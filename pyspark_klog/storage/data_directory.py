"""A broker's data directory: which partitions it has, and what its checkpoints say of them."""

from collections.abc import Mapping
from pathlib import Path

from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import decode_leader_epochs, decode_offset_checkpoint


def partitions_in(path: Path) -> frozenset[TopicPartition]:
    """The partitions of a data directory; deleted and moving ones are left out.

    :raises OSError: if it cannot be listed
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
    """A checkpoint of the data directory; None if there is none.

    :raises StorageFormatError: naming the file, if it is damaged
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
    """Where the oldest leader epoch of a partition begins; None if that is not known.

    Epochs are cut with the log's start. They go back before the first segment only where older
    segments lie in a remote tier.
    """
    try:
        data = (directory / names.LEADER_EPOCH_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return None
    epochs = decode_leader_epochs(data) if data else []
    return epochs[0].start_offset if epochs else None
