"""InitProducerId: a fresh producer id, for idempotence. Ids are handed out of durable blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.transactions import NO_TRANSACTIONS
from klog_broker.metadata.interface import MetadataStore, ProducerIdBlock
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.keys import ApiKey

GotProducerId = Callable[[ProducerId | None], None]


class ProducerIds:
    """Hands out producer ids, each once. The end of a block is on disk before its first id goes
    out; what a crash leaves of a block is never used."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next = 0
        self._end = 0
        self._waiting: deque[GotProducerId] = deque()
        self._is_allocating = False

    def next_id(self, got: GotProducerId) -> None:
        """Calls ``got`` with a fresh id, now or when a new block is durable; with None if the
        store cannot give one."""
        if self._next < self._end and not self._waiting:
            got(self._take())
            return
        self._waiting.append(got)
        self._allocate()

    def _take(self) -> ProducerId:
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    def _allocate(self) -> None:
        if not self._is_allocating:
            self._is_allocating = True
            self._metadata.allocate_producer_ids(self._allocated)

    def _allocated(self, block: ProducerIdBlock | Exception) -> None:
        self._is_allocating = False
        if isinstance(block, Exception):
            waiting, self._waiting = self._waiting, deque()
            for got in waiting:
                got(None)
            return
        self._next, self._end = block.first, block.end
        while self._waiting and self._next < self._end:
            self._waiting.popleft()(self._take())
        if self._waiting:
            self._allocate()


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

    # A producer without a transactional id that has an id already begins anew all the same.
    context.broker.producer_ids.next_id(got)


def error_response(_: Any, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


HANDLER = ApiHandler(ApiKey.INIT_PRODUCER_ID, handle, error_response)
