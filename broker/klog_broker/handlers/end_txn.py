"""EndTxn: commit or abort a transaction. Answered when that is decided; the markers follow."""

from klog_broker.coordinator.transaction.metadata import ProducerIdAndEpoch
from klog_broker.coordinator.transaction.transaction import TransactionReply
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.transactions import as_known_by, client_version
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.keys import ApiKey

RAISES_EPOCH_SINCE = 5


def handle(request: EndTxnRequest, context: RequestContext) -> None:
    version = context.api_version

    def answer(reply: TransactionReply) -> None:
        context.reply.send(
            EndTxnResponse(
                error_code=as_known_by(reply.error_code, version),
                producer_id=reply.producer_id,
                producer_epoch=reply.producer_epoch,
            )
        )

    context.broker.transactions.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        client_version(version, RAISES_EPOCH_SINCE),
        answer,
        is_commit=request.committed,
    )


def error_response(_: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


HANDLER = ApiHandler(ApiKey.END_TXN, handle, error_response)
