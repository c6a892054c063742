"""The controller context: each index equals the result of a look at all partitions."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.decisions.partition_states import FOUND, STEPS, PartitionState
from klog_broker.controller.decisions.replica_states import FOUND as REPLICA_FOUND
from klog_broker.controller.decisions.replica_states import STEPS as REPLICA_STEPS
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.metadata.image import NO_BROKER, BrokerRegistration
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition

BROKERS = tuple(map(BrokerId, range(3)))
TOPICS = ("a", "b")
brokers = st.sampled_from(BROKERS)
names = st.sampled_from(TOPICS)
partitions = st.builds(TopicPartition, names, st.integers(0, 1))
assignments = st.lists(brokers, min_size=1, unique=True).map(tuple)


class Cluster(RuleBasedStateMachine):
    """Beside the context: the same facts, in the plainest form."""

    def __init__(self) -> None:
        super().__init__()
        self.context = ControllerContext()
        self.epochs: dict[BrokerId, int] = {}
        self.leaving: set[BrokerId] = set()
        self.ids: dict[str, TopicId] = {}
        self.deleted: set[str] = set()
        self.assigned: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        self.led: dict[TopicPartition, Leadership] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.replicas: dict[tuple[TopicPartition, BrokerId], ReplicaState] = {}
        self.zxid = 0
        self.newest = -1

    @rule(broker_id=brokers, is_new=st.booleans())
    def register(self, broker_id: BrokerId, is_new: bool) -> None:
        self.zxid += 1
        if is_new or broker_id not in self.epochs:
            self.epochs[broker_id] = self.newest = self.zxid
            self.leaving.discard(broker_id)
        registration = BrokerRegistration(broker_id, ())
        self.context.put_broker(RegisteredBroker(registration, self.epochs[broker_id]))

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), dies=st.booleans())
    def leave(self, data: st.DataObject, dies: bool) -> None:
        broker_id = data.draw(st.sampled_from(sorted(self.epochs)))
        if dies:
            del self.epochs[broker_id]
            self.leaving.discard(broker_id)
            self.context.remove_broker(broker_id)
        else:
            self.leaving.add(broker_id)
            self.context.begin_shutdown(broker_id)

    @rule(name=names)
    def make_topic(self, name: str) -> None:
        if name not in self.ids:
            self.zxid += 1
            self.ids[name] = TopicId(UUID(int=self.zxid))
            self.context.put_topic(name, self.ids[name])

    @rule(name=names, forgets=st.booleans())
    def delete_topic(self, name: str, forgets: bool) -> None:
        if name not in self.ids:
            return
        if not forgets:
            self.deleted.add(name)
            self.context.queue_deletion(name)
            return
        self.context.remove_topic(name)
        del self.ids[name]
        self.deleted.discard(name)
        for table in (self.assigned, self.led, self.states):
            for partition in [each for each in table if each.topic == name]:
                del table[partition]
        for pair in [each for each in self.replicas if each[0].topic == name]:
            del self.replicas[pair]

    @rule(partition=partitions, replicas=assignments)
    def assign(self, partition: TopicPartition, replicas: tuple[BrokerId, ...]) -> None:
        if partition.topic in self.ids and partition not in self.replica_partitions():
            self.assigned[partition] = replicas
            self.context.assign(partition, replicas)

    @precondition(lambda self: self.assigned)
    @rule(data=st.data())
    def write_leader(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.assigned)))
        in_sync = data.draw(
            st.lists(st.sampled_from(self.assigned[partition]), min_size=1, unique=True)
        )
        leader = data.draw(st.sampled_from((*in_sync, NO_BROKER)))
        self.zxid += 1
        state = LeaderAndIsr(leader, LeaderEpoch(self.zxid), tuple(in_sync))
        as_of = data.draw(st.sampled_from((self.zxid, self.context.newest_registration)))
        self.led[partition] = Leadership(state, 1, self.zxid, as_of)
        self.context.put_leadership(partition, self.led[partition])

    @precondition(lambda self: self.assigned)
    @rule(data=st.data())
    def change_state(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.assigned)))
        before = self.states.get(partition, PartitionState.NON_EXISTENT)
        after = data.draw(st.sampled_from((*STEPS[before], None)))
        if after is None:
            self.states[partition] = self.context.set_initial_state(partition)
            assert self.states[partition] in FOUND
            leader = self.led[partition].state.leader if partition in self.led else None
            expected = PartitionState.ONLINE if leader in self.online() else PartitionState.OFFLINE
            assert self.states[partition] is (PartitionState.NEW if leader is None else expected)
            return
        self.states[partition] = after
        self.context.change_state(partition, after)

    @precondition(lambda self: self.assigned)
    @rule(data=st.data())
    def change_replica(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.assigned)))
        broker_id = data.draw(st.sampled_from(self.assigned[partition]))
        before = self.replicas.get((partition, broker_id), ReplicaState.NON_EXISTENT)
        after = data.draw(st.sampled_from((*REPLICA_STEPS[before], None)))
        if after is None:
            found = self.context.set_initial_replica_state(partition, broker_id)
            assert found in REPLICA_FOUND
            assert (found is ReplicaState.ONLINE) == (broker_id in self.online())
            self.replicas[partition, broker_id] = found
            return
        self.replicas[partition, broker_id] = after
        self.context.change_replica_state(partition, broker_id, after)

    def online(self) -> set[BrokerId]:
        return set(self.epochs) - self.leaving

    def replica_partitions(self) -> set[TopicPartition]:
        return {partition for partition, _ in self.replicas}

    @invariant()
    def brokers_are_known(self) -> None:
        context = self.context
        assert {each: broker.epoch for each, broker in context.brokers.items()} == self.epochs
        assert context.newest_registration == self.newest
        assert set(context.shutting_down) == self.leaving
        assert context.online == self.online()
        for broker_id in BROKERS:
            on = {each for each, replicas in self.assigned.items() if broker_id in replicas}
            assert set(context.partitions_on(broker_id)) == on
            led = {each for each, known in self.led.items() if known.state.leader == broker_id}
            assert set(context.led_by(broker_id)) == led

    @invariant()
    def topics_are_known(self) -> None:
        context = self.context
        assert set(context.topics) == set(self.ids)
        assert set(context.to_be_deleted) == self.deleted
        for name in TOPICS:
            assert context.is_to_be_deleted(name) == (name in self.deleted)
            assert context.topic_id(name) == self.ids.get(name)
        for name, topic_id in self.ids.items():
            assert context.topic_name(topic_id) == name
            of_topic = [each for each in self.assigned if each.topic == name]
            assert sorted(context.partitions_of(name)) == sorted(of_topic)
        for (partition, broker_id), state in self.replicas.items():
            assert context.replica_state(partition, broker_id) is state

    @invariant()
    def partitions_are_known(self) -> None:
        context = self.context
        for name in TOPICS:
            for number in range(2):
                partition = TopicPartition(name, number)
                assert context.assignment(partition) == self.assigned.get(partition, ())
                assert context.leadership(partition) == self.led.get(partition)
                known = self.led.get(partition)
                assert context.bounced(partition) == {
                    broker_id
                    for broker_id in (known.state.in_sync if known else ())
                    if known and self.epochs.get(broker_id, -2) > known.as_of_zxid
                }
                assert context.state(partition) is self.states.get(
                    partition, PartitionState.NON_EXISTENT
                )
                for broker_id in BROKERS:
                    expected = self.replicas.get((partition, broker_id), ReplicaState.NON_EXISTENT)
                    assert context.replica_state(partition, broker_id) is expected
        for state in PartitionState:
            if state is not PartitionState.NON_EXISTENT:
                found = {each for each, one in self.states.items() if one is state}
                assert set(context.in_state(state)) == found


Cluster.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestCluster = Cluster.TestCase
