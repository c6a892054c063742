"""OffsetFetch: where a group has read to."""

from klog_broker.coordinator.group.offsets import CommittedOffset
from klog_broker.handlers.context import AnswerSteps, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey

TOP_LEVEL_ERROR_SINCE = 2


def handle(request: OffsetFetchRequest, context: RequestContext) -> AnswerSteps:
    """A partition without a commit has offset -1 and no error."""
    error, committed = context.broker.groups.committed(request.group_id)
    if error is not ErrorCode.NONE:
        return _error(request, error, per_partition=context.api_version < TOP_LEVEL_ERROR_SINCE)
    wanted = _wanted(request)
    if wanted is None:
        wanted = {}
        for topic, partition in sorted(committed):
            wanted.setdefault(topic, []).append(partition)
    response = OffsetFetchResponse()
    for topic, partitions in wanted.items():
        yield 1
        found = OffsetFetchResponseTopic(name=topic)
        response.topics.append(found)
        for number in partitions:
            yield 1
            committed_offset = committed.get(TopicPartition(topic, number))
            found.partitions.append(_partition(number, committed_offset))
    return response


def _wanted(request: OffsetFetchRequest) -> dict[str, list[int]] | None:
    """Partitions by topic; None asks for all that the group has committed."""
    if request.topics is None:
        return None
    return {topic.name: list(topic.partition_indexes) for topic in request.topics}


def _partition(index: int, found: CommittedOffset | None) -> OffsetFetchResponsePartition:
    if found is None:
        return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _error(
    request: OffsetFetchRequest, code: ErrorCode, *, per_partition: bool = True
) -> OffsetFetchResponse:
    """Before version 2 only partitions can carry an error."""
    wanted = _wanted(request) or {} if per_partition else {}
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p, committed_offset=-1, metadata="", error_code=code
                    )
                    for p in partitions
                ],
            )
            for topic, partitions in wanted.items()
        ],
    )


HANDLER = ApiHandler(ApiKey.OFFSET_FETCH, handle, _error, max_version=7)
