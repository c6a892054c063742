"""Samples of the records at given offsets, for estimates of bytes per offset and for timestamps: a
small fetch from each partition, all partitions at once."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import error_code
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.layout import (
    INT32,
    INT64,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    SIZE_AT,
    UP_TO_MAGIC_BYTES,
)
from pyspark_klog.records.record import TimestampType

SAMPLE_BYTES = 65_536
"""How many bytes a sample asks a broker for; a larger first batch is sent whole."""
ONE_BATCH = 1
SAMPLE_WITHIN_MS = 5_000
_NAMES_UNTIL = 12
"""The last version of Fetch that names topics; later versions use topic ids."""


class Sample(NamedTuple):
    """The size, offsets and time of the whole batches that a small fetch has returned."""

    size_bytes: int
    offsets: int
    """The number of offsets that the batches cover, gaps included."""
    timestamp_ms: int | None
    """The time of the first record in the first batch that is not empty; the batch's largest time
    under log append time, or if the record cannot be decoded. The value is None if every batch is
    empty, and for formats v0 and v1."""


def fetch_samples(
    client: BlockingClient, positions: Mapping[TopicPartition, int], size_bytes: int
) -> dict[TopicPartition, Sample]:
    """Fetch a few batches at each offset of ``positions`` and return their size, offsets and time.
    Partitions that cannot be read now, or from which no whole batch comes, are left out."""
    deadline_ms = client.deadline(SAMPLE_WITHIN_MS)
    calls: dict[TopicPartition, Call[FetchResponse]] = {}
    for partition, offset in positions.items():
        try:
            calls[partition] = _request(client, partition, offset, size_bytes, deadline_ms)
        except KlogError:
            client.forget_topic(partition.topic)
    found: dict[TopicPartition, Sample] = {}
    for partition, call in calls.items():
        try:
            data = _records(client.wait(call, deadline_ms))
        except KlogError:
            client.forget_topic(partition.topic)
            continue
        sample = parse_sample(data, positions[partition])
        if sample is not None:
            found[partition] = sample
    return found


def parse_sample(data: memoryview, position: int) -> Sample | None:
    """The size, offsets and time of the batches in ``data``, which was fetched from offset
    ``position`` on; None if ``data`` has no whole batch."""
    at, end, last = 0, len(data), -1
    while end - at >= UP_TO_MAGIC_BYTES:
        length = INT32.unpack_from(data, at + SIZE_AT)[0]
        if not 0 < length <= end - at - LOG_OVERHEAD_BYTES:
            break
        last = at
        at += LOG_OVERHEAD_BYTES + length
    if last < 0:
        return None
    if data[last + MAGIC_AT] >= MAGIC_V2:
        behind = BatchView(data, last).next_offset
    else:
        behind = INT64.unpack_from(data, last)[0] + 1
    if data[MAGIC_AT] < MAGIC_V2:
        # A compressed v1 message has only the offset of its last record: count the offsets from the
        # offset ``position``, at which the fetch began.
        return Sample(at, max(behind - position, 1), None)
    offsets = max(behind - BatchView(data).base_offset, 1)
    return Sample(at, offsets, next(_first_times(data, at), None))


def _first_times(data: memoryview, end: int) -> Iterator[int]:
    """The time of each v2 batch's first record; batches that compaction has emptied are skipped."""
    at = 0
    while at < end and data[at + MAGIC_AT] >= MAGIC_V2:
        batch = BatchView(data, at)
        if batch.record_count:
            yield _first_time(batch)
        at += batch.size_bytes


def _first_time(batch: BatchView) -> int:
    is_whole = batch.record_count == batch.last_offset_delta + 1
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return batch.max_timestamp_ms
    if is_whole and not batch.has_delete_horizon:
        return batch.base_timestamp_ms
    # After compaction the base timestamp may be that of a removed record, or the delete horizon.
    with suppress(RecordsError):
        return next(batch.records()).timestamp_ms
    return batch.max_timestamp_ms


def _request(
    client: BlockingClient,
    partition: TopicPartition,
    offset: int,
    size_bytes: int,
    deadline_ms: int,
) -> Call[FetchResponse]:
    info = client.leader_of(partition, deadline_ms)
    link = client.link_to_broker(info.leader, deadline_ms)
    topic_id = client.view.topic_id(partition.topic)
    high = _NAMES_UNTIL if topic_id == NO_TOPIC_ID else None
    # From version 3 of Fetch on brokers send the first batch whole even if it is larger than the
    # limit partition_max_bytes.
    version = link.connection.version(ApiKey.FETCH, 3, high)
    row = FetchPartition(
        partition=partition.partition,
        current_leader_epoch=info.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=size_bytes,
    )
    topic = FetchTopic(partitions=[row])
    if version > _NAMES_UNTIL:
        topic.topic_id = topic_id
    else:
        topic.topic = partition.topic
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size_bytes, topics=[topic])
    return client.send(link, request, FetchResponse, version)


def _records(response: FetchResponse) -> memoryview:
    rows = [row for topic in response.responses for row in topic.partitions]
    if error_code(response.error_code) is not ErrorCode.NONE or len(rows) != 1:
        return memoryview(b"")
    records = rows[0].records
    return memoryview(records) if isinstance(records, bytes | memoryview) else memoryview(b"")
