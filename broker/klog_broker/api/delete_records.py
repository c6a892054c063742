"""DeleteRecords (key 21): raises the log start offsets of partitions.

Retention deletes the segments below the new log start offset in its next round. The new log start
offset is in memory when the response is sent, and on disk after the next checkpoint
(log.flush.start.offset.checkpoint.interval.ms), as in Kafka.

The response waits until the logs of all live replicas start at the new offset or later, so that the
records stay deleted whichever replica becomes leader. A partition that still waits at the request's
timeout gets REQUEST_TIMED_OUT, although its leader has deleted the records.
"""

from typing import NamedTuple

from klog_broker.api.services import LogServices
from klog_broker.dispatch.access import on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.log.errors import LogStorageError, OffsetOutOfRange
from klog_broker.metadata.image import INTERNAL_TOPICS
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import ended_code, led_partition, why_not_led
from klog_broker.resources.requested_topics import check_topic
from klog_broker.runtime.event_loop.purgatory import DelayedOperation
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import Offset
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pyspark_klog.protocol.keys import ApiKey

_NO_LOW_WATERMARK = -1

# Cost of raising one log start offset, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py): leader epochs that end before the new start are removed from the
# log's leader epoch cache, and fetches that wait for this partition are checked again.
_RAISED = 4


def handle(
    services: LogServices, request: DeleteRecordsRequest, context: RequestContext
) -> ResponseSteps:
    """Delete the records of each partition independently of the others. If the request names a
    partition twice, the last offset counts, as in Kafka."""
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        yield 1 + len(topic.partitions) // 10
        offsets = wanted.setdefault(topic.name, {}) if topic.partitions else {}
        offsets.update((each.partition_index, each.offset) for each in topic.partitions)
    response = DeleteRecordsResponse()
    waiting: list[_Waiting] = []
    for name, offsets in wanted.items():
        found = DeleteRecordsTopicResult(name=name)
        response.topics.append(found)
        for index, offset in offsets.items():
            yield _RAISED
            answer = DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=_NO_LOW_WATERMARK
            )
            found.partitions.append(answer)
            try:
                leader = _leader(services, context, name, index)
                start = leader.log.delete_records_before(offset)
                answer.low_watermark = leader.low_watermark()
                if answer.low_watermark < start:
                    waiting.append(_Waiting(answer, leader, start))
            except OffsetOutOfRange:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            except LogStorageError:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            except BrokerError as error:
                answer.error_code = error.code
    if not waiting:
        return response
    delayed = _DelayedDeletion(services, response, waiting, context)
    keys = [each.leader.topic_partition for each in waiting]
    purgatory = services.purgatory
    if not purgatory.watch(delayed, keys, request.timeout_ms):
        context.response_sink.when_closed(lambda: purgatory.cancel(delayed))
    return None


class _Waiting(NamedTuple):
    """A partition where the log of at least one live replica still begins before ``start``, the
    leader's new log start offset."""

    answer: DeleteRecordsPartitionResult
    leader: Leader
    start: Offset


class _DelayedDeletion(DelayedOperation):
    """A DeleteRecords request that waits until the logs of all live followers start at the offset
    that the request has set as the leader's log start offset, or later."""

    __slots__ = ("_context", "_response", "_services", "_waiting")
    kind = "DeleteRecords"

    def __init__(
        self,
        services: LogServices,
        response: DeleteRecordsResponse,
        waiting: list[_Waiting],
        context: RequestContext,
    ) -> None:
        self._services = services
        self._response = response
        self._waiting = waiting
        self._context = context

    def try_complete(self, _now_ms: int) -> bool:
        still_waiting = []
        for each in self._waiting:
            leader = each.leader.present
            if leader.ended is not None:
                each.answer.error_code = ended_code(self._services, leader)
                each.answer.low_watermark = _NO_LOW_WATERMARK
                continue
            each.answer.low_watermark = leader.low_watermark()
            if each.answer.low_watermark < each.start:
                still_waiting.append(each)
        self._waiting = still_waiting
        if still_waiting:
            return False
        self._context.response_sink.send(self._response)
        return True

    def on_expire(self, _now_ms: int) -> None:
        for each in self._waiting:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._context.response_sink.send(self._response)


def _leader(services: LogServices, context: RequestContext, topic: str, index: int) -> Leader:
    """Return this broker's leadership of the partition. BrokerError if this broker is not the
    leader, if the client may not delete from the topic, or if records of the topic cannot be
    deleted (an internal topic, or a topic whose cleanup.policy is only compact)."""
    check_topic(services, context, AclOperation.DELETE, topic)
    if services.metadata.image.partition(topic, index) is None:
        raise BrokerError(why_not_led(services, topic, index))
    if topic in INTERNAL_TOPICS:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    leader = led_partition(services, topic, index)
    if leader.log.config.compact and not leader.log.config.delete:
        raise BrokerError(ErrorCode.POLICY_VIOLATION)
    return leader


def error_response(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Return a response with ``code`` for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=_NO_LOW_WATERMARK,
                        error_code=code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.DELETE_RECORDS, handle, error_response, access=(on_topics(AclOperation.DELETE),)
)
