"""DescribeProducers: returns the producers of partitions and their open transactions (KIP-664)."""

from collections import Counter
from collections.abc import Iterator

from klog_broker.api.services import LogServices
from klog_broker.dispatch.access import on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.producer_state import ProducerEntry
from klog_broker.resources.led_partitions import led_partition
from klog_broker.resources.requested_topics import check_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: LogServices, request: DescribeProducersRequest, context: RequestContext
) -> ResponseSteps:
    response = DescribeProducersResponse()
    counts = Counter(
        (topic.name, index) for topic in request.topics for index in topic.partition_indexes
    )
    for topic in request.topics:
        yield 1
        found = TopicResponse(name=topic.name)
        response.topics.append(found)
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            found.partitions.append(answer)
            yield 1
            try:
                check_topic(services, context, AclOperation.READ, topic.name)
                if counts[topic.name, index] > 1:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, "the partition is listed twice")
                log = _log_of(services, topic.name, index)
            except BrokerError as error:
                answer.error_code, answer.error_message = error.code, client_text(error)
                continue
            for state in _states(log):
                yield 1
                answer.active_producers.append(state)
    return response


def _log_of(services: LogServices, topic: str, index: int) -> PartitionLog:
    """Return the log of this broker's replica, which need not be the leader, as in Kafka.
    BrokerError if this broker has no usable replica."""
    hosted = services.replicas.partition(topic, index)
    if hosted is not None and hosted.log is not None and not hosted.log.is_offline:
        return hosted.log
    return led_partition(services, topic, index).log


def _states(log: PartitionLog) -> Iterator[ProducerState]:
    for entry in log.producers:
        yield _state(entry)


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_transaction_first_offset,
    )


def error_response(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.DESCRIBE_PRODUCERS, handle, error_response, access=(on_topics(AclOperation.READ),)
)
