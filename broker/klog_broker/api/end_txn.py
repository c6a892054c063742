"""EndTxn: commits or aborts a transaction. The response is sent before the markers are written."""

from __future__ import annotations

import struct

from klog_broker.api.services import TransactionServices
from klog_broker.api.transaction_errors import as_known_by, client_version
from klog_broker.coordinator.transaction.transaction_machine import TransactionResult
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_RAISING,
    ProducerIdAndEpoch,
)
from klog_broker.dispatch.access import on_transactional_id
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ResponseSlot
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.wire import uvarint

RAISES_EPOCH_SINCE = 5

# The size of a request's fields after the transactional id: producer id, producer epoch, commit or
# abort, and an empty list of tagged fields.
_LAST_BYTES = struct.calcsize(">qh?B")
# The size of a request's fields before the transactional id: API key and version, correlation id,
# length of the client id; and one byte of empty tagged fields after the client id.
_FIRST_BYTES = struct.calcsize(">4s4sh") + 1
# The fields of the response: size, correlation id, no tagged fields; throttle time, error, producer
# id, producer epoch, no tagged fields.
_REPLY = struct.Struct(">i4sBihqhB")


def handle(services: TransactionServices, request: EndTxnRequest, context: RequestContext) -> None:
    version = context.api_version

    def answer(response: TransactionResult) -> None:
        context.response_sink.send(
            EndTxnResponse(
                error_code=as_known_by(response.error_code, version),
                producer_id=response.producer_id,
                producer_epoch=response.producer_epoch,
            )
        )

    services.transactions.end_transaction(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        client_version(version, RAISES_EPOCH_SINCE),
        answer,
        is_commit=request.committed,
    )


class _CachedEndTxn:
    """Serves the connection's next EndTxn requests (version 5) of one transactional id without
    decoding them, if their bytes are those of an earlier EndTxn request, except for the correlation
    id, the producer id, the producer epoch, and the choice of commit or abort."""

    __slots__ = (
        "_behind",
        "_head",
        "_requests",
        "_services",
        "_size",
        "_transactional_id",
        "_unpack",
    )

    def __init__(self, frame: bytes, transactional_id: str, services: TransactionServices) -> None:
        self._size = len(frame)
        self._unpack = struct.Struct(f">4s4s{len(frame) - 8 - _LAST_BYTES}sqh?B").unpack
        self._head, _, self._behind, *_ = self._unpack(frame)
        self._transactional_id = transactional_id
        self._services = services
        self._requests = services.requests

    def serve(self, frame: memoryview, slot: ResponseSlot) -> bool:
        if len(frame) != self._size:
            return False
        head, correlation_id, behind, producer_id, epoch, is_commit, tags = self._unpack(frame)
        if behind != self._behind or head != self._head or tags:
            return False

        def answer(response: TransactionResult) -> None:
            self._requests.count_error(ApiKey.END_TXN, response.error_code)
            result = (response.error_code, response.producer_id, response.producer_epoch)
            slot.complete([_REPLY.pack(_REPLY.size - 4, correlation_id, 0, 0, *result, 0)])

        self._services.transactions.end_transaction(
            self._transactional_id,
            ProducerIdAndEpoch(producer_id, epoch),
            VERSION_RAISING,
            answer,
            is_commit=is_commit,
        )
        return True


def cache_request(
    services: TransactionServices, frame: bytes, request: EndTxnRequest, context: RequestContext
) -> _CachedEndTxn | None:
    """Return an object that serves the connection's next EndTxn requests without decoding them, if
    they repeat this request except for the correlation id, the producer id and epoch, and the
    choice of commit or abort.

    Return None for versions other than 5, and for a frame with tagged fields.
    """
    client_id = (context.header.client_id or "").encode()
    name = request.transactional_id.encode()
    size = _FIRST_BYTES + len(client_id) + len(uvarint(len(name) + 1)) + len(name) + _LAST_BYTES
    if context.api_version != RAISES_EPOCH_SINCE or len(frame) != size:
        return None
    return _CachedEndTxn(frame, request.transactional_id, services)


def error_response(_: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


API = BrokerApi(
    ApiKey.END_TXN,
    handle,
    error_response,
    cache_request=cache_request,
    access=(on_transactional_id(AclOperation.WRITE),),
)
