"""OffsetFetch: returns the committed offsets of groups."""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple, TypeVar

from klog_broker.api.offsets_in_zookeeper import OffsetsServices, is_in_zookeeper
from klog_broker.api.offsets_in_zookeeper import fetch as fetch_from_zookeeper
from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.offsets import OffsetAndMetadata
from klog_broker.coordinator.group.shard_state import VisibleOffsets
from klog_broker.dispatch.access import on_groups, on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import MetadataImage
from klog_broker.resources.authorizer import is_allowed
from klog_broker.resources.requested_topics import may_use_topic
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pyspark_klog.protocol.keys import ApiKey

TOP_LEVEL_ERROR_SINCE = 2
SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

_NO_ID = UUID(int=0)

# The class of a partition in the response: of versions up to 7, or from 8 on. Both have the same
# fields.
R = TypeVar("R", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


def handle(
    services: GroupServices, request: OffsetFetchRequest, context: RequestContext
) -> ResponseSteps:
    """Return committed offsets. A partition without one has offset -1 and no error.

    With ``require_stable`` a partition whose offset an open transaction may still change has
    UNSTABLE_OFFSET_COMMIT, so that the client retries (KIP-447).
    """
    if context.api_version >= SEVERAL_GROUPS_SINCE:
        return (yield from _several_groups(services, request, context))
    error, committed = _committed(services, context, request.group_id)
    if committed is None:
        return _error(request, error, per_partition=context.api_version < TOP_LEVEL_ERROR_SINCE)
    response = OffsetFetchResponse()
    wanted = _wanted(request)
    for topic in committed.topics() if wanted is None else wanted:
        yield 1
        rows = []
        numbers = None if wanted is None else wanted[topic]
        topic_id = _id_of(services.metadata.image, topic)
        requested = _RequestedTopic(topic, topic_id, numbers)
        for row in _offsets(committed, requested, topic_id, request, context, services):
            yield 1
            rows.append(_partition(OffsetFetchResponsePartition, *row))
        if rows or wanted is not None:
            response.topics.append(OffsetFetchResponseTopic(name=topic, partitions=rows))
    return response


def handle_in_cluster(
    both: OffsetsServices, request: OffsetFetchRequest, context: RequestContext
) -> ResponseSteps:
    """Answer for a broker in a cluster, where version 0 reads offsets from ZooKeeper."""
    if is_in_zookeeper(context):
        return fetch_from_zookeeper(both, request, context)
    return handle(both.groups, request, context)


# --- requests of several groups (version 8 and later) --------------------------------------------
class _RequestedTopic(NamedTuple):
    name: str | None
    """The topic's name, or None if there is no topic with this id."""
    topic_id: UUID
    partitions: Sequence[int] | None
    """The requested partitions, or None for all partitions with a committed offset."""


def _several_groups(
    services: GroupServices, request: OffsetFetchRequest, context: RequestContext
) -> Generator[int, None, OffsetFetchResponse]:
    """Return the response with several groups. All offsets of a group are returned once even if the
    request repeats the group, since the offsets can be much longer than the group's name."""
    response = OffsetFetchResponse()
    fully_returned: set[str] = set()
    for group in request.groups:
        yield 1
        if group.topics is None and group.group_id in fully_returned:
            continue
        group_response = OffsetFetchResponseGroup(group_id=group.group_id)
        response.groups.append(group_response)
        error, committed = _committed(services, context, group.group_id)
        if committed is None:
            group_response.error_code = error
            continue
        if group.topics is None:
            fully_returned.add(group.group_id)
        for requested in _requested_topics(services, group, committed, context):
            yield 1
            topic = OffsetFetchResponseTopics(
                name=requested.name or "", topic_id=requested.topic_id
            )
            topic_id = _id_of(services.metadata.image, requested.name)
            for row in _offsets(committed, requested, topic_id, request, context, services):
                yield 1
                topic.partitions.append(_partition(OffsetFetchResponsePartitions, *row))
            if topic.partitions or requested.partitions is not None:
                group_response.topics.append(topic)
    return response


def _requested_topics(
    services: GroupServices,
    group: OffsetFetchRequestGroup,
    committed: VisibleOffsets,
    context: RequestContext,
) -> Iterator[_RequestedTopic]:
    image = services.metadata.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    if group.topics is not None:
        for topic in group.topics:
            name = _name_of(image, topic.topic_id) if by_id else topic.name
            yield _RequestedTopic(name, topic.topic_id, topic.partition_indexes)
        return
    for name in committed.topics():
        known = image.topic(name)
        if not by_id:
            yield _RequestedTopic(name, _NO_ID, None)
        elif known is not None:
            yield _RequestedTopic(name, known.topic_id, None)
        elif not services.known_topics.is_complete:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        # A deleted topic is left out, as in Kafka: it has no id to put into the response.


def _name_of(image: MetadataImage, topic_id: UUID) -> str | None:
    topic = image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _id_of(image: MetadataImage, name: str | None) -> UUID:
    topic = None if name is None else image.topic(name)
    return _NO_ID if topic is None else topic.topic_id


def _committed(
    services: GroupServices, context: RequestContext, group_id: str
) -> tuple[ErrorCode, VisibleOffsets | None]:
    """Return the group's offsets, or the error if this broker does not serve the group now, or if
    the client may not describe the group."""
    if not is_allowed(services, context, AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, None
    return services.groups.committed(group_id)


# --- the committed offsets of partitions ---------------------------------------------------------
def _offsets(
    committed: VisibleOffsets,
    requested: "_RequestedTopic",
    topic_id: UUID,
    request: OffsetFetchRequest,
    context: RequestContext,
    services: GroupServices,
) -> Iterator[tuple[int, OffsetAndMetadata | None, ErrorCode]]:
    """Yield each partition's number, its committed offset (None without one), and its error.

    A deleted topic's offset is not returned for the present topic of the same name, whose id is
    ``topic_id``. Kafka 4.3 hides the offset only from clients that give the topic's id.

    While this broker does not know all topics yet, ``topic_id`` may be the id of the deleted topic.
    Then a committed offset with another topic id, and an unknown topic id in the request, raise
    BrokerError COORDINATOR_LOAD_IN_PROGRESS.
    """
    topic, numbers = requested.name, requested.partitions
    if topic is None:
        if not services.known_topics.is_complete:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for number in numbers or ():
            yield number, None, ErrorCode.UNKNOWN_TOPIC_ID
        return
    if not may_use_topic(services, context, AclOperation.DESCRIBE, topic):
        for number in numbers or ():
            yield number, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
    for number in committed.partitions(topic) if numbers is None else numbers:
        partition = TopicPartition(topic, number)
        found = committed.get(partition)
        if found is not None and not found.matches_topic_id(topic_id):
            if not services.known_topics.is_complete:
                raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            found = None
        if found is None and numbers is None:
            continue
        if request.require_stable and not committed.is_stable(partition):
            yield number, None, ErrorCode.UNSTABLE_OFFSET_COMMIT
        else:
            yield number, found, ErrorCode.NONE


def _partition(
    row_class: type[R], number: int, found: OffsetAndMetadata | None, code: ErrorCode
) -> R:
    if found is None:
        return row_class(partition_index=number, committed_offset=-1, metadata="", error_code=code)
    return row_class(
        partition_index=number,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


# --- requests of one group (up to version 7) -----------------------------------------------------
def _wanted(request: OffsetFetchRequest) -> dict[str, list[int]] | None:
    """Return the requested partitions by topic, merged if a topic is named twice; None for all
    partitions with a committed offset."""
    if request.topics is None:
        return None
    wanted: dict[str, list[int]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, []).extend(topic.partition_indexes)
    return wanted


def _error(
    request: OffsetFetchRequest, code: ErrorCode, *, per_partition: bool = True
) -> OffsetFetchResponse:
    """Return a response with ``code`` for the whole request. Before version 2 only partitions have
    an error field, and from version 8 on each group has one."""
    wanted = _wanted(request) or {} if per_partition else {}
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    _partition(OffsetFetchResponsePartition, each, None, code)
                    for each in partitions
                ],
            )
            for topic, partitions in wanted.items()
        ],
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            for group in request.groups
        ],
    )


_ACCESS = (
    on_groups(AclOperation.DESCRIBE),
    on_topics(AclOperation.DESCRIBE),
)
API = BrokerApi(ApiKey.OFFSET_FETCH, handle, _error, access=_ACCESS)
IN_CLUSTER = BrokerApi(ApiKey.OFFSET_FETCH, handle_in_cluster, _error, access=_ACCESS)
