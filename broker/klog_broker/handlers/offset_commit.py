"""OffsetCommit: note how far a group has read, in __consumer_offsets."""

from klog_broker.coordinator.group.coordinator import Commit, MemberName
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(request: OffsetCommitRequest, context: RequestContext) -> None:
    """Answered when the records are visible; each partition has its own result."""
    image = context.broker.metadata.image
    expire_ms = -1
    if request.retention_time_ms >= 0:
        expire_ms = context.broker.clock.now_ms() + request.retention_time_ms
    unknown: dict[TopicPartition, ErrorCode] = {}
    commits: list[Commit] = []
    for topic in request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if image.partition(*partition) is None:
                unknown[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            commits.append(
                Commit(
                    partition=partition,
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    commit_ms=each.commit_timestamp,
                    expire_ms=expire_ms,
                )
            )

    def answer(results: dict[TopicPartition, ErrorCode]) -> None:
        context.reply.send(_response(request, results | unknown))

    context.broker.groups.commit(
        request.group_id,
        MemberName(request.member_id, request.group_instance_id),
        request.generation_id_or_member_epoch,
        commits,
        answer,
    )


def _response(
    request: OffsetCommitRequest, results: dict[TopicPartition, ErrorCode]
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=results[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _error(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    partitions = (
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    )
    return _response(request, dict.fromkeys(partitions, code))


HANDLER = ApiHandler(ApiKey.OFFSET_COMMIT, handle, _error, max_version=7)
