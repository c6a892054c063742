"""WriteTxnMarkers: writes markers that end transactions in partitions of this broker.

Transaction coordinators send this request. Administrators send it, too, to end a hanging
transaction (Kafka's TransactionsCommand).
"""

from collections.abc import Mapping
from functools import partial

from klog_broker.api.services import TransactionServices
from klog_broker.coordinator.transaction.coordinator import partitions_of
from klog_broker.coordinator.transaction.markers import TransactionMarker
from klog_broker.coordinator_hosting.marker_writer import MARKER_ELEMENTS, MarkerWriter
from klog_broker.dispatch.access import sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.authorizer import is_allowed, is_broker
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyspark_klog.protocol.keys import ApiKey

MIN_VERSION = 1

_Errors = Mapping[TopicPartition, ErrorCode]


def handle(
    services: TransactionServices, request: WriteTxnMarkersRequest, context: RequestContext
) -> ResponseSteps:
    """Answer when each marker is below the high watermark or has failed."""
    if not is_broker(services, context) and not is_allowed(
        services, context, AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    writer = MarkerWriter(services)
    results: list[dict[TopicPartition, ErrorCode]] = [{} for _ in request.markers]
    waiting = 1

    def written(number: int, partition: TopicPartition, code: ErrorCode) -> None:
        results[number][partition] = code
        one_less()

    def one_less() -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            context.response_sink.send(_response(request, results))

    for number, requested in enumerate(request.markers):
        marker = _marker(requested)
        for partition in marker.partitions:
            waiting += 1
            writer.write(marker, partition, partial(written, number, partition))
            yield MARKER_ELEMENTS
    one_less()
    return None


def _marker(requested: WritableTxnMarker) -> TransactionMarker:
    return TransactionMarker(
        requested.producer_id,
        requested.producer_epoch,
        requested.transaction_result,
        requested.coordinator_epoch,
        partitions_of((each.name, each.partition_indexes) for each in requested.topics),
        requested.transaction_version,
    )


def _response(
    request: WriteTxnMarkersRequest, results: list[dict[TopicPartition, ErrorCode]]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=requested.producer_id, topics=_topics(errors))
            for requested, errors in zip(request.markers, results, strict=True)
        ]
    )


def _topics(errors: _Errors) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, partition), code in errors.items():
        topics.setdefault(topic, []).append(
            WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
        )
    return [
        WritableTxnMarkerTopicResult(name=name, partitions=rows) for name, rows in topics.items()
    ]


def error_response(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Return a response with ``code`` for every partition."""
    return _response(
        request, [dict.fromkeys(_marker(each).partitions, code) for each in request.markers]
    )


API = BrokerApi(
    ApiKey.WRITE_TXN_MARKERS,
    handle,
    error_response,
    min_version=MIN_VERSION,
    access=(
        sometimes_on_cluster(AclOperation.ALTER),
        sometimes_on_cluster(AclOperation.CLUSTER_ACTION),
    ),
)
