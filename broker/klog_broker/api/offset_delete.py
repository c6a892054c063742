"""OffsetDelete: deletes a group's committed offsets of some partitions (KIP-496)."""

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.deletions import OffsetCodes
from klog_broker.dispatch.access import on_group, on_topics
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.requested_topics import requested_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: GroupServices, request: OffsetDeleteRequest, context: RequestContext
) -> ResponseSteps:
    """Answer with one result for each partition, or with one error for the whole request."""
    errors: dict[TopicPartition, ErrorCode] = {}
    known: dict[TopicPartition, None] = {}
    for topic in request.topics:
        found = requested_topic(
            services,
            context,
            AclOperation.READ,
            topic.name,
            not_sent_yet=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        for each in topic.partitions:
            yield 1
            partition = TopicPartition(topic.name, each.partition_index)
            error = found.partition_error(each.partition_index)
            if error is ErrorCode.NONE:
                known[partition] = None
            else:
                errors[partition] = error

    def answer(error: ErrorCode, codes: OffsetCodes) -> None:
        if error is ErrorCode.NONE:
            context.response_sink.send_in_slices(_response(request, {**codes, **errors}))
        else:
            context.response_sink.send(OffsetDeleteResponse(error_code=error))

    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    services.groups.deletions.delete_offsets(request.group_id, list(known), answer)
    return None


def _response(request: OffsetDeleteRequest, codes: OffsetCodes) -> ResponseSteps:
    response = OffsetDeleteResponse()
    for topic in request.topics:
        topic_response = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(topic_response)
        for each in topic.partitions:
            yield 1
            partition = TopicPartition(topic.name, each.partition_index)
            topic_response.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                )
            )
    return response


API = BrokerApi(
    ApiKey.OFFSET_DELETE,
    handle,
    top_level_error(ApiKey.OFFSET_DELETE),
    access=(
        on_group(AclOperation.DELETE),
        on_topics(AclOperation.READ),
    ),
)
