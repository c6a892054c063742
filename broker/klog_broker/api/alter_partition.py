"""AlterPartition: a leader asks the controller to change ISRs (KIP-497)."""

from klog_broker.cluster.broker_requests import MAX_ELEMENTS, BetweenBrokersServices, cluster_of
from klog_broker.dispatch.access import BROKERS_ONLY
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from pyspark_klog.protocol.apis.alter_partition import AlterPartitionRequest
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: BetweenBrokersServices, request: AlterPartitionRequest, context: RequestContext
) -> None:
    """Answer NOT_CONTROLLER unless this broker stays the controller until the requested ISRs are
    written to ZooKeeper."""
    cluster_of(services, context).controller.alter_partition(request, context.response_sink.send)


API = BrokerApi(
    ApiKey.ALTER_PARTITION,
    handle,
    top_level_error(ApiKey.ALTER_PARTITION),
    max_elements=MAX_ELEMENTS,
    access=BROKERS_ONLY,
)
