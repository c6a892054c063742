"""InitProducerId: a fresh producer id, for idempotence."""

from __future__ import annotations

from typing import Any

from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.transactions import NO_TRANSACTIONS
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(request: InitProducerIdRequest, context: RequestContext) -> None:
    if request.transactional_id is not None:
        if request.transactional_id == "":
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        raise NO_TRANSACTIONS
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "producer id and epoch go together")

    def got(producer_id: ProducerId | None) -> None:
        if producer_id is None:
            context.reply.send(error_response(request, ErrorCode.KAFKA_STORAGE_ERROR))
            return
        context.reply.send(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    # Without a transactional id, a producer that has a producer id already gets a new one, too.
    context.broker.producer_ids.next_id(got)


def error_response(_: Any, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


HANDLER = ApiHandler(ApiKey.INIT_PRODUCER_ID, handle, error_response)
