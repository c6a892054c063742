"""The lines that `klog dump-log` prints of the small files: checkpoints, partition.metadata,
klog-metadata, meta.properties, and klog-syncs (the logs whose fsync was under way or failed)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from klog_broker.inspection.lines import Finding, Level, Row, printable
from klog_broker.log.directory.sync_notes import noted_logs
from klog_broker.metadata.errors import StoreRefused
from klog_broker.metadata.local_file import FILE_NAME as KLOG_METADATA
from klog_broker.metadata.local_file import decode_state
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.text_files import (
    decode_leader_epochs,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_partition_metadata,
    encode_topic_id,
)

# The largest size of a file that is read, by the file's name. In memory, the rows of a file take
# many times its size.
_MOST_BYTES = {
    names.LEADER_EPOCH_CHECKPOINT: 1 << 20,
    names.PARTITION_METADATA: 1 << 20,
    names.META_PROPERTIES: 1 << 20,
    KLOG_METADATA: 64 << 20,
}
_MOST_BYTES_OF_OTHERS = 16 << 20


def small_file_rows(path: Path) -> Iterator[Row | Finding]:
    """Yield the rows of a file whose name is in `SMALL_FILES` (checkpoints, partition.metadata,
    klog-metadata, meta.properties, klog-syncs), and findings of its faults. OSError if the file
    cannot be read."""
    try:
        yield from SMALL_FILES[path.name](read_small(path), path)
    except (StorageFormatError, StoreRefused) as error:
        yield Finding(Level.ERROR, path, str(error))


def read_small(path: Path) -> bytes:
    """Return the contents of a file whose name is in `SMALL_FILES` (checkpoints,
    partition.metadata, klog-metadata, meta.properties, klog-syncs).

    :raises StorageFormatError: if the file is larger than the limit for its name
    :raises OSError: if the file cannot be read
    """
    size, most = path.stat().st_size, _MOST_BYTES.get(path.name, _MOST_BYTES_OF_OTHERS)
    if size > most:
        raise StorageFormatError(f"the file has {size} bytes; the limit for its name is {most}")
    return path.read_bytes()


def _leader_epochs(data: bytes, _: Path) -> Iterator[Row]:
    for epoch, start in decode_leader_epochs(data) if data else []:
        fields: dict[str, object] = {"leaderEpoch": epoch, "startOffset": start}
        yield _row("leaderEpoch", fields)


def _offsets(data: bytes, _: Path) -> Iterator[Row]:
    for (topic, partition), offset in decode_offset_checkpoint(data).items():
        fields: dict[str, object] = {"topic": topic, "partition": partition, "offset": offset}
        yield _row("checkpoint", fields)


def _partition_metadata(data: bytes, _: Path) -> Iterator[Row]:
    topic_id = encode_topic_id(decode_partition_metadata(data))
    yield _row("partitionMetadata", {"version": 0, "topicId": topic_id})


def _meta_properties(data: bytes, _: Path) -> Iterator[Row]:
    meta = decode_meta_properties(data)
    fields: dict[str, object] = {"clusterId": meta.cluster_id, "brokerId": meta.broker_id}
    if meta.directory_id is not None:
        fields["directoryId"] = encode_topic_id(meta.directory_id)
    yield _row("metaProperties", fields)


def _klog_metadata(data: bytes, path: Path) -> Iterator[Row]:
    decode_state(data, path)
    for line in data.splitlines():
        yield Row("klogMetadata", json.loads(line), printable(line.decode(errors="replace")))


def _sync_notes(data: bytes, path: Path) -> Iterator[Row | Finding]:
    for log in noted_logs(data):
        yield _row("syncNote", {"log": log})
        text = f"a sync of {printable(log)} did not end: the next start writes the log's end again"
        yield Finding(Level.RECOVERABLE, path, text)


def _row(kind: str, fields: dict[str, object]) -> Row:
    return Row(kind, fields, printable(" ".join(f"{k}: {v}" for k, v in fields.items())))


SMALL_FILES: dict[str, Callable[[bytes, Path], Iterator[Row | Finding]]] = {
    names.LEADER_EPOCH_CHECKPOINT: _leader_epochs,
    names.PARTITION_METADATA: _partition_metadata,
    names.META_PROPERTIES: _meta_properties,
    names.RECOVERY_POINT_CHECKPOINT: _offsets,
    names.LOG_START_OFFSET_CHECKPOINT: _offsets,
    names.HIGH_WATERMARK_CHECKPOINT: _offsets,
    names.CLEANER_CHECKPOINT: _offsets,
    KLOG_METADATA: _klog_metadata,
    names.SYNC_NOTES: _sync_notes,
}
"""By the file's name, the function that yields the rows which `klog dump-log` prints of a
checkpoint, metadata file or klog-syncs."""
