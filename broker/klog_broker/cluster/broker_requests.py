"""Requests between the brokers of a cluster, which arrive only on the inter-broker listener.

The controller's requests are carried out one after the other (role_change_queue.py), large ones in
parts over several event-loop turns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from klog_broker.cluster.role_change_queue import ControllerRequestQueue, QueuedRequest
from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.topic_changes import ControllerTopicChanges
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.log.errors import InconsistentTopicId, LogStorageError
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import check_topic_name
from klog_broker.metadata.zookeeper.store import ClusterStore
from klog_broker.replication.errors import StaleRoleChange
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest

MAX_ELEMENTS = 500_000
"""The most array elements of a request between brokers: enough for 50,000 partitions with 3
replicas."""

MAX_PARTITIONS = 100_000
"""The exclusive bound of partition numbers. LeaderAndIsr refuses a partition with this number or a
greater one; UpdateMetadata ignores it."""

ROLE_CHANGES_PER_TURN = 50
"""The most replicas that become leader or follower, or are stopped, in one event-loop turn."""

ControllerRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ClusterServices(NamedTuple):
    """The objects that a broker has only in a cluster: a standalone broker has none of them."""

    store: ClusterStore
    controller: Controller
    """This broker's controller; it answers NOT_CONTROLLER unless this broker is elected."""
    controller_requests: ControllerRequestQueue
    changes: ControllerTopicChanges
    """Carries out clients' requests to change topics and elect leaders, by means of
    `controller`."""


class BetweenBrokersServices(NamedTuple):
    """The broker's objects that the handlers of requests between brokers use."""

    broker_id: BrokerId
    brokers_listener: str
    """The name of the inter-broker listener."""
    loop: Loop
    replicas: ReplicaManager
    requests: RequestRuntime
    cluster: ClusterServices


def cluster_of(services: BetweenBrokersServices, context: RequestContext) -> ClusterServices:
    """Return the cluster services for a request that came on the inter-broker listener.

    :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED if the request came on another listener
    """
    if context.listener != services.brokers_listener:
        raise BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only brokers send this request, on the inter-broker listener",
        )
    return services.cluster


def queue_controller_request(
    services: BetweenBrokersServices,
    request: ControllerRequest,
    context: RequestContext,
    carry_out: Callable[[Callable[[], None]], None],
) -> None:
    """Queue a controller request. Once all earlier ones are done, and if its epochs are still
    valid, `carry_out` is called with a callback: `carry_out` carries the request out, answers it or
    closes its connection, and then calls the callback. A request with invalid epochs is refused, or
    its connection is closed (`ControllerRequestQueue`).

    :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED if the request came on another listener than
        the inter-broker listener
    """
    response_sink = context.response_sink
    if request.is_kraft_controller:
        response_sink.close("klog accepts no requests of KRaft controllers")
        return

    def refuse(code: ErrorCode) -> None:
        response: Any = registry.response_class(request.api_key)()
        response.error_code = int(code)
        response_sink.send(response)

    cluster_of(services, context).controller_requests.put(
        QueuedRequest(
            request.controller_epoch,
            request.broker_epoch,
            int(context.connection_id.rpartition("-")[2]),
            carry_out,
            refuse,
            response_sink.close,
        )
    )


def is_legal_topic_name(name: str) -> bool:
    """Whether this is a legal topic name. Controllers send only legal names, so a topic with
    another name is ignored or refused."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def role_change_error(error: KlogError) -> ErrorCode:
    """The error code in the response to the controller for a role change (to lead, follow or stop a
    replica) that failed with ``error``."""
    if isinstance(error, InconsistentTopicId):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    if isinstance(error, StaleRoleChange):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if isinstance(error, LogStorageError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_SERVER_ERROR
