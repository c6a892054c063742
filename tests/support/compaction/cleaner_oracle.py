"""Reads a cleaned log (input: `cleaner_input.py`) from its files and as consumers read it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.control import ControlType, control_type_of
from pyspark_klog.records.record import Record
from pyspark_klog.storage.data_directory import read_checkpoint
from tests.support.compaction.cleaner_input import TOPICS, offset_for
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import fetch, first_partition

CHECKPOINT = "cleaner-offset-checkpoint"
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, time in ms, key, value, headers."""


def until_cleaned(
    client: RawClient, data: Path, topics: Iterable[str] = TOPICS, deadline_s: float = 60
) -> dict[str, int]:
    """Waits until the checkpoint says of each topic that all is cleaned that may be: what lies
    before the active segment, and before that of the first undecided record. Returns how far."""
    ends = {}
    for name in topics:
        stable, _ = offset_for(client, name, -1, isolation_level=1)
        bases = [int(path.stem) for path in (data / f"{name}-0").glob("*.log")]
        ends[name] = max(base for base in bases if base <= stable)

    def is_cleaned() -> bool:
        found = read_checkpoint(data, CHECKPOINT) or {}
        assert {name: found.get(TopicPartition(name, 0)) for name in ends} == ends, found
        return True

    eventually(is_cleaned, deadline_s, what=f"{CHECKPOINT} having {ends}")
    return ends


def row_of(record: Record) -> Row:
    return (record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))


@dataclass
class FileContent:
    """The rows and the transaction markers in a partition's files, however they are batched."""

    rows: list[Row] = field(default_factory=list)
    markers: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Offset, producer id, epoch, kind."""


def batches_in(folder: Path) -> Iterator[BatchView]:
    for path in sorted(folder.glob("*.log")):
        for batch in split_batches(path.read_bytes()):
            batch.check_crc()
            yield batch


def content(folder: Path) -> FileContent:
    found = FileContent()
    for batch in batches_in(folder):
        for record in batch.records():
            if batch.is_control:
                kind = str(control_type_of(record.key))
                found.markers.append((record.offset, batch.producer_id, batch.producer_epoch, kind))
            else:
                found.rows.append(row_of(record))
    return found


def read_from(
    client: RawClient, topic: str, offset: int, isolation_level: int, max_bytes: int = 1 << 20
) -> tuple[list[Row], int]:
    """One Fetch as a consumer sees it: records from the offset on, and where it would go on."""
    answer = first_partition(
        fetch(
            client,
            topic,
            offset=offset,
            isolation_level=isolation_level,
            partition_max_bytes=max_bytes,
        )
    )
    assert answer.error_code == ErrorCode.NONE, answer
    batches = list(split_batches(bytes(answer.records or b""), allow_partial=True))
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or []]
    rows: list[Row] = []
    for batch in batches if not isolation_level else _committed(batches, aborted):
        if not batch.is_control:
            rows += [row_of(each) for each in batch.records() if each.offset >= offset]
    return rows, max([offset, *(each.next_offset for each in batches)])


def _committed(
    batches: Sequence[BatchView], aborted: Sequence[tuple[int, int]]
) -> Iterator[BatchView]:
    """Kafka's rule for consumers, a second time and simply."""
    coming, void = sorted(aborted, key=lambda each: each[1]), set[int]()
    for batch in batches:
        while coming and coming[0][1] <= batch.last_offset:
            void.add(coming.pop(0)[0])
        if batch.is_control:
            kinds = [control_type_of(each.key) for each in batch.records()]
            if kinds == [ControlType.ABORT]:
                void.discard(batch.producer_id)
        if not (batch.is_transactional and batch.producer_id in void):
            yield batch


def read_whole(client: RawClient, topic: str, offset: int, isolation_level: int) -> list[Row]:
    """Everything from the offset on."""
    rows: list[Row] = []
    while True:
        found, after = read_from(client, topic, offset, isolation_level)
        if after == offset:
            return rows
        rows += found
        offset = after


@dataclass
class Served:
    """A broker's responses about one topic."""

    rows: tuple[list[Row], list[Row]]
    """Records from the log start: read_uncommitted, read_committed."""
    offsets: dict[tuple[int, int], tuple[int, int]]
    """ListOffsets: by isolation level and time."""
    epochs: dict[int, tuple[int, int]]
    """OffsetForLeaderEpoch."""


_STRIDE = 7
"""Offsets from one to the next at which a consumer begins."""


def served(client: RawClient, topic: str, last_epoch: int) -> Served:
    """Everything that consumers can ask; they get the same from wherever they begin."""
    rows = tuple(read_whole(client, topic, 0, level) for level in (0, 1))
    _check_offsets(client, topic, rows)
    times = sorted({time for row in rows[0] for time in (row[1] - 1, row[1], row[1] + 1)})
    asked = [-1, -2, -3, 0, *times[:: len(times) // 150 + 1]]
    return Served(
        (rows[0], rows[1]),
        {(lvl, at): offset_for(client, topic, at, lvl) for lvl in (0, 1) for at in asked},
        {epoch: _end_of_epoch(client, topic, epoch) for epoch in range(last_epoch + 1)},
    )


def _check_offsets(client: RawClient, topic: str, rows: Sequence[Sequence[Row]]) -> None:
    """A small Fetch from any offset, also within a gap, returns the next records."""
    for level, whole in enumerate(rows):
        begin = 0
        end, _ = offset_for(client, topic, -1, level)
        for offset in range(0, end, _STRIDE):
            found, after = read_from(client, topic, offset, level, max_bytes=2_000)
            while begin < len(whole) and whole[begin][0] < offset:
                begin += 1
            expected = [row for row in whole[begin : begin + len(found) + 1] if row[0] < after]
            assert found == expected, (topic, level, offset)
            assert after > offset, (topic, level, offset)


def _end_of_epoch(client: RawClient, topic: str, epoch: int) -> tuple[int, int]:
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[row])]
    )
    found = client.call(request, 4).topics[0].partitions[0]
    assert found.error_code == 0, found
    return found.leader_epoch, found.end_offset
