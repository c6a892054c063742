"""InitProducerId: returns a producer id and epoch, for idempotence or for a transactional id."""

from __future__ import annotations

from typing import Any

from klog_broker.api.services import TransactionServices
from klog_broker.api.transaction_errors import as_known_by
from klog_broker.coordinator.transaction.transaction_machine import TransactionResult
from klog_broker.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from klog_broker.dispatch.access import on_topics, on_transactional_id, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.resources.authorizer import is_allowed
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.keys import ApiKey

# The first version of InitProducerId whose clients know PRODUCER_FENCED (KIP-588).
_FENCED_SINCE = 4


def handle(
    services: TransactionServices, request: InitProducerIdRequest, context: RequestContext
) -> None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "give a producer id and an epoch, or neither")
    if request.transactional_id is not None:
        _begin_to_use(services, request.transactional_id, request, context)
        return

    if not _may_write(services, context):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def on_producer_id(producer_id: ProducerId | None) -> None:
        if producer_id is None:
            context.response_sink.send(error_response(request, services.producer_ids.unavailable))
            return
        context.response_sink.send(
            InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        )

    # An idempotent producer gets a new id even if the request names an id that it already has.
    services.producer_ids.next_id(on_producer_id)


def _may_write(services: TransactionServices, context: RequestContext) -> bool:
    """Return whether the client may use idempotence: whether it has IDEMPOTENT_WRITE on the
    cluster, or may write to any topic."""
    write, topic = AclOperation.WRITE, AclResourceType.TOPIC
    return is_allowed(
        services, context, AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME
    ) or any(
        is_allowed(services, context, write, topic, name) for name in services.metadata.image.topics
    )


def _begin_to_use(
    services: TransactionServices,
    transactional_id: str,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> None:
    def answer(response: TransactionResult) -> None:
        context.response_sink.send(
            InitProducerIdResponse(
                error_code=as_known_by(response.error_code, context.api_version, _FENCED_SINCE),
                producer_id=response.producer_id,
                producer_epoch=response.producer_epoch,
            )
        )

    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    services.transactions.initialize(
        transactional_id,
        request.transaction_timeout_ms,
        None if expected.producer_id == NO_PRODUCER_ID else expected,
        answer,
    )


def error_response(_: Any, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


API = BrokerApi(
    ApiKey.INIT_PRODUCER_ID,
    handle,
    error_response,
    access=(
        on_transactional_id(AclOperation.WRITE),
        sometimes_on_cluster(AclOperation.IDEMPOTENT_WRITE),
        on_topics(AclOperation.WRITE),
    ),
)
