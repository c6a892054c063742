"""StopReplica: the controller makes this broker stop replicas, and perhaps delete their logs."""

from collections.abc import Iterator

from klog_broker.cluster.broker_requests import (
    MAX_ELEMENTS,
    BetweenBrokersServices,
    cluster_of,
    queue_controller_request,
    role_change_error,
)
from klog_broker.cluster.role_change_slices import SlicedRoleChanges
from klog_broker.dispatch.access import BROKERS_ONLY
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.role_changes import RoleRemoval
from klog_broker.replication.errors import StaleRoleChange
from klog_broker.replication.partition import Offline
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from pyspark_klog.protocol.keys import ApiKey

_ANY_EPOCH = LeaderEpoch((1 << 31) - 1)


def handle(
    services: BetweenBrokersServices, request: StopReplicaRequest, context: RequestContext
) -> None:
    """Answer when each replica is stopped, and its log renamed if it is to be deleted, or that has
    failed."""
    cluster_of(services, context)
    stops = _ReplicaStops(request, services)
    queue_controller_request(
        services,
        request,
        context,
        lambda done: SlicedRoleChanges(services, stops, context, done).apply_next(),
    )


class _ReplicaStops:
    """Turns the partition states of one request into role removals (each stops one replica), and
    collects their errors."""

    def __init__(self, request: StopReplicaRequest, services: BetweenBrokersServices) -> None:
        self._request = request
        self._services = services
        self._errors: dict[TopicPartition, ErrorCode] = {}

    def role_changes(self) -> Iterator[RoleRemoval]:
        """Yield a role removal for each replica to stop. A replica in an offline log directory gets
        an error instead."""
        for topic in self._request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                hosted = self._services.replicas.partition(*partition)
                if hosted is not None and isinstance(hosted.role, Offline):
                    self._errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
                    continue
                # The request has no topic id, so it stops the present replica of the partition,
                # whatever the id of its topic is.
                topic_id = NO_TOPIC_ID if hosted is None else hosted.topic_id
                yield RoleRemoval(partition, topic_id, _epoch(state), state.delete_partition)

    def add_error(self, partition: TopicPartition, error: KlogError) -> None:
        """Store the error of a replica that could not be stopped."""
        is_fenced = isinstance(error, StaleRoleChange)
        self._errors[partition] = (
            ErrorCode.FENCED_LEADER_EPOCH if is_fenced else role_change_error(error)
        )

    def response(self) -> StopReplicaResponse:
        """Return the response with the error of each partition."""
        found = [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=each.partition_index,
                error_code=self._errors.get(
                    TopicPartition(topic.topic_name, each.partition_index), ErrorCode.NONE
                ),
            )
            for topic in self._request.topic_states
            for each in topic.partition_states
        ]
        return StopReplicaResponse(partition_errors=found)


def _epoch(state: StopReplicaPartitionState) -> LeaderEpoch:
    """Return the leader epoch in the partition's state. A negative epoch means that the replica is
    stopped in any epoch, for example because its topic is being deleted."""
    return LeaderEpoch(state.leader_epoch) if state.leader_epoch >= 0 else _ANY_EPOCH


API = BrokerApi(
    ApiKey.STOP_REPLICA,
    handle,
    top_level_error(ApiKey.STOP_REPLICA),
    max_elements=MAX_ELEMENTS,
    access=BROKERS_ONLY,
)
