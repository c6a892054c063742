"""Builds the requests that a follower sends to its leader, and parses the responses."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication.fetch_session import Delta, Key, RequestedPosition
from klog_broker.replication.follower_state import FetchedPart
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FETCH_VERSIONS = (15, 17)
"""The lowest and highest version of Fetch that a klog follower sends: version 15 is the first with
topic ids and the broker epoch, version 17 is the highest of Kafka 3.9.1."""
LIST_OFFSETS_VERSIONS = (4, 9)
"""The lowest and highest version of ListOffsets that a klog follower sends: version 4 is the first
that has leader epochs, version 9 is the highest of Kafka 3.9.1."""
LATEST, EARLIEST = -1, -2
"""Timestamps of ListOffsets that ask for the log end offset and for the log start offset. To LATEST
a leader answers a replica with the log end offset, but a consumer with the high watermark or the
last stable offset."""


class FetcherSettings(NamedTuple):
    """The settings of this broker that its fetchers use: replica.fetch..., and as `timeout_ms`
    replica.socket.timeout.ms."""

    fetch_max_bytes: int
    response_max_bytes: int
    min_bytes: int
    wait_max_ms: int
    backoff_ms: int
    timeout_ms: int


class FollowerIdentity(NamedTuple):
    """The id and the current epoch of this broker, which every Fetch of a follower carries."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]


def fetch_request(
    delta: Delta, identity: FollowerIdentity, settings: FetcherSettings, wait_ms: int
) -> FetchRequest:
    """Build the Fetch request with the session and the changed partitions of `delta`; the leader
    may delay the response for up to `wait_ms`."""
    topics: dict[TopicId, FetchTopic] = {}
    for (topic_id, number), requested in delta.named:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
        topic.partitions.append(_fetch_partition(number, requested, settings.fetch_max_bytes))
    forgotten: dict[TopicId, ForgottenTopic] = {}
    for topic_id, number in delta.forgotten:
        left = forgotten.get(topic_id)
        if left is None:
            left = forgotten[topic_id] = ForgottenTopic(topic_id=topic_id)
        left.partitions.append(number)
    return FetchRequest(
        replica_state=ReplicaState(
            replica_id=identity.broker_id,
            replica_epoch=identity.broker_epoch(),
        ),
        max_wait_ms=wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_max_bytes,
        session_id=delta.session_id,
        session_epoch=delta.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )


def _fetch_partition(number: int, requested: RequestedPosition, max_bytes: int) -> FetchPartition:
    position = requested.position
    return FetchPartition(
        partition=number,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.last_epoch,
        log_start_offset=requested.log_start_offset,
        partition_max_bytes=max_bytes,
    )


def response_partitions(response: FetchResponse) -> Iterator[tuple[Key, PartitionData]]:
    """Yield every partition of a Fetch response, by topic id and partition number."""
    for topic in response.responses:
        for data in topic.partitions:
            yield (TopicId(topic.topic_id), data.partition_index), data


def fetched_part(data: PartitionData) -> FetchedPart:
    """Convert one partition of a Fetch response; an absent diverging epoch becomes None."""
    diverging = data.diverging_epoch
    found: EpochEndOffset | None = None
    if diverging.epoch >= 0 or diverging.end_offset >= 0:
        found = EpochEndOffset(LeaderEpoch(diverging.epoch), diverging.end_offset)  # type: ignore[arg-type]
    return FetchedPart(
        error_of(data.error_code),
        data.records_view(),
        data.high_watermark,
        data.log_start_offset,
        found,
    )


def error_of(code: int) -> ErrorCode:
    """Return the ErrorCode of a number; UNKNOWN_SERVER_ERROR if klog does not know the number."""
    if not code:
        return ErrorCode.NONE
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def ends_request(
    epochs: Mapping[TopicPartition, LeaderEpoch], broker_id: BrokerId, timestamp: int
) -> ListOffsetsRequest:
    """Build the ListOffsets request for `timestamp` (LATEST or EARLIEST), with the leader epoch in
    which this broker follows each partition."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, number), epoch in epochs.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = ListOffsetsTopic(name=name)
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=number, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))


def response_offsets(response: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int]]:
    """Yield the offset of each partition of a ListOffsets response that has an offset and no
    error."""
    for topic in response.topics:
        for offsets in topic.partitions:
            if offsets.error_code == ErrorCode.NONE and offsets.offset >= 0:
                yield TopicPartition(topic.name, offsets.partition_index), offsets.offset
