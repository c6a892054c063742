"""Requests to brokers: batches of role changes, and the queues in which they wait.

tests/golden/test_controller_batches_golden.py compares batches with Kafka's.
"""

from typing import Any

import pytest

from klog_broker.config import Listener
from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.zookeeper.request_batch import (
    LEADER_DURING_DELETE,
    BrokerRequest,
    ControllerRequest,
    RequestBatch,
)
from klog_broker.controller.zookeeper.request_queues import RequestQueues
from klog_broker.metadata.image import NO_BROKER, BrokerRegistration
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest

ONE, TWO, THREE = BROKERS = tuple(map(BrokerId, (1, 2, 3)))
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster() -> ControllerContext:
    context = ControllerContext()
    for broker_id in BROKERS:
        endpoints = (
            Listener("CLIENTS", "SASL_SSL", "outside", 9000 + broker_id),
            Listener("INSIDE", "PLAINTEXT", "inside", 9100 + broker_id),
        )
        registration = BrokerRegistration(broker_id, endpoints)
        context.put_broker(RegisteredBroker(registration, 10 * broker_id))
    context.put_topic("t", TopicId(UUID(int=5)))
    for partition in (FIRST, SECOND):
        context.assign(partition, (ONE, TWO))
        state = LeaderAndIsr(ONE, LeaderEpoch(3), (ONE, TWO))
        context.put_leadership(partition, Leadership(state, 1, 2, 99))
    return context


def batch_of(context: ControllerContext, **options: Any) -> RequestBatch:
    return RequestBatch(
        context, controller_id=THREE, controller_epoch=7, listener="INSIDE", **options
    )


def kinds(orders: list[BrokerRequest]) -> list[tuple[int, type[ControllerRequest]]]:
    return [(order.broker_id, type(order.request)) for order in orders]


def test_a_broker_gets_one_request_of_each_kind_in_kafkas_order() -> None:
    batch = batch_of(cluster())
    batch.add_stop_replica(FIRST, (TWO,), deletes=False)
    batch.add_update_metadata((THREE,), (FIRST,))
    for partition in (FIRST, SECOND):
        batch.add_leader_and_isr(partition, (TWO, ONE))
    assert kinds(batch.requests()) == [
        (TWO, LeaderAndIsrRequest),
        (ONE, LeaderAndIsrRequest),
        (THREE, UpdateMetadataRequest),
        (ONE, UpdateMetadataRequest),
        (TWO, UpdateMetadataRequest),
        (TWO, StopReplicaRequest),
    ]


def test_a_topic_deleted_since_is_not_published() -> None:
    context = cluster()
    batch = batch_of(context)
    for partition in (FIRST, SECOND):
        batch.add_leader_and_isr(partition, (ONE, TWO))
        context.remove_partition(partition)
    context.remove_topic("t")
    assert {kind for _, kind in kinds(batch.requests())} == {UpdateMetadataRequest}


def test_requests_carry_both_epochs_and_the_inner_addresses_of_leaders() -> None:
    batch = batch_of(cluster())
    batch.add_leader_and_isr(FIRST, (TWO,), is_new=True)
    order = batch.requests()[0]
    request = order.request
    assert isinstance(request, LeaderAndIsrRequest)
    assert (order.broker_epoch, request.broker_epoch, request.controller_epoch) == (20, 20, 7)
    assert [(each.host_name, each.port) for each in request.live_leaders] == [("inside", 9101)]
    assert request.topic_states[0].topic_id == UUID(int=5)
    assert request.topic_states[0].partition_states[0].is_new


def test_every_broker_gets_all_addresses() -> None:
    batch = batch_of(cluster())
    batch.add_update_metadata((ONE,), ())
    (order,) = batch.requests()
    assert isinstance(order.request, UpdateMetadataRequest)
    assert order.request.topic_states == []
    assert [
        (each.id, [(one.listener, one.security_protocol, one.port) for one in each.endpoints])
        for each in order.request.live_brokers
    ] == [(each, [("CLIENTS", 3, 9000 + each), ("INSIDE", 0, 9100 + each)]) for each in BROKERS]


def test_collected_partitions_are_named_also_without_a_leader() -> None:
    """Clients and coordinators count the partitions of a topic."""
    context = cluster()
    unled = TopicPartition("t", 2)
    context.assign(unled, (TWO,))

    def told() -> dict[int, list[tuple[int, int, int]]]:
        batch = batch_of(context)
        for _ in batch.collect(context.partitions_of("t")):
            pass
        return {each.broker_id: states_in(each) for each in batch.requests()}

    rows = [(0, ONE, 2), (1, ONE, 2), (2, NO_BROKER, -1)]
    assert told() == dict.fromkeys(BROKERS, rows)
    context.queue_deletion("t")
    deleted = [[row[:2] for row in rows] for rows in told().values()]
    assert deleted == [[(number, LEADER_DURING_DELETE) for number in range(3)]] * 3


def test_unpublished_partitions_are_named_only_when_collected() -> None:
    batch = batch_of(cluster(), unpublished={"t": {SECOND: None}})
    batch.add_leader_and_isr(FIRST, (ONE,))
    batch.add_leader_and_isr(SECOND, (ONE,))
    lead, *told = batch.requests()
    assert isinstance(lead.request, LeaderAndIsrRequest)
    assert len(lead.request.topic_states[0].partition_states) == 2
    assert [states_in(each) for each in told] == [[(0, ONE, 2)]] * 3


def test_a_broker_that_waits_for_everything_is_sent_no_part_of_a_topic() -> None:
    context = cluster()
    batch = batch_of(context, awaiting_full_metadata={THREE: None})
    batch.add_update_metadata(BROKERS, (FIRST,))
    assert [each.broker_id for each in batch.requests()] == [ONE, TWO]
    batch = batch_of(context, awaiting_full_metadata={THREE: None})
    for _ in batch.collect([SECOND]):
        pass
    assert [each.broker_id for each in batch.requests()] == [ONE, TWO]
    batch = batch_of(context, awaiting_full_metadata={THREE: None})
    for _ in batch.collect(context.partitions_of("t")):
        pass
    assert [states_in(each) for each in batch.requests()] == [[(0, ONE, 2), (1, ONE, 2)]] * 3
    batch = batch_of(context, awaiting_full_metadata={THREE: None})
    batch.add_update_metadata(BROKERS, ())
    assert [states_in(each) for each in batch.requests()] == [[]] * 3


def states_in(order: BrokerRequest) -> list[tuple[int, int, int]]:
    """Number, leader and partition epoch of all partitions in an UpdateMetadata request."""
    assert isinstance(order.request, UpdateMetadataRequest)
    return [
        (each.partition_index, each.leader, each.zk_version)
        for topic in order.request.topic_states
        for each in topic.partition_states
    ]


def test_what_was_new_or_to_be_deleted_stays_so_within_a_batch() -> None:
    batch = batch_of(cluster())
    batch.add_leader_and_isr(FIRST, (TWO,), is_new=True)
    batch.add_leader_and_isr(FIRST, (TWO,))
    batch.add_stop_replica(SECOND, (TWO,), deletes=True)
    batch.add_stop_replica(SECOND, (TWO,), deletes=False)
    requests = [order.request for order in batch.requests() if order.broker_id == TWO]
    lead, _, stop = requests
    assert isinstance(lead, LeaderAndIsrRequest) and isinstance(stop, StopReplicaRequest)
    assert lead.topic_states[0].partition_states[0].is_new
    assert stop.topic_states[0].partition_states[0].delete_partition


def test_a_broker_that_is_not_registered_gets_nothing() -> None:
    context = cluster()
    context.remove_broker(TWO)
    batch = batch_of(context)
    batch.add_leader_and_isr(FIRST, (ONE, TWO))
    batch.add_stop_replica(SECOND, (TWO,), deletes=True)
    batch.add_update_metadata((TWO,), (FIRST,))
    orders = batch.requests()
    assert {order.broker_id for order in orders} == {ONE, THREE}
    told = orders[-1].request
    assert isinstance(told, UpdateMetadataRequest)
    assert told.topic_states[0].partition_states[0].offline_replicas == [TWO]


def test_a_partition_without_a_leader_cannot_be_led_and_is_not_published() -> None:
    context = cluster()
    unled = TopicPartition("t", 2)
    context.assign(unled, (ONE,))
    batch = batch_of(context)
    batch.add_update_metadata((ONE,), (unled,))
    (order,) = batch.requests()
    assert isinstance(order.request, UpdateMetadataRequest)
    assert order.request.topic_states == []
    with pytest.raises(InvariantViolation, match="partition t-2 never had a leader"):
        batch.add_leader_and_isr(unled, (ONE,))


MANY = 1_000


def order(broker_id: BrokerId, broker_epoch: int, number: int) -> BrokerRequest:
    return BrokerRequest(broker_id, broker_epoch, StopReplicaRequest(controller_epoch=number))


def test_a_broker_gets_one_request_after_the_other() -> None:
    queues = RequestQueues()
    queues.add_broker(ONE, 10)
    first, second = order(ONE, 10, 1), order(ONE, 10, 2)
    assert queues.put((first, second), MANY) == [ONE]
    assert queues.next_request(ONE) is first
    assert queues.next_request(ONE) is None
    assert queues.put((order(ONE, 10, 3),), MANY) == []
    queues.requeue(first)
    assert queues.next_request(ONE) is first
    queues.remove_answered(first)
    assert queues.next_request(ONE) is second


def test_requests_for_another_broker_epoch_are_dropped() -> None:
    queues = RequestQueues()
    assert queues.put((order(ONE, 10, 1),), MANY) == []
    queues.add_broker(ONE, 10)
    sent = order(ONE, 10, 1)
    queues.put((sent, order(TWO, 20, 1), order(ONE, 9, 1)), MANY)
    assert queues.next_request(ONE) is sent
    queues.add_broker(ONE, 11)
    assert queues.next_request(ONE) is None
    # Its answer came too late.
    queues.remove_answered(sent)
    queues.requeue(sent)
    later = order(ONE, 11, 2)
    assert queues.put((later,), MANY) == [ONE]
    assert queues.next_request(ONE) is later


def test_waiting_requests_stay_while_the_broker_epoch_lasts() -> None:
    queues = RequestQueues()
    queues.add_broker(ONE, 10)
    waiting = order(ONE, 10, 1)
    queues.put((waiting,), MANY)
    queues.add_broker(ONE, 10)
    assert queues.next_request(ONE) is waiting
    queues.remove_broker(ONE)
    assert queues.next_request(ONE) is None
    queues.add_broker(TWO, 20)
    queues.put((order(TWO, 20, 1),), MANY)
    queues.clear()
    assert queues.next_request(TWO) is None


def test_a_response_without_a_request_is_a_bug() -> None:
    queues = RequestQueues()
    queues.add_broker(ONE, 10)
    waiting = order(ONE, 10, 1)
    queues.put((waiting,), MANY)
    with pytest.raises(InvariantViolation, match="a request to broker 1 ended that was not in"):
        queues.remove_answered(waiting)


def test_what_waits_for_a_broker_that_does_not_answer_is_bounded() -> None:
    queues = RequestQueues()
    queues.add_broker(ONE, 10)
    orders = [order(ONE, 10, number)._replace(size=3) for number in range(10)]
    queues.put(orders[:1], 8)
    assert queues.next_request(ONE) is orders[0]
    queues.put(orders[1:2], 8)
    assert queues.accepts_requests(ONE)
    queues.put(orders[2:3], 8)
    queues.put(orders[3:4], 8)
    assert (queues.accepts_requests(ONE), queues.behind) == (False, ())
    queues.requeue(orders[0])
    assert queues.next_request(ONE) is orders[0], "nobody knows whether it has arrived"
    queues.remove_answered(orders[0])
    assert (queues.next_request(ONE), queues.behind) == (None, (ONE,))
    queues.put(orders[4:5], 8)
    assert queues.next_request(ONE) is None, "all that it says is told with everything"
    queues.resume(ONE)
    assert (queues.accepts_requests(ONE), queues.behind) == (True, ())
    queues.put(orders[5:7], 8)
    assert queues.next_request(ONE) is orders[5]
    queues.remove_answered(orders[5])
    assert queues.next_request(ONE) is orders[6]


def test_a_single_request_is_never_too_large() -> None:
    queues = RequestQueues()
    queues.add_broker(ONE, 10)
    large = order(ONE, 10, 1)._replace(size=100)
    queues.put((large,), 8)
    assert queues.next_request(ONE) is large
    queues.remove_answered(large)
    assert (queues.accepts_requests(ONE), queues.behind) == (True, ())


@pytest.mark.parametrize("how", ["another broker epoch", "not registered", "no controller"])
def test_a_broker_epoch_that_has_ended_has_nothing_to_catch_up_with(how: str) -> None:
    queues = RequestQueues()
    queues.add_broker(ONE, 10)
    first = order(ONE, 10, 1)
    queues.put((first, *(order(ONE, 10, 2) for _ in range(10))), 8)
    queues.next_request(ONE)
    queues.remove_answered(first)
    assert queues.behind == (ONE,)
    match how:
        case "another broker epoch":
            queues.add_broker(ONE, 11)
            assert queues.accepts_requests(ONE)
        case "not registered":
            queues.remove_broker(ONE)
        case _:
            queues.clear()
    assert queues.behind == ()
