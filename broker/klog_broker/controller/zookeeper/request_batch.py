"""What brokers are told about a change: requests of a controller, as values. Pure.

A batch collects what one event changed, and makes at most one request of each kind for a broker:
LeaderAndIsr for those that have a replica, UpdateMetadata for all, StopReplica, in Kafka's order.
They are made from the context as it is when the batch ends. A request carries the epochs of the
controller and of the broker's life that it is meant for.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from klog_broker.config.listeners import PROTOCOLS
from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.metadata.image import (
    FIRST_LEADER_EPOCH,
    NO_BROKER,
    BrokerRegistration,
)
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import (
    LeaderAndIsrLiveLeader,
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
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_DURING_DELETE = BrokerId(-2)
"""Told as the leader of a partition whose topic is to be deleted: clients no longer see it."""

EPOCH_DURING_DELETE = LeaderEpoch(-2)
"""The leader epoch of an order to stop replicas of such a topic: it is above all others."""

FULL = 2
"""The type of an UpdateMetadata that has all there is."""

Order = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class BrokerOrder(NamedTuple):
    """A request for a broker, in the life that began with `broker_epoch`."""

    broker_id: BrokerId
    broker_epoch: int
    request: Order
    size: int = 1
    """How many partitions and brokers it names, and one for itself."""


@dataclass(slots=True)
class Everything:
    """What is told of all partitions."""

    topics: dict[str, UpdateMetadataTopicState] = field(default_factory=dict)


class OrderBatch:
    """See the module. `listener` is that of the brokers among themselves. ZooKeeper has something
    of `unreadable` topics, of which only their names are known. `unpublished` partitions, by topic,
    are named in no UpdateMetadata request before `collect`. `untold` brokers wait for the request
    with everything: before that a request names only topics of which it has all partitions."""

    def __init__(
        self,
        context: ControllerContext,
        *,
        controller_id: BrokerId,
        controller_epoch: int,
        listener: str,
        unreadable: Set[str] = frozenset(),
        unpublished: Mapping[str, Container[TopicPartition]] = MappingProxyType({}),
        untold: Container[BrokerId] = (),
    ) -> None:
        self._context = context
        self._unreadable = unreadable
        self._unpublished = unpublished
        self._untold = untold
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._listener = listener
        # By broker, then by partition: whether the replica is new; whether its log is deleted.
        self._led: dict[BrokerId, dict[TopicPartition, bool]] = {}
        self._stopped: dict[BrokerId, dict[TopicPartition, bool]] = {}
        self._told: dict[BrokerId, None] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._collected: dict[str, UpdateMetadataTopicState] = {}
        self._entire: set[str] = set()
        """The topics of which all partitions are in `_collected`."""
        self._everything: Everything | None = None

    def lead(
        self, partition: TopicPartition, brokers: Iterable[BrokerId], *, is_new: bool = False
    ) -> None:
        """Tell brokers who leads a partition that they have a replica of; every broker is told of
        the partition. `is_new`: there was no replica before."""
        for broker_id in brokers:
            self.lead_again(partition, broker_id, is_new=is_new)
        self.tell(self._context.brokers, (partition,))

    def lead_again(
        self, partition: TopicPartition, broker_id: BrokerId, *, is_new: bool = False
    ) -> None:
        """As `lead`, for one broker: the others know of the partition."""
        if not self._is_led(partition):
            raise InvariantViolation(f"partition {partition} never had a leader to tell of")
        states = self._led.setdefault(broker_id, {})
        states[partition] = is_new or states.get(partition, False)

    def stop(
        self, partition: TopicPartition, brokers: Iterable[BrokerId], *, deletes: bool
    ) -> None:
        """Tell brokers to have no replica of a partition any more, or also to delete its log."""
        for broker_id in brokers:
            states = self._stopped.setdefault(broker_id, {})
            states[partition] = deletes or states.get(partition, False)

    def tell(self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition]) -> None:
        """Tell brokers of the cluster's brokers and of partitions; others that the batch tells of
        partitions hear of these, too. A partition that never had a leader is left out."""
        self._told.update(dict.fromkeys(brokers))
        self._changed.update(
            (each, None) for each in partitions if each not in self._unpublished.get(each.topic, ())
        )

    def collect(self, partitions: Sequence[TopicPartition]) -> Iterator[None]:
        """Name these partitions in the UpdateMetadata request to all brokers, even those that never
        had a leader. A step for each partition; until the batch ends they must not change."""
        self._told.update(dict.fromkeys(self._context.brokers))
        for partition in partitions:
            self._put_whole(self._collected, partition)
            yield
        for topic in {each.topic: None for each in partitions}:
            states = self._collected[topic].partition_states
            if len(states) == len(self._context.partitions_of(topic)):
                self._entire.add(topic)

    def collect_all(self, everything: Everything) -> Iterator[None]:
        """What is told of all partitions. A step for each of them; meanwhile nothing may change.

        A topic that cannot be read is named without its id: it must not be taken for deleted.
        """
        for topic in self._context.topics:
            for partition in self._context.partitions_of(topic):
                self._put_whole(everything.topics, partition)
                yield
        for topic in self._unreadable:
            everything.topics[topic] = UpdateMetadataTopicState(topic_name=topic)

    def tell_all(self, broker_id: BrokerId, everything: Everything) -> None:
        """Tell a broker of the cluster's brokers and of all partitions, as they were collected in
        this state of the context, and nobody anything else: what else it knows is gone.

        Kafka's brokers take that for no more than news, since they look at the type of a request
        only if a controller of KRaft sends it.
        """
        self._everything = everything
        self._told[broker_id] = None

    def requests(self) -> list[BrokerOrder]:
        """The requests in the order in which each broker is to get them. The batch is over."""
        brokers = self._context.brokers
        orders: list[tuple[BrokerId, Order, int]] = []
        for broker_id, states in self._led.items():
            # A topic may have been removed by hand since.
            there = {each: states[each] for each in states if self._is_led(each)}
            if there:
                orders.append((broker_id, self._leader_and_isr(there), len(there)))
        orders += self._update_metadata()
        orders += [
            (broker_id, self._stop_replica(states), len(states))
            for broker_id, states in self._stopped.items()
        ]
        made = []
        for broker_id, request, size in orders:
            broker = brokers.get(broker_id)
            # Who is not there is told when it registers.
            if broker is not None:
                request.broker_epoch = broker.epoch
                made.append(BrokerOrder(broker_id, broker.epoch, request, 1 + size))
        return made

    # --- LeaderAndIsr --------------------------------------------------------------------------

    def _is_led(self, partition: TopicPartition) -> bool:
        return self._context.leadership(partition) is not None

    def _leader_and_isr(self, states: dict[TopicPartition, bool]) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders: dict[BrokerId, None] = {}
        for partition, is_new in states.items():
            state = self._leader_state(partition, is_new)
            leaders[BrokerId(state.leader)] = None
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = LeaderAndIsrTopicState(
                    topic_name=partition.topic,
                    topic_id=self._context.topic_id(partition.topic) or NO_TOPIC_ID,
                )
            topic.partition_states.append(state)
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            topic_states=list(topics.values()),
            live_leaders=self._live_leaders(leaders),
        )

    def _leader_state(self, partition: TopicPartition, is_new: bool) -> LeaderAndIsrPartitionState:
        known = self._context.leadership(partition)
        assert known is not None
        return LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=known.state.leader,
            leader_epoch=known.state.leader_epoch,
            isr=_numbers(known.state.in_sync),
            partition_epoch=known.partition_epoch,
            replicas=_numbers(self._context.assignment(partition)),
            is_new=is_new,
            leader_recovery_state=int(known.state.is_recovering),
        )

    def _live_leaders(self, leaders: Iterable[BrokerId]) -> list[LeaderAndIsrLiveLeader]:
        found = []
        for broker_id in leaders:
            broker = self._context.brokers.get(broker_id)
            address = broker and broker.registration.endpoint(self._listener)
            if address:
                found.append(
                    LeaderAndIsrLiveLeader(
                        broker_id=broker_id, host_name=address.host, port=address.port
                    )
                )
        return found

    # --- UpdateMetadata ------------------------------------------------------------------------

    def _update_metadata(self) -> list[tuple[BrokerId, Order, int]]:
        """One request a broker; they share what they tell."""
        topics = self._told_topics()
        size = sum(len(each.partition_states) for each in topics) + len(self._context.brokers)
        live = [_told_broker(each.registration) for each in self._context.brokers.values()]
        entire = [each for each in topics if each.topic_name in self._entire]
        is_full = self._everything is not None
        requests: list[tuple[BrokerId, Order, int]] = []
        for broker_id in self._told:
            is_new = broker_id in self._untold and not is_full
            if is_new and topics and not entire:
                continue  # The request with everything follows.
            request = UpdateMetadataRequest(
                type=FULL if is_full else 0,
                controller_id=self._controller_id,
                controller_epoch=self._controller_epoch,
                topic_states=entire if is_new else topics,
                live_brokers=live,
            )
            requests.append((broker_id, request, size))
        return requests

    def _told_topics(self) -> list[UpdateMetadataTopicState]:
        if self._everything is not None:
            return list(self._everything.topics.values())
        topics = self._collected
        for partition in self._changed:
            state = self._told_state(partition)
            if state is not None:
                self._put(topics, partition, state)
        return list(topics.values())

    def _put_whole(
        self, topics: dict[str, UpdateMetadataTopicState], partition: TopicPartition
    ) -> None:
        """Put in a partition also if it never had a leader: else clients would count too few."""
        state = self._told_state(partition) or self._told_before_it_is_led(partition)
        self._put(topics, partition, state)

    def _put(
        self,
        topics: dict[str, UpdateMetadataTopicState],
        partition: TopicPartition,
        state: UpdateMetadataPartitionState,
    ) -> None:
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = UpdateMetadataTopicState(
                topic_name=partition.topic,
                topic_id=self._context.topic_id(partition.topic) or NO_TOPIC_ID,
            )
        topic.partition_states.append(state)

    def _told_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        known = self._context.leadership(partition)
        if known is None:
            return None
        state, partition_epoch = known.state, known.partition_epoch
        if self._context.is_to_be_deleted(partition.topic):
            state = LeaderAndIsr(LEADER_DURING_DELETE, FIRST_LEADER_EPOCH, state.in_sync)
            partition_epoch = 0
        replicas = self._context.assignment(partition)
        online = self._context.online_for(partition)
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=_numbers(state.in_sync),
            zk_version=partition_epoch,
            replicas=_numbers(replicas),
            offline_replicas=[broker_id for broker_id in replicas if broker_id not in online],
        )

    def _told_before_it_is_led(self, partition: TopicPartition) -> UpdateMetadataPartitionState:
        """Its epochs are below all that will be told of it. (Of one whose state cannot be read more
        may have been told before, and its topic may be deleted.)"""
        is_deleted = self._context.is_to_be_deleted(partition.topic)
        return UpdateMetadataPartitionState(
            partition_index=partition.partition,
            controller_epoch=self._controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleted else NO_BROKER,
            leader_epoch=NO_LEADER_EPOCH,
            zk_version=-1,
            replicas=_numbers(self._context.assignment(partition)),
            offline_replicas=_numbers(self._context.assignment(partition)),
        )

    # --- StopReplica ---------------------------------------------------------------------------

    def _stop_replica(self, states: dict[TopicPartition, bool]) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for partition, deletes in states.items():
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = StopReplicaTopicState(topic_name=partition.topic)
            topic.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=partition.partition,
                    leader_epoch=self._epoch_to_stop(partition),
                    delete_partition=deletes,
                )
            )
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._controller_epoch,
            topic_states=list(topics.values()),
        )

    def _epoch_to_stop(self, partition: TopicPartition) -> LeaderEpoch:
        if self._context.is_to_be_deleted(partition.topic):
            return EPOCH_DURING_DELETE
        known = self._context.leadership(partition)
        return NO_LEADER_EPOCH if known is None else known.state.leader_epoch


def _told_broker(registration: BrokerRegistration) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=registration.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.name,
                # Kafka numbers the protocols in this order.
                security_protocol=PROTOCOLS.index(each.protocol),
            )
            for each in registration.endpoints
        ],
        rack=registration.rack,
    )


def _numbers(brokers: Sequence[BrokerId]) -> list[int]:
    return list(brokers)
