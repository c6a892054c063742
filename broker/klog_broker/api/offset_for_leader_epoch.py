"""OffsetForLeaderEpoch: returns where a leader epoch ends, so that clients detect truncation
(KIP-320)."""

from klog_broker.api.services import LogServices
from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.log.errors import LogStorageError
from klog_broker.resources.authorizer import is_broker
from klog_broker.resources.led_partitions import check_leader_epoch, led_partition
from klog_broker.resources.requested_topics import check_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: LogServices, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> ResponseSteps:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        yield 1
        found = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(found)
        for each in topic.partitions:
            yield 1
            found.partitions.append(_end_of(services, context, topic.topic, each))
    return response


def _end_of(
    services: LogServices, context: RequestContext, topic: str, requested: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=requested.partition)
    try:
        if not is_broker(services, context):
            check_topic(services, context, AclOperation.DESCRIBE, topic)
        leader = led_partition(services, topic, requested.partition)
        check_leader_epoch(leader, requested.current_leader_epoch)
        found = leader.log.end_offset_for_epoch(requested.leader_epoch)
    except LogStorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    except BrokerError as error:
        answer.error_code = error.code
    else:
        answer.leader_epoch = found.leader_epoch
        answer.end_offset = found.end_offset
    return answer


def error_response(
    request: OffsetForLeaderEpochRequest, code: ErrorCode
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=each.partition, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    handle,
    error_response,
    access=(
        on_topics(AclOperation.DESCRIBE),
        sometimes_on_cluster(AclOperation.CLUSTER_ACTION),
    ),
)
