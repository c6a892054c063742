"""ControlledShutdown: a broker asks the controller to move its leaderships before it stops."""

from klog_broker.cluster.broker_requests import MAX_ELEMENTS, BetweenBrokersServices, cluster_of
from klog_broker.dispatch.access import BROKERS_ONLY
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: BetweenBrokersServices, request: ControlledShutdownRequest, context: RequestContext
) -> None:
    """Move the leaderships of a broker that shuts down to other replicas. Answer NOT_CONTROLLER
    unless this broker stays the controller until they are moved.

    The response lists the partitions that the broker to shut down still leads, because no other
    replica is in sync. Partitions with one replica are not listed.
    """
    cluster_of(services, context).controller.shut_down(request, context.response_sink.send)


API = BrokerApi(
    ApiKey.CONTROLLED_SHUTDOWN,
    handle,
    top_level_error(ApiKey.CONTROLLED_SHUTDOWN),
    max_elements=MAX_ELEMENTS,
    access=BROKERS_ONLY,
)
