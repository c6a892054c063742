"""Requests between the brokers of a cluster, which come on the inter-broker listener alone.

Orders of the controller come one request after the other (role_change_queue.py), and are carried
out a part a turn.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from klog_broker.cluster.role_change_queue import OrderQueue, OrderRequest
from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.topic_changes import TopicChanges
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.log.errors import InconsistentTopicId, LogStorageError
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import check_topic_name
from klog_broker.metadata.zookeeper.store import ClusterStore
from klog_broker.replication.errors import StaleOrder
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest

MAX_ELEMENTS = 500_000
"""Elements of a request between brokers: those of all of 50,000 partitions with three replicas."""

MAX_PARTITIONS = 100_000
"""Numbers of a topic's partitions end here: a greater one cannot be meant."""

ORDERS_A_TURN = 50
"""So many replicas get their roles in one turn of the loop."""

Order = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ClusterServices(NamedTuple):
    """A broker's part in its cluster."""

    store: ClusterStore
    controller: Controller
    """This broker's controller, which answers NOT_CONTROLLER while another broker is it."""
    orders: OrderQueue
    changes: TopicChanges
    """Elects leaders, too, which a standalone broker has nobody for."""


class BetweenBrokersServices(NamedTuple):
    """The services of the APIs that the brokers of a cluster ask each other."""

    broker_id: BrokerId
    brokers_listener: str
    """The name of the listener that is for brokers alone."""
    loop: Loop
    replicas: ReplicaManager
    requests: RequestRuntime
    cluster: ClusterServices


def cluster_of(services: BetweenBrokersServices, context: RequestContext) -> ClusterServices:
    """BrokerError CLUSTER_AUTHORIZATION_FAILED unless another broker can have asked."""
    if context.listener != services.brokers_listener:
        raise BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "this is asked between the brokers of a cluster, on their own listener",
        )
    return services.cluster


def take_order(
    services: BetweenBrokersServices,
    request: Order,
    context: RequestContext,
    begin: Callable[[Callable[[], None]], None],
) -> None:
    """Have `begin` carry the order out, in its turn. It answers, and then calls back."""
    reply = context.reply
    if request.is_kraft_controller:
        reply.close("klog takes no orders of KRaft's controllers")
        return

    def refuse(code: ErrorCode) -> None:
        response: Any = registry.response_class(request.api_key)()
        response.error_code = int(code)
        reply.send(response)

    cluster_of(services, context).orders.put(
        OrderRequest(
            request.controller_epoch,
            request.broker_epoch,
            int(context.connection_id.rpartition("-")[2]),
            begin,
            refuse,
            reply.close,
        )
    )


def may_be_topic(name: str) -> bool:
    """Whether a topic can have this name. Controllers tell of no others."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def order_error(error: KlogError) -> ErrorCode:
    """The number of an order's error."""
    if isinstance(error, InconsistentTopicId):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    if isinstance(error, StaleOrder):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if isinstance(error, LogStorageError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_SERVER_ERROR
