"""A broker in a cluster without a network: its controller's orders, real replicas on fake logs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from klog_broker.api import leader_and_isr, stop_replica, update_metadata
from klog_broker.cluster.broker_requests import BetweenBrokersServices, ClusterServices
from klog_broker.cluster.role_change_queue import ControllerRequestQueue
from klog_broker.config import BrokerConfig, topic_config
from klog_broker.controller.zookeeper.request_batch import ControllerRequest
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.metadata.zookeeper.store import ClusterStore
from klog_broker.replication.settings_updates import TopicSettings
from klog_broker.runtime.event_loop.slices import Slices
from pyspark_klog.ids import UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.cluster.fake_logs import FakeLogs
from tests.support.cluster.replicas import ReplicaWorld

NUMBER = BrokerId(1)
TOPIC_ID = TopicId(UUID(int=77))
OTHER_ID = TopicId(UUID(int=78))
_HANDLERS: dict[type[ControllerRequest], Any] = {
    LeaderAndIsrRequest: leader_and_isr.handle,
    StopReplicaRequest: stop_replica.handle,
    UpdateMetadataRequest: update_metadata.handle,
}


class NotedReply:
    """How a request was answered: its response, or why the connection was closed."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.closed = ""

    def send(self, response: Any) -> None:
        assert self.answer is None and not self.closed
        self.answer = response

    def close(self, reason: str) -> None:
        assert self.answer is None and not self.closed
        self.closed = reason


class ControlledBroker(ReplicaWorld):
    """Broker 1, registered in epoch 50."""

    logs: FakeLogs  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(broker_id=NUMBER)
        config = topic_config(BrokerConfig.load(), {})
        self.settings = TopicSettings.from_topic_config(config)
        self.epoch = 50
        self.connection = 7
        self.images: list[tuple[str, ...]] = []
        self.store = ClusterStore(self.loop, "cluster", register=lambda _: None)
        # There is no ZooKeeper that could be asked.
        self.store.settings.learn_topics = lambda _, done: done()  # type: ignore[method-assign]
        self.store.changes = SimpleNamespace(image_changed=lambda: None)  # type: ignore[assignment]
        self.store.start(
            self.loop,
            None,  # type: ignore[arg-type]
            on_image=lambda _, names: self.images.append(tuple(names)),
            apply=lambda _, __: None,
        )
        self.orders = ControllerRequestQueue(lambda: self.epoch)
        self.services = BetweenBrokersServices(
            NUMBER,
            "INSIDE",
            self.loop,
            self.replicas,
            RequestRuntime(Slices(self.loop)),
            ClusterServices(self.store, None, self.orders, None),  # type: ignore[arg-type]
        )

    def open_logs(self, directories: tuple[Path, ...]) -> Any:
        return FakeLogs(self.loop)

    def receive(self, order: ControllerRequest, *, listener: str = "INSIDE") -> NotedReply:
        """Receive a controller's request; `turns` runs the turns that follow."""
        reply = NotedReply()
        context = SimpleNamespace(
            listener=listener,
            response_sink=reply,
            connection_id=f"127.0.0.1:9092-127.0.0.2:50000-{self.connection}",
        )
        _HANDLERS[type(order)](self.services, order, context)
        return reply

    def response_to(self, order: ControllerRequest) -> Any:
        """Receive a controller's request, and run turns until it has a response."""
        reply = self.receive(order)
        for _ in range(400):
            self.turns(1)
            if reply.answer is not None:
                break
        assert reply.answer is not None, reply.closed
        return reply.answer

    def role_of(self, partition: int = 0, topic: str = "orders") -> str:
        hosted = self.replicas.partition(topic, partition)
        return "none" if hosted is None else type(hosted.role).__name__

    def has_log(self, partition: int = 0, topic: str = "orders") -> bool:
        return TopicPartition(topic, partition) in self.logs.by_partition


def lead(
    *partitions: int, leader: int = 1, leader_epoch: int = 0, topic: str = "orders",
    topic_id: TopicId = TOPIC_ID, controller_epoch: int = 3, broker_epoch: int = 50,
    replicas: tuple[int, ...] = (1, 2),
) -> LeaderAndIsrRequest:  # fmt: skip
    """One topic's partitions, 0 if none is named."""
    states = [
        LeaderAndIsrPartitionState(
            partition_index=each,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(replicas),
            replicas=list(replicas),
        )
        for each in partitions or (0,)
    ]
    state = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
    return LeaderAndIsrRequest(
        controller_epoch=controller_epoch, broker_epoch=broker_epoch, topic_states=[state]
    )


def stop(
    *partitions: int, deletes: bool = True, leader_epoch: int = -2, topic: str = "orders",
    controller_epoch: int = 3,
) -> StopReplicaRequest:  # fmt: skip
    states = [
        StopReplicaPartitionState(
            partition_index=each, leader_epoch=leader_epoch, delete_partition=deletes
        )
        for each in partitions or (0,)
    ]
    state = StopReplicaTopicState(topic_name=topic, partition_states=states)
    return StopReplicaRequest(
        controller_epoch=controller_epoch, broker_epoch=50, topic_states=[state]
    )


def update_metadata_request(
    *partitions: int, leader: int = 1, topic: str = "orders", topic_id: TopicId = TOPIC_ID,
    zk_version: int = 0, kind: int = 0, controller_epoch: int = 3,
) -> UpdateMetadataRequest:  # fmt: skip
    states = [
        UpdateMetadataPartitionState(
            partition_index=each, leader=leader, isr=[1], zk_version=zk_version, replicas=[1, 2]
        )
        for each in partitions
    ]
    state = UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
    return UpdateMetadataRequest(
        type=kind, controller_epoch=controller_epoch, broker_epoch=50, topic_states=[state]
    )
