"""Version 0 of OffsetCommit and OffsetFetch in a cluster: offsets in ZooKeeper, as in Kafka.

On a standalone broker the group coordinator serves version 0 like all other versions.
"""

from collections.abc import Mapping
from typing import NamedTuple

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.commits import is_too_long
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.errors import NoResponse
from klog_broker.metadata.zookeeper.consumer_offsets import ConsumerOffsets
from klog_broker.resources.requested_topics import RequestedTopic, requested_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_IN_ZOOKEEPER = 0
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

# Cost of one partition's commit, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py).
_COMMIT = 5


class OffsetsServices(NamedTuple):
    """The objects with which a broker in a cluster serves OffsetCommit and OffsetFetch: those for
    consumer groups, and the reader and writer of offsets in ZooKeeper (version 0)."""

    groups: GroupServices
    offsets: ConsumerOffsets


def is_in_zookeeper(context: RequestContext) -> bool:
    """Return whether a broker in a cluster serves this OffsetCommit or OffsetFetch from ZooKeeper:
    the request has version 0."""
    return context.api_version == _IN_ZOOKEEPER


def commit(
    both: OffsetsServices, request: OffsetCommitRequest, context: RequestContext
) -> ResponseSteps:
    """Answer when each offset is written to ZooKeeper or has failed."""
    offsets: dict[TopicPartition, Offset] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    services = both.groups
    longest = services.config["offset.metadata.max.bytes"]
    for topic in request.topics:
        found_topic = _topic(services, context, AclOperation.READ, topic.name)
        for each in topic.partitions:
            yield _COMMIT
            partition = TopicPartition(topic.name, each.partition_index)
            error = found_topic.partition_error(partition.partition)
            if error is not ErrorCode.NONE:
                codes[partition] = error
            elif is_too_long(each.committed_metadata or "", longest):
                codes[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[partition] = Offset(each.committed_offset)

    def answer(found: Mapping[TopicPartition, Exception | None]) -> ResponseSteps:
        response = OffsetCommitResponse()
        for topic in request.topics:
            topic_response = OffsetCommitResponseTopic(name=topic.name)
            response.topics.append(topic_response)
            for each in topic.partitions:
                yield 1
                partition = TopicPartition(topic.name, each.partition_index)
                code = codes[partition] if partition in codes else _code(found[partition])
                topic_response.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                )
        return response

    both.offsets.commit_offsets(
        request.group_id, offsets, lambda found: context.response_sink.send_in_slices(answer(found))
    )
    return None


def fetch(
    both: OffsetsServices, request: OffsetFetchRequest, context: RequestContext
) -> ResponseSteps:
    """Answer with the offsets; -1 and UNKNOWN_TOPIC_OR_PARTITION for a partition without an
    offset."""
    services = both.groups
    topics = request.topics or ()
    requested: list[TopicPartition] = []
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        found_topic = _topic(services, context, AclOperation.DESCRIBE, topic.name)
        for number in topic.partition_indexes:
            yield 1
            partition = TopicPartition(topic.name, number)
            error = found_topic.partition_error(partition.partition)
            if error is not ErrorCode.NONE:
                codes[partition] = error
            else:
                requested.append(partition)

    def answer(found: Mapping[TopicPartition, Offset | Exception | None]) -> ResponseSteps:
        response = OffsetFetchResponse()
        for topic in topics:
            topic_response = OffsetFetchResponseTopic(name=topic.name)
            response.topics.append(topic_response)
            for number in topic.partition_indexes:
                yield 1
                partition = TopicPartition(topic.name, number)
                offset = found.get(partition)
                code = _UNKNOWN if offset is None else _code(offset)
                topic_response.partitions.append(
                    OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=offset if isinstance(offset, int) else -1,
                        metadata="",
                        error_code=codes.get(partition, code),
                    )
                )
        return response

    both.offsets.fetch_offsets(
        request.group_id,
        requested,
        lambda found: context.response_sink.send_in_slices(answer(found)),
    )
    return None


def _topic(
    services: GroupServices, context: RequestContext, operation: AclOperation, name: str
) -> RequestedTopic:
    """Look a topic up. A consumer that gets UNKNOWN_TOPIC_OR_PARTITION concludes that the partition
    has no committed offset, and starts from the beginning or the end. So while the controller may
    not have sent the partition to this broker yet, the error is COORDINATOR_LOAD_IN_PROGRESS, on
    which the consumer retries."""
    return requested_topic(
        services,
        context,
        operation,
        name,
        not_sent_yet=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )


def _code(found: object) -> ErrorCode:
    if isinstance(found, NoResponse):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR if isinstance(found, Exception) else ErrorCode.NONE
