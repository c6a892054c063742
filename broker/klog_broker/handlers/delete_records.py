"""DeleteRecords (key 21): raises the start of partitions' logs, so that older records are gone.

The files go by the next round of retention. As in Kafka the new start is in memory when the answer
leaves, and on the disk with the next checkpoint (log.flush.start.offset.checkpoint.interval.ms).
The answer never waits, so that the request's timeout does not count: no other broker's log start is
part of the low watermark yet.
"""

from klog_broker.handlers.context import AnswerSteps, BrokerServices, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.partitions import led_partition
from klog_broker.log.errors import LogStorageError, OffsetOutOfRange
from klog_broker.metadata.image import INTERNAL_TOPICS
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

# Cost in elements (runtime/slices.py): shortening one log's epochs, and waking its fetches.
_RAISED = 4


def handle(request: DeleteRecordsRequest, context: RequestContext) -> AnswerSteps:
    """Every partition succeeds or fails by itself; of one that is named twice the last offset
    counts, as in Kafka."""
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        yield 1 + len(topic.partitions) // 10
        offsets = wanted.setdefault(topic.name, {}) if topic.partitions else {}
        offsets.update((each.partition_index, each.offset) for each in topic.partitions)
    response = DeleteRecordsResponse()
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
                answer.low_watermark = _raise_start(context.broker, name, index, offset)
            except OffsetOutOfRange:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            except LogStorageError:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            except BrokerError as error:
                answer.error_code = error.code
    return response


def _raise_start(broker: BrokerServices, topic: str, index: int, offset: int) -> Offset:
    """The low watermark: the log's start afterwards."""
    if broker.metadata.image.partition(topic, index) is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = led_partition(broker, topic, index).log
    if log.config.compact and not log.config.delete:
        raise BrokerError(ErrorCode.POLICY_VIOLATION)
    return log.delete_records_before(offset)


def error_response(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """The same error for every partition."""
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


HANDLER = ApiHandler(ApiKey.DELETE_RECORDS, handle, error_response)
