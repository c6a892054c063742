"""Batches of controller requests: LeaderAndIsr, UpdateMetadata and StopReplica for brokers.

A batch collects changes of one event, and makes at most one request of each kind for a broker, in
Kafka's order: LeaderAndIsr, UpdateMetadata, then StopReplica. The requests describe the controller
context when `requests` is called. Each request carries the controller epoch, and the epoch of the
broker that is to get it.
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
"""The leader that UpdateMetadata names for a partition whose topic is to be deleted; brokers then
no longer show the topic to clients."""

EPOCH_DURING_DELETE = LeaderEpoch(-2)
"""The leader epoch in StopReplica for a topic to be deleted. Brokers carry out such a request
whatever leader epoch their replica has."""

FULL = 2
"""The type of an UpdateMetadata request that contains all topics."""

ControllerRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class BrokerRequest(NamedTuple):
    """A controller request for a broker with this broker epoch."""

    broker_id: BrokerId
    broker_epoch: int
    request: ControllerRequest
    size: int = 1
    """About the number of partitions and brokers that the request names; at least one."""


@dataclass(slots=True)
class FullMetadata:
    """The topic states of the full UpdateMetadata request, by topic name."""

    topics: dict[str, UpdateMetadataTopicState] = field(default_factory=dict)


class RequestBatch:
    """Collects changes, and makes the requests that report the changes to brokers.

    `listener` is the name of the inter-broker listener. `unreadable` has the names of topics whose
    znodes exist and cannot be read. `unpublished` has new partitions, by topic, that
    `add_update_metadata` omits. `awaiting_full_metadata` has the brokers that wait for the full
    UpdateMetadata request: any other UpdateMetadata request to these brokers names a topic only
    with all of its partitions.
    """

    def __init__(
        self,
        context: ControllerContext,
        *,
        controller_id: BrokerId,
        controller_epoch: int,
        listener: str,
        unreadable: Set[str] = frozenset(),
        unpublished: Mapping[str, Container[TopicPartition]] = MappingProxyType({}),
        awaiting_full_metadata: Container[BrokerId] = (),
    ) -> None:
        self._context = context
        self._unreadable = unreadable
        self._unpublished = unpublished
        self._awaiting_full_metadata = awaiting_full_metadata
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._listener = listener
        # By broker and partition: `_led` is for LeaderAndIsr and says whether the replica is new;
        # `_stopped` is for StopReplica and says whether the replica's log is to be deleted.
        self._led: dict[BrokerId, dict[TopicPartition, bool]] = {}
        self._stopped: dict[BrokerId, dict[TopicPartition, bool]] = {}
        self._update_recipients: dict[BrokerId, None] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._collected: dict[str, UpdateMetadataTopicState] = {}
        self._entire: set[str] = set()
        """Topics of which `_collected`, the states for UpdateMetadata, names all partitions."""
        self._everything: FullMetadata | None = None

    def add_leader_and_isr(
        self, partition: TopicPartition, brokers: Iterable[BrokerId], *, is_new: bool = False
    ) -> None:
        """Add LeaderAndIsr for these replicas of a partition, and UpdateMetadata for all brokers.

        `is_new` means that the partition has just got its first leader.
        """
        for broker_id in brokers:
            self.add_leader_and_isr_for(partition, broker_id, is_new=is_new)
        self.add_update_metadata(self._context.brokers, (partition,))

    def add_leader_and_isr_for(
        self, partition: TopicPartition, broker_id: BrokerId, *, is_new: bool = False
    ) -> None:
        """Add LeaderAndIsr for one replica of a partition, and no UpdateMetadata."""
        if not self._is_led(partition):
            raise InvariantViolation(f"no LeaderAndIsr: partition {partition} never had a leader")
        states = self._led.setdefault(broker_id, {})
        states[partition] = is_new or states.get(partition, False)

    def add_stop_replica(
        self, partition: TopicPartition, brokers: Iterable[BrokerId], *, deletes: bool
    ) -> None:
        """Add StopReplica of a partition for these brokers; with `deletes`, they delete the log."""
        for broker_id in brokers:
            states = self._stopped.setdefault(broker_id, {})
            states[partition] = deletes or states.get(partition, False)

    def add_update_metadata(
        self, brokers: Iterable[BrokerId], partitions: Iterable[TopicPartition]
    ) -> None:
        """Add UpdateMetadata with all registered brokers and these partitions, for `brokers`.

        All UpdateMetadata requests of a batch have the same content, so brokers from other calls
        get these partitions, too (except for brokers that wait for the full UpdateMetadata
        request). Partitions that never had a leader are omitted, and so are new partitions that
        `collect` adds later with the rest of their topic.
        """
        self._update_recipients.update(dict.fromkeys(brokers))
        self._changed.update(
            (each, None) for each in partitions if each not in self._unpublished.get(each.topic, ())
        )

    def collect(self, partitions: Sequence[TopicPartition]) -> Iterator[None]:
        """Add UpdateMetadata with these partitions, even those without a leader, for all brokers.

        Yields once for each partition, so that the caller can spread the work over several
        event-loop turns. The partitions must not change until `requests` is called.
        """
        self._update_recipients.update(dict.fromkeys(self._context.brokers))
        for partition in partitions:
            self._put_whole(self._collected, partition)
            yield
        for topic in {each.topic: None for each in partitions}:
            states = self._collected[topic].partition_states
            if len(states) == len(self._context.partitions_of(topic)):
                self._entire.add(topic)

    def collect_all(self, everything: FullMetadata) -> Iterator[None]:
        """Fill `everything` with all topics, for `add_full_metadata`.

        Yields once for each partition, so that the caller can spread the work over several
        event-loop turns; meanwhile the context must not change. An unreadable topic is included
        without its id, so that brokers do not treat the topic as deleted.
        """
        for topic in self._context.topics:
            for partition in self._context.partitions_of(topic):
                self._put_whole(everything.topics, partition)
                yield
        for topic in self._unreadable:
            everything.topics[topic] = UpdateMetadataTopicState(topic_name=topic)

    def add_full_metadata(self, broker_id: BrokerId, everything: FullMetadata) -> None:
        """Add the full UpdateMetadata request for a broker: it replaces all metadata of the broker.

        `everything` was filled by `collect_all` from the present context. The batch must contain no
        other partitions. Kafka's brokers handle the request as an ordinary update, because they
        look at the type (`FULL`) only in requests of KRaft controllers.
        """
        self._everything = everything
        self._update_recipients[broker_id] = None

    def requests(self) -> list[BrokerRequest]:
        """Make the requests, in the order in which each broker must get them.

        Call once, after all other methods.
        """
        brokers = self._context.brokers
        requests: list[tuple[BrokerId, ControllerRequest, int]] = []
        for broker_id, states in self._led.items():
            # Omit partitions whose topic was removed from ZooKeeper by hand after they were added.
            there = {each: states[each] for each in states if self._is_led(each)}
            if there:
                requests.append((broker_id, self._leader_and_isr(there), len(there)))
        requests += self._update_metadata()
        requests += [
            (broker_id, self._stop_replica(states), len(states))
            for broker_id, states in self._stopped.items()
        ]
        made = []
        for broker_id, request, size in requests:
            broker = brokers.get(broker_id)
            # Make no request for a broker that is not registered: it gets all metadata, and the
            # roles (leader or follower) of its replicas, when it registers.
            if broker is not None:
                request.broker_epoch = broker.epoch
                made.append(BrokerRequest(broker_id, broker.epoch, request, 1 + size))
        return made

    # --- LeaderAndIsr requests -----------------------------------------------------------------

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

    # --- UpdateMetadata requests ---------------------------------------------------------------

    def _update_metadata(self) -> list[tuple[BrokerId, ControllerRequest, int]]:
        """One UpdateMetadata request and its size for each recipient; the requests share the lists
        of topics and brokers."""
        topics = self._topic_states()
        size = sum(len(each.partition_states) for each in topics) + len(self._context.brokers)
        live = [_broker_state(each.registration) for each in self._context.brokers.values()]
        entire = [each for each in topics if each.topic_name in self._entire]
        is_full = self._everything is not None
        requests: list[tuple[BrokerId, ControllerRequest, int]] = []
        for broker_id in self._update_recipients:
            is_new = broker_id in self._awaiting_full_metadata and not is_full
            if is_new and topics and not entire:
                continue  # The broker gets these topics with the full UpdateMetadata request.
            request = UpdateMetadataRequest(
                type=FULL if is_full else 0,
                controller_id=self._controller_id,
                controller_epoch=self._controller_epoch,
                topic_states=entire if is_new else topics,
                live_brokers=live,
            )
            requests.append((broker_id, request, size))
        return requests

    def _topic_states(self) -> list[UpdateMetadataTopicState]:
        if self._everything is not None:
            return list(self._everything.topics.values())
        topics = self._collected
        for partition in self._changed:
            state = self._partition_state(partition)
            if state is not None:
                self._put(topics, partition, state)
        return list(topics.values())

    def _put_whole(
        self, topics: dict[str, UpdateMetadataTopicState], partition: TopicPartition
    ) -> None:
        """Add a partition to `topics`, even one without a leader, because clients count a topic's
        partitions in the metadata."""
        state = self._partition_state(partition) or self._leaderless_state(partition)
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

    def _partition_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
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

    def _leaderless_state(self, partition: TopicPartition) -> UpdateMetadataPartitionState:
        """The state of a partition without a leader; its leader epoch and partition epoch are -1,
        and so lower than in any later state.

        A partition with an unreadable state znode gets this state, too, even if brokers got its
        real state before.
        """
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

    # --- StopReplica requests ------------------------------------------------------------------

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


def _broker_state(registration: BrokerRegistration) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=registration.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.name,
                # Kafka numbers the security protocols in the order of PROTOCOLS.
                security_protocol=PROTOCOLS.index(each.protocol),
            )
            for each in registration.endpoints
        ],
        rack=registration.rack,
    )


def _numbers(brokers: Sequence[BrokerId]) -> list[int]:
    return list(brokers)
