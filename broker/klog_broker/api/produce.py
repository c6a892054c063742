"""Produce: checks a request and splits it by partition; produce/pipeline.py appends the parts."""

from __future__ import annotations

from klog_broker.dispatch.access import on_topics, on_transactional_ids
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.image import INTERNAL_TOPICS
from klog_broker.produce.pending_produce import PartitionAppend, PendingProduce, set_error
from klog_broker.produce.services import ProduceServices
from klog_broker.produce.verification import (
    ProduceVerification,
    Unverified,
    guard_for,
    transactional_batch,
    transactional_producers,
)
from klog_broker.replication.leader import Leader
from klog_broker.resources.authorizer import ALLOWS_ALL, is_allowed
from klog_broker.resources.led_partitions import led_partition, topic_name
from klog_broker.resources.requested_topics import check_topic
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.compression import Codec

# Only clients with this client id may write to internal topics, as in Kafka.
ADMIN_CLIENT_ID = "__admin_client"

_MAGIC_AT = 16
_ATTRIBUTES_AT = 22  # the low byte of a v2 batch's attributes
_CODEC_MASK = 0x07


def handle(
    services: ProduceServices, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    producers = transactional_producers(request)
    if producers or request.transactional_id is not None:
        error = _transaction_error(services, request, context, producers)
        if error is not None:
            return _refuse(request, context, error)
    if request.acks not in (-1, 0, 1):
        return _refuse(request, context, BrokerError(ErrorCode.INVALID_REQUIRED_ACKS))
    pending = PendingProduce(services, request, context)
    # The response is sent when open_appends, the number of the request's appends that are not done,
    # becomes 0. One is added until all partitions are checked, so that open_appends does not become
    # 0 before the last check.
    pending.open_appends = 1
    unverified: list[Unverified] = []
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for partition in topic.partition_data:
            answer = PartitionProduceResponse(index=partition.index)
            answers.append(answer)
            try:
                name = topic.name
                if context.api_version >= 13:
                    name = topic_name(services, topic.topic_id, partition.index)
                if services.authorizer is not ALLOWS_ALL:
                    check_topic(services, context, AclOperation.WRITE, name)
                leader = _leader(services, context, name, partition.index)
                records = _checked_records(partition.records, context.api_version)
            except BrokerError as error:
                set_error(answer, error.code, client_text(error))
                continue
            pending.open_appends += 1
            append = PartitionAppend(pending, answer, records)
            batch = transactional_batch(records) if producers else None
            if batch is not None:
                append = append._replace(guard=guard_for(services, leader, batch, context))
            if append.guard is not None:
                unverified.append(Unverified(leader, append))
            else:
                services.produce.add(leader, append)
        pending.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if unverified:
        ProduceVerification(services, request, context, unverified).ask_coordinator(
            *producers.pop()
        )
    pending.appended()
    return None


def _transaction_error(
    services: ProduceServices,
    request: ProduceRequest,
    context: RequestContext,
    producers: set[tuple[int, int]],
) -> BrokerError | None:
    """Return why a request with a transactional id or batch is refused; None if it is accepted."""
    if producers and request.transactional_id is None:
        return BrokerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch came in a request without a transactional id",
        )
    transactional_id = request.transactional_id
    if producers and not is_allowed(
        services,
        context,
        AclOperation.WRITE,
        AclResourceType.TRANSACTIONAL_ID,
        transactional_id or "",
    ):
        return BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(producers) > 1:
        return BrokerError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "the transactional batches of the request come from several producers",
        )
    return None


def _leader(
    services: ProduceServices, context: RequestContext, topic: str, partition: int
) -> Leader:
    if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    return led_partition(services, topic, partition)


def _checked_records(records: memoryview | bytes | None, api_version: int) -> memoryview | bytes:
    """Return a partition's records, or raise BrokerError. From Produce 3 on the batch format must
    be v2, and zstd needs Produce 7 (KIP-110)."""
    if records is None or len(records) == 0:
        raise BrokerError(ErrorCode.INVALID_RECORD, "the records of a partition are missing")
    if len(records) <= _ATTRIBUTES_AT:
        return records  # too short for a batch header: the log refuses such records
    magic = records[_MAGIC_AT]
    if api_version >= 3 and magic in (0, 1):
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"a batch of format v{magic} came with Produce {api_version}, which takes v2 only",
        )
    if api_version < 7 and magic == 2 and records[_ATTRIBUTES_AT] & _CODEC_MASK == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd came with Produce {api_version}; it needs version 7 or later",
        )
    return records


def _refuse(
    request: ProduceRequest, context: RequestContext, error: BrokerError
) -> ProduceResponse | None:
    """Refuse every partition with ``error``. With acks=0 close the connection, as there is no
    response."""
    if request.acks == 0:
        context.response_sink.close(f"Produce with acks=0: {error}")
        return None
    return _all_refused(request, error)


def error_response(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    return None if request.acks == 0 else _all_refused(request, BrokerError(code))


def _all_refused(request: ProduceRequest, error: BrokerError) -> ProduceResponse:
    def answer(index: int) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=index)
        set_error(response, error.code, client_text(error))
        return response

    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[answer(each.index) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


API = BrokerApi(
    ApiKey.PRODUCE,
    handle,
    error_response,
    allows_pipelining=True,
    access=(
        on_topics(AclOperation.WRITE),
        on_transactional_ids(AclOperation.WRITE),
    ),
)
