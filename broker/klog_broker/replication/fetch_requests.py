"""The requests that a follower sends its leader, and what it reads in the answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication.fetch_session import Asked, Delta, Key
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
"""The first names topics by ids and has the broker's epoch; the last is 3.9.1's."""
LIST_OFFSETS_VERSIONS = (4, 9)
"""The first has leader epochs; the last is 3.9.1's."""
LATEST, EARLIEST = -1, -2
"""As timestamps of ListOffsets: where the log ends, for replicas, and where it starts."""


class FetcherSettings(NamedTuple):
    """The broker's settings for its followers, with Kafka's names."""

    fetch_max_bytes: int
    response_max_bytes: int
    min_bytes: int
    wait_max_ms: int
    backoff_ms: int
    timeout_ms: int


class WhoAsks(NamedTuple):
    """This broker."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]


def fetch_request(
    delta: Delta, asks: WhoAsks, settings: FetcherSettings, wait_ms: int
) -> FetchRequest:
    """What the session has to say, as a request."""
    topics: dict[TopicId, FetchTopic] = {}
    for (topic_id, number), asked in delta.named:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
        topic.partitions.append(_fetch_partition(number, asked, settings.fetch_max_bytes))
    forgotten: dict[TopicId, ForgottenTopic] = {}
    for topic_id, number in delta.forgotten:
        left = forgotten.get(topic_id)
        if left is None:
            left = forgotten[topic_id] = ForgottenTopic(topic_id=topic_id)
        left.partitions.append(number)
    return FetchRequest(
        replica_state=ReplicaState(
            replica_id=asks.broker_id,
            replica_epoch=asks.broker_epoch(),
        ),
        max_wait_ms=wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_max_bytes,
        session_id=delta.session_id,
        session_epoch=delta.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )


def _fetch_partition(number: int, asked: Asked, max_bytes: int) -> FetchPartition:
    position = asked.position
    return FetchPartition(
        partition=number,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.offset,
        last_fetched_epoch=position.last_epoch,
        log_start_offset=asked.log_start_offset,
        partition_max_bytes=max_bytes,
    )


def told_partitions(reply: FetchResponse) -> Iterator[tuple[Key, PartitionData]]:
    """The partitions of a reply."""
    for topic in reply.responses:
        for data in topic.partitions:
            yield (TopicId(topic.topic_id), data.partition_index), data


def fetched_part(data: PartitionData) -> FetchedPart:
    """What a reply says of a partition."""
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
    """An error that klog does not know counts as UNKNOWN_SERVER_ERROR."""
    if not code:
        return ErrorCode.NONE
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def ends_request(
    epochs: Mapping[TopicPartition, LeaderEpoch], broker_id: BrokerId, timestamp: int
) -> ListOffsetsRequest:
    """Ask the leaders in these epochs for the logs' ends, or starts."""
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


def told_offsets(reply: ListOffsetsResponse) -> Iterable[tuple[TopicPartition, int]]:
    """The offsets that were told without an error."""
    for topic in reply.topics:
        for told in topic.partitions:
            if told.error_code == ErrorCode.NONE and told.offset >= 0:
                yield TopicPartition(topic.name, told.partition_index), told.offset
