"""ControlledShutdown: a broker is about to stop. The controller answers."""

from klog_broker.handlers.between_brokers import MAX_ELEMENTS, cluster_of
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from pyspark_klog.protocol.keys import ApiKey


def handle(request: ControlledShutdownRequest, context: RequestContext) -> None:
    """NOT_CONTROLLER if another broker is it, or becomes it before this is done."""
    cluster_of(context).controller.shut_down(request, context.reply.send)


HANDLER = ApiHandler(
    ApiKey.CONTROLLED_SHUTDOWN,
    handle,
    top_level_error(ApiKey.CONTROLLED_SHUTDOWN),
    max_elements=MAX_ELEMENTS,
)
