"""The state of a controller: its context, unsettled partitions, and requests not yet sent.

Each time the controller reads all of ZooKeeper, this state is created again. Only the request
sender, the counts for metrics, and the ids of the brokers that are shutting down, which ZooKeeper
does not store, are taken over. An unsettled partition is one for which the controller has yet to
check whether its leader or ISR must change.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.zookeeper.cluster_log import ElectionLog
from klog_broker.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from klog_broker.controller.zookeeper.request_sender import RequestSender
from klog_broker.metrics.controller import ControllerCounts
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest

MIN_QUEUE_SIZE = 20_000
"""Queued requests for a broker are not dropped for their size while they name fewer than about this
many partitions and brokers, which take about 20 MB."""

FULL_UPDATE_FACTOR = 4
"""Queued requests for a broker, except for the first one, are dropped if they name more partitions
and brokers than MIN_QUEUE_SIZE plus this factor times the number of partitions. The requests with
all metadata and the roles of all replicas of the broker stay below this limit: they name each
partition at most three times, in LeaderAndIsr, UpdateMetadata and StopReplica."""


class ControllerState:
    """The state of a controller, in use until the controller reads all of ZooKeeper again."""

    def __init__(
        self,
        sender: RequestSender,
        *,
        controller_id: BrokerId,
        controller_epoch: int,
        listener: str,
        is_unclean: Callable[[str], bool],
        deletes_topics: bool,
        counts: ControllerCounts,
    ) -> None:
        """`listener` is the name of the inter-broker listener.

        `is_unclean` returns whether a topic permits unclean leader election, by the topic's name.
        `deletes_topics` is delete.topic.enable. `counts` are the controller's totals for metrics.
        """
        self.context = ControllerContext()
        self.election_log = ElectionLog(counts)
        self.sender = sender
        self.controller_epoch = controller_epoch
        self.is_unclean = is_unclean
        self.deletes_topics = deletes_topics
        self.registrations_version = -1
        """The version of the znode /brokers/ids when the registrations were read. A write of a
        partition's state checks this version, which each klog broker raises when it registers."""
        self.unsettled: dict[TopicPartition, dict[BrokerId, None]] = {}
        """Partitions for which the controller has yet to check whether the leader or ISR must
        change. The values are the brokers that get a LeaderAndIsr request even if nothing
        changes, because they do not have the role yet: they have just registered, for example."""
        self.awaiting_full_metadata: dict[BrokerId, None] = {}
        """Brokers that wait for the full UpdateMetadata request (`RequestBatch.add_full_metadata`),
        because they have registered, or their queued requests were dropped."""
        self.unpublished: dict[str, dict[TopicPartition, None]] = {}
        """New partitions, by topic, that no UpdateMetadata request has named yet. Once the topic
        has no partition in `unsettled`, one request names them (`pop_publishable`)."""
        self.unusable: set[TopicPartition] = set()
        """Partitions whose state znode cannot be read; the controller does not change them."""
        self.unreadable: set[str] = set()
        """Topics whose znode exists and cannot be read; the context does not contain them."""
        self._begin_batch: Callable[[], RequestBatch] = lambda: RequestBatch(
            self.context,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            listener=listener,
            unreadable=self.unreadable,
            unpublished=self.unpublished,
            awaiting_full_metadata=self.awaiting_full_metadata,
        )
        self.batch = self._begin_batch()
        self._stops: dict[BrokerId, dict[int, StopReplicaRequest]] = {}
        self._unsettled_of: Counter[str] = Counter()
        self._publishable: dict[str, None] = {}

    @property
    def is_settled(self) -> bool:
        """Whether the leader and ISR of each partition are checked (none is in `unsettled`), and no
        broker waits for the full UpdateMetadata request (with all topics)."""
        return not self.unsettled and not self.awaiting_full_metadata

    # --- registered brokers --------------------------------------------------------------------

    def update_brokers(
        self, version: int, read: dict[BrokerId, RegisteredBroker]
    ) -> Iterator[None]:
        """Replace the registered brokers by those that were just read.

        Adds the affected partitions to `unsettled`, because their leaders or ISRs may have to
        change. If a registration changed, adds UpdateMetadata for all brokers to the batch of
        requests. Yields once or more for each partition that it handles, so that the caller can
        spread the work over several event-loop turns (`Writer.in_turns`).
        """
        context = self.context
        self.registrations_version = version
        self.sender.retain_brokers(read)
        before = dict(context.brokers)
        for broker_id, broker in before.items():
            if broker_id not in read or read[broker_id].epoch != broker.epoch:
                yield from self._broker_removed(broker_id)
        for broker_id, broker in read.items():
            known = before.get(broker_id)
            context.put_broker(broker)
            self.sender.add_broker(broker.registration, broker.epoch)
            if known is None or known.epoch != broker.epoch:
                yield from self._broker_added(broker_id)
        if read != before:
            self.batch.add_update_metadata(context.brokers, ())
        for state in (PartitionState.NEW, PartitionState.OFFLINE):
            for partition in context.in_state(state):
                self.mark_unsettled((partition,))
                yield

    def _broker_removed(self, broker_id: BrokerId) -> Iterator[None]:
        context = self.context
        for partition in context.led_by(broker_id):
            yield
            if context.state(partition) is PartitionState.ONLINE:
                context.change_state(partition, PartitionState.OFFLINE)
        for partition in context.partitions_on(broker_id):
            yield
            self.mark_replica_offline(partition, broker_id)
            self.mark_unsettled((partition,))
        context.remove_broker(broker_id)
        self._stops.pop(broker_id, None)
        self.sender.remove_broker(broker_id)
        self.awaiting_full_metadata.pop(broker_id, None)

    def _broker_added(self, broker_id: BrokerId) -> Iterator[None]:
        self.awaiting_full_metadata[broker_id] = None
        for partition in self.context.partitions_on(broker_id):
            yield
            self.mark_replica_online(partition, broker_id)
            self.mark_unsettled((partition,), notified=(broker_id,))

    # --- partitions ----------------------------------------------------------------------------

    def add_partition(
        self,
        partition: TopicPartition,
        replicas: tuple[BrokerId, ...],
        leadership: Leadership | None,
    ) -> None:
        """Add a partition that was just read from ZooKeeper, also to `unsettled`: the controller
        then checks its leader and ISR, and sends LeaderAndIsr to its replicas.

        `leadership` is None if the partition has no state znode, or an unreadable one (then the
        partition is in `unusable`, and is not added to `unsettled`).
        """
        context = self.context
        context.assign(partition, replicas)
        self.unpublished.setdefault(partition.topic, {})[partition] = None
        if leadership is not None:
            context.put_leadership(partition, leadership)
        if partition not in self.unusable:
            context.set_initial_state(partition)
        for broker_id in replicas:
            if leadership is not None or partition in self.unusable:
                context.set_initial_replica_state(partition, broker_id)
            else:
                context.change_replica_state(partition, broker_id, ReplicaState.NEW)
                if broker_id not in context.online:
                    context.change_replica_state(partition, broker_id, ReplicaState.OFFLINE)
        self.mark_unsettled((partition,), notified=replicas)

    def mark_unsettled(
        self, partitions: Iterable[TopicPartition], *, notified: Iterable[BrokerId] = ()
    ) -> None:
        """Add partitions to `unsettled`: the controller must check their leaders and ISRs.

        The brokers `notified` get LeaderAndIsr even if nothing changes. Partitions with an
        unreadable state znode, and partitions of a topic to be deleted, are skipped.
        """
        for partition in partitions:
            topic = partition.topic
            if partition not in self.unusable and not self.context.is_to_be_deleted(topic):
                if partition not in self.unsettled:
                    self.unsettled[partition] = {}
                    self._unsettled_of[topic] += 1
                self.unsettled[partition].update(dict.fromkeys(notified))

    def pop_unsettled(self, partition: TopicPartition) -> dict[BrokerId, None]:
        """Remove a partition from `unsettled`, because its leader and ISR are checked now. Returns
        the brokers that get LeaderAndIsr even if nothing changed; no broker if the partition is not
        in `unsettled`."""
        notified = self.unsettled.pop(partition, None)
        if notified is None:
            return {}
        topic = partition.topic
        self._unsettled_of[topic] -= 1
        if not self._unsettled_of[topic]:
            del self._unsettled_of[topic]
            if topic in self.unpublished:
                self._publishable[topic] = None
        return notified

    def pop_publishable(self) -> list[TopicPartition]:
        """Remove from `unpublished` topics of which no partition is in `unsettled`: those that were
        settled since the last call, or all topics if `unsettled` is empty.

        Returns the new partitions of these topics: the next UpdateMetadata request names all of
        them, so that brokers learn of a new topic with all of its partitions at once.
        """
        topics = self._publishable if self.unsettled else self.unpublished
        taken: list[TopicPartition] = []
        for topic in list(topics):
            # Skip a topic that was removed meanwhile, and a topic of which a partition is in
            # `unsettled` again: a later UpdateMetadata request names its partitions.
            if topic in self.unpublished and topic not in self._unsettled_of:
                taken += self.unpublished.pop(topic)
        self._publishable.clear()
        return taken

    def registered_replicas(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        """The brokers of a partition's replicas that are registered and have a usable log."""
        usable = self.context.brokers.keys() - self.context.failed_brokers(partition)
        return tuple(each for each in self.context.assignment(partition) if each in usable)

    def remove_topic(self, name: str) -> Iterator[None]:
        """Remove a topic that ZooKeeper no longer has. Yields once for each of its partitions, so
        that the caller can spread the work over several event-loop turns."""
        for partition in self.context.partitions_of(name):
            self.pop_unsettled(partition)
            self.unusable.discard(partition)
            self.context.remove_partition(partition)
            yield
        self.unpublished.pop(name, None)
        self.context.remove_topic(name)

    # --- states of replicas --------------------------------------------------------------------

    def mark_replica_offline(self, partition: TopicPartition, broker_id: BrokerId) -> None:
        """Mark a replica as offline, because its broker or its log failed or its broker stops.

        A replica of a topic to be deleted becomes DELETION_INELIGIBLE instead, or stays deleted.
        """
        context = self.context
        state = context.replica_state(partition, broker_id)
        if state is ReplicaState.DELETION_STARTED:
            context.change_replica_state(partition, broker_id, ReplicaState.DELETION_INELIGIBLE)
        elif state is not ReplicaState.DELETION_SUCCESSFUL:
            context.change_replica_state(partition, broker_id, ReplicaState.OFFLINE)
            if context.is_to_be_deleted(partition.topic):
                context.change_replica_state(partition, broker_id, ReplicaState.DELETION_INELIGIBLE)

    def mark_replica_online(self, partition: TopicPartition, broker_id: BrokerId) -> None:
        """Mark a replica as online, because its broker registered or can use its log again. Does
        nothing if the replica's topic is to be deleted."""
        if not self.context.is_to_be_deleted(partition.topic):
            self.context.change_replica_state(partition, broker_id, ReplicaState.ONLINE)

    # --- requests to brokers -------------------------------------------------------------------

    def send_batch(self) -> None:
        """Queue the collected requests for sending, and begin a new batch."""
        batch, self.batch = self.batch, self._begin_batch()
        broker_requests = batch.requests()
        for broker_request in broker_requests:
            if isinstance(
                broker_request.request, StopReplicaRequest
            ) and self.sender.accepts_requests(broker_request.broker_id):
                self._stops.setdefault(broker_request.broker_id, {})[id(broker_request.request)] = (
                    broker_request.request
                )
        self.sender.put(
            broker_requests, MIN_QUEUE_SIZE + FULL_UPDATE_FACTOR * self.context.partition_count
        )

    def resume_requests(self, broker_id: BrokerId) -> None:
        """Let a broker whose queued requests were dropped get new requests again.

        Adds the broker to those that get the full UpdateMetadata request (with all topics) next.
        Forgets the dropped StopReplica requests, because they never get a response.
        """
        self._stops.pop(broker_id, None)
        self.sender.resume(broker_id)
        self.awaiting_full_metadata[broker_id] = None

    def remove_stop_replica(self, broker_request: BrokerRequest) -> bool:
        """Whether a StopReplica request that was just answered is of this ControllerState, and not
        of one that existed before the controller last read all of ZooKeeper.

        Forgets the request, so a second call returns False. The result is False, too, if the broker
        has deregistered since, or if the request was dropped.
        """
        return (
            self._stops.get(broker_request.broker_id, {}).pop(id(broker_request.request), None)
            is not None
        )
