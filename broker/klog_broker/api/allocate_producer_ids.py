"""AllocateProducerIds: the controller gives a broker a block of producer ids (KIP-730)."""

from klog_broker.cluster.broker_requests import MAX_ELEMENTS, BetweenBrokersServices, cluster_of
from klog_broker.dispatch.access import BROKERS_ONLY
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: BetweenBrokersServices, request: AllocateProducerIdsRequest, context: RequestContext
) -> None:
    """Answer NOT_CONTROLLER unless this broker stays the controller until the block of producer ids
    is allocated."""
    cluster_of(services, context).controller.allocate_producer_ids(
        request, context.response_sink.send
    )


API = BrokerApi(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    handle,
    top_level_error(ApiKey.ALLOCATE_PRODUCER_IDS),
    max_elements=MAX_ELEMENTS,
    access=BROKERS_ONLY,
)
