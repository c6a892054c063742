"""The controller context: brokers, topics, assignments, leaders and states of the cluster.

The context is in memory only and performs no I/O. Partitions are indexed by broker, so that the
failure of a broker costs time in proportion to its own partitions. Most methods return a copy (a
tuple, list, dict or frozenset), so a caller may change the context while it iterates; `brokers` is
a live view. Tuples, lists and dicts keep the order of insertion.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.partition_states import check_step as check_partition_step
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.decisions.replica_states import check_step as check_replica_step
from klog_broker.metadata.image import NO_BROKER, BrokerRegistration
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition

_NONE: frozenset[BrokerId] = frozenset()


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A registered broker, which may be shutting down. The epoch is its registration's czxid."""

    registration: BrokerRegistration
    epoch: int


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's leader and ISR as they were last read or written: the `state` znode.

    The partition epoch is the znode's version. `as_of_zxid` is the id of a ZooKeeper transaction:
    the controller that wrote the state knew all broker registrations up to this transaction. If
    this controller read the state, `as_of_zxid` is the znode's mzxid. If this controller wrote the
    state, `as_of_zxid` is the highest broker epoch that it knew then (`newest_registration`),
    because a broker may have registered before the write, unknown to this controller.
    """

    state: LeaderAndIsr
    controller_epoch: int
    partition_epoch: int
    as_of_zxid: int


@dataclass(slots=True)
class _Topic:
    topic_id: TopicId
    assignments: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    replicas: int = 0
    deleted: int = 0
    """The number of the topic's replicas in state DELETION_SUCCESSFUL."""


class ControllerContext:
    """The controller's knowledge of its cluster, in memory. Its methods perform no I/O."""

    def __init__(self) -> None:
        self._brokers: dict[BrokerId, RegisteredBroker] = {}
        self._shutting_down: dict[BrokerId, None] = {}
        self._online: frozenset[BrokerId] = frozenset()
        self._newest_registration = -1
        self._failed: dict[TopicPartition, frozenset[BrokerId]] = {}
        self._topics: dict[str, _Topic] = {}
        self._names: dict[TopicId, str] = {}
        self._to_be_deleted: dict[str, None] = {}
        self._leaderships: dict[TopicPartition, Leadership] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._in_state: dict[PartitionState, dict[TopicPartition, None]] = {
            state: {} for state in PartitionState
        }
        self._replica_states: dict[tuple[TopicPartition, BrokerId], ReplicaState] = {}
        self._partitions_on: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._led_by: dict[BrokerId, dict[TopicPartition, None]] = {}
        self._partition_count = 0

    # --- registered brokers --------------------------------------------------------------------

    @property
    def brokers(self) -> Mapping[BrokerId, RegisteredBroker]:
        """A live view of all registered brokers, including brokers that are shutting down."""
        return MappingProxyType(self._brokers)

    @property
    def shutting_down(self) -> tuple[BrokerId, ...]:
        """The registered brokers that have sent ControlledShutdown."""
        return tuple(self._shutting_down)

    @property
    def online(self) -> frozenset[BrokerId]:
        """The brokers whose replicas may lead: registered and not shutting down."""
        return self._online

    @property
    def newest_registration(self) -> int:
        """The highest broker epoch ever passed to `put_broker`; -1 before the first call.

        A broker epoch is the zxid of the transaction that registered the broker. If the caller
        always reads all registrations together, the context knows every registration up to the
        returned zxid.
        """
        return self._newest_registration

    def put_broker(self, broker: RegisteredBroker) -> None:
        """Add or update a registered broker.

        A new broker epoch means that the broker registered again: its earlier shutdown request and
        its failed replicas are forgotten.
        """
        broker_id = broker.registration.broker_id
        before = self._brokers.get(broker_id)
        if before is None or before.epoch != broker.epoch:
            self._shutting_down.pop(broker_id, None)
            self._forget_failed(broker_id)
        self._brokers[broker_id] = broker
        self._newest_registration = max(self._newest_registration, broker.epoch)
        self._brokers_changed()

    def remove_broker(self, broker_id: BrokerId) -> None:
        """Remove a broker whose registration no longer exists."""
        del self._brokers[broker_id]
        self._shutting_down.pop(broker_id, None)
        self._forget_failed(broker_id)
        self._brokers_changed()

    def begin_shutdown(self, broker_id: BrokerId) -> None:
        """Mark a registered broker as shutting down."""
        if broker_id not in self._brokers:
            raise InvariantViolation(f"broker {broker_id} is to shut down, but is not registered")
        self._shutting_down[broker_id] = None
        self._brokers_changed()

    def _brokers_changed(self) -> None:
        self._online = frozenset(self._brokers.keys() - self._shutting_down.keys())

    # --- failed replicas -----------------------------------------------------------------------

    @property
    def has_failed_replicas(self) -> bool:
        """Whether any registered broker cannot use one of its logs, as it reported last."""
        return bool(self._failed)

    def failed_brokers(self, partition: TopicPartition) -> frozenset[BrokerId]:
        """The registered brokers that cannot use their logs of this partition, as they reported in
        their present broker epochs."""
        return self._failed.get(partition, _NONE)

    def failed_replicas(self) -> dict[TopicPartition, frozenset[BrokerId]]:
        """The brokers with failed replicas (`failed_brokers`), for each partition that has such
        brokers."""
        return dict(self._failed)

    def online_for(self, partition: TopicPartition) -> frozenset[BrokerId]:
        """The brokers whose replicas of this partition may lead or join the ISR."""
        failed = self._failed.get(partition)
        return self._online if failed is None else self._online - failed

    def mark_replica_failed(self, partition: TopicPartition, broker_id: BrokerId) -> None:
        """Record that a registered broker cannot use its log of a partition."""
        self._failed[partition] = self.failed_brokers(partition) | {broker_id}

    def mark_replica_working(self, partition: TopicPartition, broker_id: BrokerId) -> None:
        """Record that a broker can use its log of a partition again."""
        if partition in self._failed:
            self._put_failed(partition, self._failed[partition] - {broker_id})

    def _forget_failed(self, broker_id: BrokerId) -> None:
        for partition, brokers in list(self._failed.items()):
            self._put_failed(partition, brokers - {broker_id})

    def _put_failed(self, partition: TopicPartition, brokers: frozenset[BrokerId]) -> None:
        if brokers:
            self._failed[partition] = brokers
        else:
            del self._failed[partition]

    # --- topics and assignments ----------------------------------------------------------------

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics, including topics to be deleted."""
        return tuple(self._topics)

    def put_topic(self, name: str, topic_id: TopicId) -> None:
        """Add a topic without partitions; `assign` adds them."""
        if name in self._topics:
            raise InvariantViolation(f"topic {name} is in the context already")
        self._topics[name] = _Topic(topic_id)
        self._names[topic_id] = name

    def remove_topic(self, name: str) -> None:
        """Remove a topic, its partitions with their leaders and ISRs, and its replicas' states."""
        for partition in self.partitions_of(name):
            self.remove_partition(partition)
        del self._names[self._topics.pop(name).topic_id]
        self._to_be_deleted.pop(name, None)

    def topic_id(self, name: str) -> TopicId | None:
        """The id of a topic; None if the context does not have the topic."""
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name of the topic with this id; None if the context has no such topic."""
        return self._names.get(topic_id)

    def assign(self, partition: TopicPartition, replicas: tuple[BrokerId, ...]) -> None:
        """Set the brokers that hold a partition's replicas, the preferred leader first."""
        before, topic = self.assignment(partition), self._topics[partition.topic]
        for broker_id in before:
            self._partitions_on[broker_id].pop(partition, None)
        if partition.partition not in topic.assignments:
            self._partition_count += 1
        topic.assignments[partition.partition] = replicas
        topic.replicas += len(replicas) - len(before)
        for broker_id in replicas:
            self._partitions_on.setdefault(broker_id, {})[partition] = None

    def assignment(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """The brokers of a partition's replicas; empty if the context has no such partition."""
        topic = self._topics.get(partition.topic)
        return () if topic is None else topic.assignments.get(partition.partition, ())

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics, including topics to be deleted and partitions
        that never had a leader."""
        return self._partition_count

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        return [TopicPartition(topic, number) for number in self._topics[topic].assignments]

    def partitions_on(self, broker_id: BrokerId) -> tuple[TopicPartition, ...]:
        """The partitions that have a replica assigned to a broker."""
        return tuple(self._partitions_on.get(broker_id, ()))

    def remove_partition(self, partition: TopicPartition) -> None:
        """Remove a partition, its leader and ISR, and its replicas' states; the topic stays."""
        topic = self._topics[partition.topic]
        self._partition_count -= 1
        for broker_id in topic.assignments.pop(partition.partition):
            topic.replicas -= 1
            del self._partitions_on[broker_id][partition]
            replica = self._replica_states.pop((partition, broker_id), None)
            topic.deleted -= replica is ReplicaState.DELETION_SUCCESSFUL
        self._failed.pop(partition, None)
        known = self._leaderships.pop(partition, None)
        if known is not None and known.state.leader != NO_BROKER:
            del self._led_by[known.state.leader][partition]
        state = self._states.pop(partition, None)
        if state is not None:
            del self._in_state[state][partition]

    # --- topics to be deleted ------------------------------------------------------------------

    @property
    def to_be_deleted(self) -> tuple[str, ...]:
        """The topics whose deletion was requested and is not complete."""
        return tuple(self._to_be_deleted)

    def is_to_be_deleted(self, topic: str) -> bool:
        """Whether a topic's deletion was requested and is not complete."""
        return topic in self._to_be_deleted

    def is_deleted(self, topic: str) -> bool:
        """Whether a topic is to be deleted and all of its replicas are deleted."""
        known = self._topics[topic]
        return topic in self._to_be_deleted and known.deleted == known.replicas

    def queue_deletion(self, topic: str) -> None:
        """Mark a topic as to be deleted."""
        if topic not in self._topics:
            raise InvariantViolation(f"topic {topic} is to be deleted, but is not in the context")
        self._to_be_deleted[topic] = None

    # --- leaders and ISRs of partitions --------------------------------------------------------

    def leadership(self, partition: TopicPartition) -> Leadership | None:
        """The state of a partition that the controller last read from ZooKeeper or wrote; None if
        no controller ever wrote one, if it cannot be read, or if the context does not have the
        partition."""
        return self._leaderships.get(partition)

    def put_leadership(self, partition: TopicPartition, leadership: Leadership) -> None:
        """Set a partition's leader and ISR, which were just read from or written to ZooKeeper."""
        before = self._leaderships.get(partition)
        if before is not None and before.state.leader != NO_BROKER:
            del self._led_by[before.state.leader][partition]
        self._leaderships[partition] = leadership
        if leadership.state.leader != NO_BROKER:
            self._led_by.setdefault(leadership.state.leader, {})[partition] = None

    def led_by(self, broker_id: BrokerId) -> tuple[TopicPartition, ...]:
        """The partitions whose last read or written state names this broker as the leader."""
        return tuple(self._led_by.get(broker_id, ()))

    def bounced(self, partition: TopicPartition) -> frozenset[BrokerId]:
        """The ISR members whose broker registered after the partition's state was written.

        Precisely: the controller that wrote the state did not know the broker's present
        registration. The replica on such a broker may have lost records since it joined the ISR,
        because an unclean stop of the broker's machine loses unflushed data.
        """
        known = self._leaderships.get(partition)
        if known is None:
            return frozenset()
        return frozenset(
            broker_id
            for broker_id in known.state.in_sync
            if (broker := self._brokers.get(broker_id)) is not None
            and broker.epoch > known.as_of_zxid
        )

    # --- states of partitions and replicas -----------------------------------------------------

    def state(self, partition: TopicPartition) -> PartitionState:
        """A partition's state; NON_EXISTENT if the context does not have the partition, if its
        state znode is unreadable, or if its topic is being deleted."""
        return self._states.get(partition, PartitionState.NON_EXISTENT)

    def set_initial_state(self, partition: TopicPartition) -> PartitionState:
        """Set and return the state of a partition that was just read from ZooKeeper, by the rules
        of the table partition_states.FOUND."""
        known = self._leaderships.get(partition)
        if known is None:
            state = PartitionState.NEW
        elif known.state.leader in self._online:
            state = PartitionState.ONLINE
        else:
            state = PartitionState.OFFLINE
        self._put_state(partition, state)
        return state

    def change_state(self, partition: TopicPartition, after: PartitionState) -> None:
        """Change a partition's state.

        Raises InvariantViolation if partition_states.STEPS, the table of permitted changes, does
        not contain this change.
        """
        check_partition_step(partition, self.state(partition), after)
        self._put_state(partition, after)

    def in_state(self, state: PartitionState) -> tuple[TopicPartition, ...]:
        """All partitions in a state, which must not be NON_EXISTENT."""
        return tuple(self._in_state[state])

    def state_count(self, state: PartitionState) -> int:
        """The number of partitions in a state, which must not be NON_EXISTENT."""
        return len(self._in_state[state])

    def _put_state(self, partition: TopicPartition, after: PartitionState) -> None:
        before = self._states.pop(partition, None)
        if before is not None:
            del self._in_state[before][partition]
        if after is not PartitionState.NON_EXISTENT:
            self._states[partition] = after
            self._in_state[after][partition] = None

    def replica_state(self, partition: TopicPartition, broker_id: BrokerId) -> ReplicaState:
        """A replica's state; NON_EXISTENT if the context does not have the replica."""
        return self._replica_states.get((partition, broker_id), ReplicaState.NON_EXISTENT)

    def set_initial_replica_state(
        self, partition: TopicPartition, broker_id: BrokerId
    ) -> ReplicaState:
        """Set and return the state of a replica whose partition was just read from ZooKeeper, by
        the rules of the table replica_states.FOUND."""
        is_online = broker_id in self._online
        state = ReplicaState.ONLINE if is_online else ReplicaState.DELETION_INELIGIBLE
        self._replica_states[partition, broker_id] = state
        return state

    def change_replica_state(
        self, partition: TopicPartition, broker_id: BrokerId, after: ReplicaState
    ) -> None:
        """Change a replica's state.

        Raises InvariantViolation if replica_states.STEPS, the table of permitted changes, does not
        contain this change.
        """
        before = self.replica_state(partition, broker_id)
        check_replica_step(partition, broker_id, before, after)
        deleted = ReplicaState.DELETION_SUCCESSFUL
        self._topics[partition.topic].deleted += (after is deleted) - (before is deleted)
        if after is ReplicaState.NON_EXISTENT:
            del self._replica_states[partition, broker_id]
        else:
            self._replica_states[partition, broker_id] = after
