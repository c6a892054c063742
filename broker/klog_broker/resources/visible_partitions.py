"""Describes partitions to a client, which can reach only those brokers that have an endpoint on the
listener of the client's connection."""

from typing import Protocol

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.image import NO_BROKER, PartitionRegistration
from klog_broker.metadata.interface import MetadataStore
from klog_broker.replication.partition import Offline
from klog_broker.replication.replica_manager import ReplicaManager
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.metadata import MetadataResponsePartition


class SeenServices(Protocol):
    """The part of the broker's services that the description of partitions uses."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def replicas(self) -> ReplicaManager: ...


class SeenPartitions:
    """Describes partitions in the response to one request, by the rules of a Kafka 3.9.1 broker in
    ZooKeeper mode.

    If the leader has no endpoint on the listener of the client's connection, the response names no
    leader of the partition. The partition's error is then LISTENER_NOT_FOUND if ``names_listeners``
    is true and the leader is alive, else LEADER_NOT_AVAILABLE. If ``hides_replicas`` is true, the
    response omits replicas that the client cannot reach, as the first versions of Metadata do.
    """

    def __init__(
        self,
        services: SeenServices,
        context: RequestContext,
        *,
        names_listeners: bool = True,
        hides_replicas: bool = False,
    ) -> None:
        self._services = services
        brokers = services.metadata.image.brokers
        self._alive = frozenset(brokers)
        self._reachable = frozenset(
            number for number, each in brokers.items() if each.endpoint(context.listener)
        )
        self._names_listeners = names_listeners
        self._hides_replicas = hides_replicas

    def partition(
        self, topic: str, number: int, state: PartitionRegistration
    ) -> MetadataResponsePartition:
        """Describe one partition of a topic."""
        alive, leader = self._alive, state.leader
        answer = MetadataResponsePartition(
            partition_index=number,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.in_sync),
            offline_replicas=[
                each for each in state.replicas if each not in alive or each in state.offline
            ],
        )
        if self._hides_replicas:
            self._hide(answer)
        if leader == self._services.broker_id:
            hosted = self._services.replicas.partition(topic, number)
            if hosted is not None and isinstance(hosted.role, Offline):
                # This broker cannot use the partition's log: clients must wait for its disk or
                # another leader.
                leader = NO_BROKER
                if self._services.broker_id not in state.offline:
                    answer.offline_replicas.append(self._services.broker_id)
        if leader not in self._reachable:
            answer.leader_id = NO_BROKER
            names = self._names_listeners and leader in alive
            answer.error_code = (
                ErrorCode.LISTENER_NOT_FOUND if names else ErrorCode.LEADER_NOT_AVAILABLE
            )
        return answer

    def _hide(self, answer: MetadataResponsePartition) -> None:
        replicas, in_sync = answer.replica_nodes, answer.isr_nodes
        answer.replica_nodes = [each for each in replicas if each in self._reachable]
        answer.isr_nodes = [each for each in in_sync if each in self._reachable]
        if len(answer.replica_nodes) < len(replicas) or len(answer.isr_nodes) < len(in_sync):
            answer.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
