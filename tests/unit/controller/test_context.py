"""The controller context: the changes that it refuses, and the order of its lists."""

import pytest

from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.metadata.image import BrokerRegistration
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition

ONE, TWO = BrokerId(1), BrokerId(2)
PARTITION = TopicPartition("t", 0)


def registered(broker_id: BrokerId, epoch: int) -> RegisteredBroker:
    return RegisteredBroker(BrokerRegistration(broker_id, ()), epoch)


def context_with_a_topic() -> ControllerContext:
    context = ControllerContext()
    context.put_topic("t", TopicId(UUID(int=5)))
    for number in (2, 0, 1):
        context.assign(TopicPartition("t", number), (ONE, TWO))
    return context


def led(leader: BrokerId, as_of_zxid: int) -> Leadership:
    return Leadership(LeaderAndIsr(leader, LeaderEpoch(1), (ONE, TWO)), 1, 0, as_of_zxid)


def test_what_it_does_not_know_it_refuses() -> None:
    context = context_with_a_topic()
    with pytest.raises(InvariantViolation, match="broker 1 is to shut down, but is not registered"):
        context.begin_shutdown(ONE)
    with pytest.raises(InvariantViolation, match="topic u is to be deleted, but is not in the"):
        context.queue_deletion("u")
    with pytest.raises(InvariantViolation, match="topic t is in the context already"):
        context.put_topic("t", TopicId(UUID(int=6)))
    with pytest.raises(InvariantViolation, match="t-0 is NonExistent and cannot become Online"):
        context.change_state(PARTITION, PartitionState.ONLINE)
    with pytest.raises(InvariantViolation, match="on broker 2 is NonExistent and cannot become"):
        context.change_replica_state(PARTITION, TWO, ReplicaState.ONLINE)


def test_partitions_are_listed_in_the_order_in_which_they_came() -> None:
    context = context_with_a_topic()
    for number in (1, 2, 0):
        context.put_leadership(TopicPartition("t", number), led(ONE, 9))
    assert [partition.partition for partition in context.partitions_on(ONE)] == [2, 0, 1]
    assert [partition.partition for partition in context.led_by(ONE)] == [1, 2, 0]


def test_each_partition_is_counted_once() -> None:
    context = context_with_a_topic()
    context.put_leadership(PARTITION, led(ONE, 9))
    context.assign(PARTITION, (TWO,))
    assert context.partition_count == 3
    context.remove_partition(PARTITION)
    assert context.partition_count == 2
    context.remove_topic("t")
    assert context.partition_count == 0


def test_what_was_listed_does_not_change() -> None:
    context = context_with_a_topic()
    context.put_leadership(PARTITION, led(ONE, 9))
    listed = context.led_by(ONE)
    for partition in listed:
        context.put_leadership(partition, led(TWO, 10))
    assert listed == (PARTITION,)
    assert context.led_by(ONE) == ()


def test_a_broker_bounces_when_it_registers_after_the_state_was_written() -> None:
    context = context_with_a_topic()
    context.put_broker(registered(ONE, 3))
    context.put_broker(registered(TWO, 4))
    context.put_leadership(PARTITION, led(ONE, 9))
    assert context.bounced(PARTITION) == frozenset()
    context.put_broker(registered(TWO, 10))
    assert context.bounced(PARTITION) == {TWO}
    context.remove_broker(TWO)
    assert context.bounced(PARTITION) == frozenset()
    assert context.bounced(TopicPartition("t", 1)) == frozenset()


def test_a_write_hides_no_bounce_that_its_writer_did_not_know() -> None:
    context = context_with_a_topic()
    context.put_broker(registered(ONE, 3))
    context.put_broker(registered(TWO, 4))
    # Broker 2 registers again in transaction 10; the state is written in 11, before that is read.
    context.put_leadership(PARTITION, led(ONE, context.newest_registration))
    context.put_broker(registered(TWO, 10))
    assert context.bounced(PARTITION) == {TWO}
    context.put_leadership(PARTITION, led(ONE, context.newest_registration))
    assert context.bounced(PARTITION) == frozenset()
    context.remove_broker(TWO)
    assert context.newest_registration == 10


def test_a_new_registration_of_a_broker_is_not_shutting_down() -> None:
    context = ControllerContext()
    context.put_broker(registered(ONE, 3))
    context.begin_shutdown(ONE)
    context.put_broker(registered(ONE, 3))
    assert (context.shutting_down, context.online) == ((ONE,), frozenset())
    context.put_broker(registered(ONE, 4))
    assert (context.shutting_down, context.online) == ((), {ONE})


def test_a_topic_that_is_made_again_knows_nothing_of_the_earlier_one() -> None:
    context = context_with_a_topic()
    context.put_leadership(PARTITION, led(ONE, 9))
    context.set_initial_state(PARTITION)
    context.set_initial_replica_state(PARTITION, TWO)
    context.queue_deletion("t")
    context.remove_topic("t")
    context.put_topic("t", TopicId(UUID(int=6)))
    context.assign(PARTITION, (TWO,))
    assert not context.is_to_be_deleted("t")
    assert context.topic_name(TopicId(UUID(int=5))) is None
    assert context.leadership(PARTITION) is None
    assert (context.led_by(ONE), context.partitions_on(ONE)) == ((), ())
    assert context.state(PARTITION) is PartitionState.NON_EXISTENT
    assert context.replica_state(PARTITION, TWO) is ReplicaState.NON_EXISTENT
