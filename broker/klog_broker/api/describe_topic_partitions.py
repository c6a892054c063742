"""DescribeTopicPartitions (key 75): returns topics and their partitions by name, page by page.

Each page except the last one ends with a cursor: the partition that begins the next page (KIP-966).
"""

from collections.abc import Generator, Iterator
from heapq import merge
from itertools import islice

from klog_broker.api.services import TopicsServices
from klog_broker.cluster.known_topics import once_complete
from klog_broker.dispatch.access import on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import INTERNAL_TOPICS, MetadataImage, check_topic_name
from klog_broker.resources.operations import topic_operations
from klog_broker.resources.requested_topics import RequestedTopic, requested_topic
from klog_broker.resources.visible_partitions import SeenPartitions
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey

MAX_PARTITIONS = 2000
"""The most partitions in one page, as with Kafka's max.request.partition.size.limit."""

_PARTITIONS_A_STEP = 50
_NAMES_A_STEP = 1000
# Cost of comparing and sorting _NAMES_A_STEP names, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py).
_NAMES = 100


def handle(
    services: TopicsServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> ResponseSteps | None:
    """Return one page of topics and partitions. A request without topics selects all topics.
    BrokerError INVALID_REQUEST if the cursor is invalid."""
    return once_complete(
        services.known_topics,
        lambda: _answer(services, request, context),
        request,
        context,
        error_response,
    )


def _answer(
    services: TopicsServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> ResponseSteps:
    if not request.topics and not services.known_topics.has_been_complete:
        context.response_sink.close("the controller has not sent the cluster's topics yet")
        return None
    image = services.metadata.image
    cursor = request.cursor
    names = yield from _names(request, image)
    if cursor is not None and cursor.partition_index < 0:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
    response = DescribeTopicPartitionsResponse()
    partitions = SeenPartitions(services, context)
    partitions_left = max(min(request.response_partition_limit, MAX_PARTITIONS), 1)
    for name in names:
        yield 1
        found = requested_topic(services, context, AclOperation.DESCRIBE, name)
        is_denied = found.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if found.topic is None and not request.topics:
            # The request is for all topics, but the client may not describe this one, or the topic
            # was deleted while the response was made: leave it out.
            continue
        if partitions_left == 0:
            # The next page begins with this topic, even if the topic does not exist.
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        answer = DescribeTopicPartitionsResponseTopic(
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=topic_operations(services, context, name),
        )
        response.topics.append(answer)
        topic = found.topic
        if topic is None:
            answer.error_code = found.error if is_denied else _missing_topic_error(found)
            continue
        answer.topic_id = topic.topic_id
        is_first = cursor is not None and cursor.topic_name == name
        start = cursor.partition_index if cursor is not None and is_first else 0
        rows = islice(enumerate(topic.partitions), start, start + partitions_left)
        for count, (number, state) in enumerate(rows, 1):
            if count % _PARTITIONS_A_STEP == 0:
                yield _PARTITIONS_A_STEP
            seen = partitions.partition(name, number, state)
            answer.partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    partition_index=number,
                    leader_id=seen.leader_id,
                    leader_epoch=seen.leader_epoch,
                    replica_nodes=seen.replica_nodes,
                    isr_nodes=seen.isr_nodes,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                    offline_replicas=seen.offline_replicas,
                )
            )
        partitions_left -= len(answer.partitions)
        end = start + len(answer.partitions)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _names(
    request: DescribeTopicPartitionsRequest, image: MetadataImage
) -> Generator[int, None, Iterator[str]]:
    """Return the names of the requested topics from the cursor's topic on, sorted and each once."""
    first = "" if request.cursor is None else request.cursor.topic_name
    named = iter(dict.fromkeys(each.name for each in request.topics))
    waiting = named if request.topics else iter(image.topics)
    parts: list[list[str]] = []
    while part := list(islice(waiting, _NAMES_A_STEP)):
        parts.append(sorted(name for name in part if name >= first))
        yield _NAMES
    if request.topics and request.cursor is not None and not any(first in part for part in parts):
        text = f"the cursor is at topic {first}, which is not a requested topic"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    return iter(merge(*parts))


def _missing_topic_error(found: RequestedTopic) -> ErrorCode:
    """Return the error for a topic that is not in the metadata image."""
    try:
        check_topic_name(found.name)
    except InvalidTopicName:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return found.error


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Return a response with ``code`` for every topic, since the response has no top-level
    error."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(name=each.name, error_code=code)
            for each in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    handle,
    error_response,
    access=(on_topics(AclOperation.DESCRIBE),),
)
