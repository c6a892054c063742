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
    """A partition without a commit has offset -1 and no error.

    With ``require_stable`` a partition whose offset an open transaction may still change has
    UNSTABLE_OFFSET_COMMIT: the client asks again (KIP-447).
    """
    error, committed = context.broker.groups.committed(request.group_id)
    if committed is None:
        return _error(request, error, per_partition=context.api_version < TOP_LEVEL_ERROR_SINCE)
    response = OffsetFetchResponse()
    wanted = _wanted(request)
    for topic in committed.topics() if wanted is None else wanted:
        yield 1
        rows = []
        for number in committed.partitions(topic) if wanted is None else wanted[topic]:
            yield 1
            partition = TopicPartition(topic, number)
            found = committed.get(partition)
            if found is None and wanted is None:
                continue
            if request.require_stable and not committed.is_stable(partition):
                rows.append(_no_offset(number, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                rows.append(_partition(number, found))
        if rows or wanted is not None:
            response.topics.append(OffsetFetchResponseTopic(name=topic, partitions=rows))
    return response


def _wanted(request: OffsetFetchRequest) -> dict[str, list[int]] | None:
    """The partitions that are asked for, by topic; None for all that have a committed offset."""
    if request.topics is None:
        return None
    return {topic.name: list(topic.partition_indexes) for topic in request.topics}


def _partition(index: int, found: CommittedOffset | None) -> OffsetFetchResponsePartition:
    if found is None:
        return _no_offset(index, ErrorCode.NONE)
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=-1, metadata="", error_code=code
    )


def _error(
    request: OffsetFetchRequest, code: ErrorCode, *, per_partition: bool = True
) -> OffsetFetchResponse:
    """The same error for all; before version 2 there is no field for it but the partitions'."""
    wanted = _wanted(request) or {} if per_partition else {}
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[_no_offset(each, code) for each in partitions],
            )
            for topic, partitions in wanted.items()
        ],
    )


HANDLER = ApiHandler(ApiKey.OFFSET_FETCH, handle, _error, max_version=7)
