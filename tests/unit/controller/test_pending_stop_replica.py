"""State that a controller keeps when it reads everything again."""

from collections.abc import Callable
from typing import Any

from klog_broker.controller.decisions.context import RegisteredBroker
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.request_batch import BrokerRequest
from klog_broker.controller.zookeeper.request_sender import RequestSender
from klog_broker.metrics.controller import ControllerCounts
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tests.support.cluster.zookeeper import ClusterWorld, registration

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
PARTITION = TopicPartition("t", 0)


def test_a_pending_stop_replica_lasts_no_longer_than_its_broker_epoch() -> None:
    sent: list[tuple[BrokerId, Any, Callable[[Any], None]]] = []
    sender = RequestSender(
        ClusterWorld().loop,
        lambda to, order, done: sent.append((to.broker_id, order, done)),
        lambda *_: None,
    )
    controller_state = ControllerState(
        sender,
        controller_id=ONE,
        controller_epoch=1,
        listener="PLAINTEXT",
        is_unclean=lambda _: False,
        deletes_topics=True,
        counts=ControllerCounts(),
    )
    brokers = {each: RegisteredBroker(registration(each), epoch=5) for each in (ONE, TWO, THREE)}
    list(controller_state.update_brokers(0, brokers))
    controller_state.send_batch()
    told, sent[:] = list(sent), []
    for _, order, done in told:
        assert isinstance(order, UpdateMetadataRequest)
        done(UpdateMetadataResponse())
    controller_state.batch.add_stop_replica(PARTITION, brokers, deletes=True)
    controller_state.send_batch()
    stops = {broker_id: BrokerRequest(broker_id, 5, order) for broker_id, order, _ in sent}
    # One is gone, and one has come again; neither has answered.
    again = RegisteredBroker(registration(THREE), epoch=6)
    list(controller_state.update_brokers(1, {ONE: brokers[ONE], THREE: again}))
    assert not controller_state.remove_stop_replica(stops[TWO])
    assert not controller_state.remove_stop_replica(stops[THREE])
    assert controller_state.remove_stop_replica(stops[ONE])
    assert not controller_state.remove_stop_replica(stops[ONE]), "answered once"
