"""SyncGroup: the leader hands in the assignment, and every member is told its own part."""

from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.dispatcher import ApiHandler, top_level_error
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from pyspark_klog.protocol.keys import ApiKey


def handle(request: SyncGroupRequest, context: RequestContext) -> None:
    """Answered when the leader's assignment is in the log."""
    context.broker.groups.sync(request, context.reply.send)


HANDLER = ApiHandler(ApiKey.SYNC_GROUP, handle, top_level_error(ApiKey.SYNC_GROUP), max_version=3)
