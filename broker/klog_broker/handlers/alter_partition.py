"""AlterPartition: a leader asks for other in-sync sets (KIP-497). The controller answers."""

from klog_broker.handlers.between_brokers import MAX_ELEMENTS, cluster_of
from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.protocol.apis.alter_partition import AlterPartitionRequest
from pyspark_klog.protocol.keys import ApiKey


def handle(request: AlterPartitionRequest, context: RequestContext) -> None:
    """NOT_CONTROLLER if another broker is it, or becomes it before this is done."""
    cluster_of(context).controller.alter_partition(request, context.reply.send)


HANDLER = ApiHandler(
    ApiKey.ALTER_PARTITION,
    handle,
    top_level_error(ApiKey.ALTER_PARTITION),
    max_elements=MAX_ELEMENTS,
)
