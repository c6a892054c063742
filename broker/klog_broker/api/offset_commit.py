"""OffsetCommit: stores a group's committed offsets in __consumer_offsets."""

from collections.abc import Sequence

from klog_broker.api.cached_offset_commit import cache_request
from klog_broker.api.offset_commit_versions import TOPIC_IDS_SINCE, missing_group_error
from klog_broker.api.offsets_in_zookeeper import OffsetsServices, is_in_zookeeper
from klog_broker.api.offsets_in_zookeeper import commit as commit_to_zookeeper
from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.coordinator import Commit, CommitRequest, MemberName
from klog_broker.dispatch.access import on_group, on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.cached_requests import CachedRequest
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.requested_topics import requested_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.layout import INT64_MAX

COMMITS_AT_ONCE = 200
"""The most partitions of one request whose commits are appended as one batch. The next ones follow
in a later event-loop turn."""

# Cost of one partition's commit, which is created, encoded, appended to __consumer_offsets, and
# stored in the group's offsets in memory, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py).
_COMMIT = 5


def handle(
    services: GroupServices, request: OffsetCommitRequest, context: RequestContext
) -> ResponseSteps:
    """Answer when the records of all accepted commits are below the high watermark of the group's
    partition of __consumer_offsets, or have failed. Each partition in the request has its own
    result."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    expire_ms = -1
    if request.retention_time_ms >= 0:
        expire_ms = min(services.clock.now_ms() + request.retention_time_ms, INT64_MAX)
    name = MemberName(request.member_id, request.group_instance_id)
    generation_id = request.generation_id_or_member_epoch
    missing_group = missing_group_error(context.api_version)
    results: dict[TopicPartition, ErrorCode] = {}
    commits: list[Commit] = []
    waiting = 1

    def commit(commits: list[Commit]) -> None:
        """Commit the offsets of up to COMMITS_AT_ONCE partitions as one batch. For each batch the
        member is checked again, because it may have left the group since the batch before."""

        def answer(codes: Sequence[ErrorCode]) -> None:
            nonlocal waiting
            results.update(zip((each.partition for each in commits), codes, strict=True))
            waiting -= 1
            if waiting == 0:
                context.response_sink.send_in_slices(_response(request, results))

        services.groups.commit(
            CommitRequest(request.group_id, name, generation_id, commits, answer, missing_group)
        )

    for topic in request.topics:
        if by_id:
            yield 1
        found = requested_topic(
            services,
            context,
            AclOperation.READ,
            topic.name,
            topic.topic_id if by_id else None,
            not_sent_yet=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        topic.name = found.name
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            yield 1
            error = found.partition_error(each.partition_index)
            if found.topic is None or error is not ErrorCode.NONE:
                results[partition] = error
                continue
            commits.append(
                Commit(
                    partition=partition,
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.committed_metadata or "",
                    commit_ms=each.commit_timestamp,
                    expire_ms=expire_ms,
                    topic_id=found.topic.topic_id,
                )
            )
            if len(commits) == COMMITS_AT_ONCE:
                waiting += 1
                commit(commits)
                commits = []
                yield COMMITS_AT_ONCE * _COMMIT
    commit(commits)
    return None


def handle_in_cluster(
    both: OffsetsServices, request: OffsetCommitRequest, context: RequestContext
) -> ResponseSteps:
    """Answer for a broker in a cluster, where version 0 commits to ZooKeeper."""
    if is_in_zookeeper(context):
        return commit_to_zookeeper(both, request, context)
    return handle(both.groups, request, context)


def cache_request_in_cluster(
    both: OffsetsServices, frame: bytes, request: OffsetCommitRequest, context: RequestContext
) -> CachedRequest | None:
    """Return an object that serves the connection's next OffsetCommits without decoding them, if
    they repeat this request except for the correlation id, the offsets and the leader epochs.
    Return None for version 0, whose offsets are in ZooKeeper, for version 1, and for rare requests
    (cached_offset_commit.py lists them)."""
    return cache_request(both.groups, frame, request, context)


def _response(
    request: OffsetCommitRequest, results: dict[TopicPartition, ErrorCode]
) -> ResponseSteps:
    response = OffsetCommitResponse()
    for topic in request.topics:
        topic_response = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(topic_response)
        for each in topic.partitions:
            yield 1
            topic_response.partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=results[TopicPartition(topic.name, each.partition_index)],
                )
            )
    return response


def _error(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_ACCESS = (
    on_group(AclOperation.READ),
    on_topics(AclOperation.READ),
)
API = BrokerApi(ApiKey.OFFSET_COMMIT, handle, _error, cache_request=cache_request, access=_ACCESS)
IN_CLUSTER = BrokerApi(
    ApiKey.OFFSET_COMMIT,
    handle_in_cluster,
    _error,
    cache_request=cache_request_in_cluster,
    access=_ACCESS,
)
