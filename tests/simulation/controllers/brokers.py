"""The brokers: each a process that starts again and again, with a model of replication."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.controller_election import Election
from klog_broker.controller.zookeeper.request_batch import (
    FULL,
    LEADER_DURING_DELETE,
    ControllerRequest,
)
from klog_broker.controller.zookeeper.request_sender import BrokerResponse
from klog_broker.metadata.zookeeper.registration import Registration
from klog_broker.metadata.zookeeper.sessions import Sessions
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.zookeeper.sessions import Session, SessionEvent
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from pyspark_klog.znodes.brokers import BrokerRegistration as Znode
from pyspark_klog.znodes.brokers import Endpoint
from tests.simulation.controllers.checks import Checks, Key, is_unclean
from tests.simulation.world import Violation, World
from tests.simulation.zookeeper import Client, SimulatedZooKeeper
from tests.support.runtime.fake_network import ScriptedPoller

SESSION_MS = 6_000
LISTENER = "PLAINTEXT"
_RESPONSES: dict[type[Any], type[Any]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}

Disk = dict[TopicPartition, TopicId]
"""The replicas that a broker has, kept over its restarts."""
Route = Callable[
    ["BrokerLife", BrokerId, ControllerRequest, Callable[[BrokerResponse | None], None]], None
]


@dataclass
class Role:
    """The last role that a LeaderAndIsr request gave a broker's replica."""

    topic_id: TopicId
    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    replicas: list[int]

    def key(self, partition: TopicPartition) -> Key:
        return (self.topic_id, partition.partition)


@dataclass
class Picture:
    """The last state of a partition that an UpdateMetadata request gave a broker."""

    topic_id: TopicId
    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int


class BrokerLife:
    """One run of a broker, from its start to its end or a kill."""

    def __init__(
        self,
        world: World,
        zookeeper: SimulatedZooKeeper,
        checks: Checks,
        number: int,
        life: int,
        disk: Disk,
        route: Route,
    ) -> None:
        self.name = f"broker {number}.{life}"
        self.number = BrokerId(number)
        self.is_over = False
        self.disk = disk
        self.roles: dict[TopicPartition, Role] = {}
        self.pictures: dict[TopicPartition, Picture] = {}
        self.live_brokers: set[int] = set()
        self.controller_epoch = 0
        self.session: Session | None = None
        self.client: Client = zookeeper.client(self.name)
        self.loop = Loop(world.clock, ScriptedPoller())
        self._world = world
        self._checks = checks
        self._held: list[Callable[[], None]] = []
        self._followers: dict[tuple[Key, int, int], int] = {}
        self.controller = Controller(
            self.loop,
            self.number,
            LISTENER,
            send=lambda to, order, done: route(self, to.broker_id, order, done),
            is_unclean=is_unclean,
            deletes_topics=True,
            new_topic_id=lambda: TopicId(UUID(int=world.random.getrandbits(128))),
        )
        self.election = Election(self.loop, self.number, world.clock.now_ms)
        self.election.on_elected.append(self._elected)
        self.election.on_resigned.append(self._resigned)
        self.registration = Registration(
            self.loop, self.number, then=self.election, on_in_use=self._in_use
        )
        endpoint = Endpoint(LISTENER, f"host{number}", 9092, LISTENER)
        self.registration.register(lambda: Znode((endpoint,), 0))
        self._sessions = Sessions(self.loop, self._open)
        self._sessions.use((self.controller, self.registration))
        self._sessions.open_first_session()

    # --- turns -----------------------------------------------------------------------------------
    @property
    def due_ms(self) -> int | None:
        """When the broker's loop has work to do, by the world's clock."""
        if self.is_over or self.client.is_paused:
            return None
        return self.loop.next_wake_ms()

    def turn(self) -> None:
        self.loop.run_turn(0)

    def deliver(self, action: Callable[[], None]) -> None:
        """Run ``action``, a network message, in the loop; later if the process is suspended."""
        if self.client.is_paused:
            self._held.append(action)
        elif not self.is_over:
            self.loop.post(action)

    # --- faults -----------------------------------------------------------------------------------
    def kill(self) -> None:
        self.note("killed")
        self.is_over = True
        self.client.die()

    def close(self) -> None:
        """Stop cleanly: the session ends at once."""
        self.note("closes")
        self.registration.expired()
        self._sessions.close(lambda: self.note("closed"))

    def resume(self) -> None:
        self.client.resume()
        held, self._held = self._held, []
        for action in held:
            self.deliver(action)

    @property
    def is_controller(self) -> bool:
        """Whether the broker believes that it is the controller."""
        return self.election.writes is not None

    @property
    def epoch(self) -> int:
        return self.registration.broker_epoch

    def note(self, text: str) -> None:
        self._world.note(f"{self.name} {text}")

    def _open(self, loop: Any, on_event: Callable[[SessionEvent], None]) -> Session:
        self.session = self.client.opener(SESSION_MS)(loop, on_event)
        return self.session

    def _elected(self, writes: Any) -> None:
        self.note(f"elected {writes.epoch.number}")
        self.controller.elected(writes)

    def _resigned(self) -> None:
        self.note("resigned")
        self.controller.resigned()

    def _in_use(self, text: str) -> None:
        raise Violation("the last registration of a broker ends", text)

    # --- requests of the controller ---------------------------------------------------------------
    def handle(self, order: ControllerRequest) -> BrokerResponse | None:
        """Answer the controller's request; None if the broker is not registered yet.

        Without a broker epoch of its own, a broker cannot know which registration the request is
        for.
        """
        if self.epoch < 0:
            return None
        error = ErrorCode.NONE
        if order.broker_epoch != self.epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        elif self.is_stale(order.controller_epoch):
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        if error is not ErrorCode.NONE:
            answer: BrokerResponse = _RESPONSES[type(order)](error_code=error)
            return answer
        self.controller_epoch = order.controller_epoch
        if isinstance(order, LeaderAndIsrRequest):
            return self._lead(order)
        if isinstance(order, UpdateMetadataRequest):
            return self._see(order)
        return self._stop(order)

    def is_stale(self, controller_epoch: int) -> bool:
        """Whether a request comes from a controller that has been replaced."""
        return controller_epoch < self.controller_epoch

    def _lead(self, order: LeaderAndIsrRequest) -> BrokerResponse:
        for topic in order.topic_states:
            topic_id = TopicId(topic.topic_id)
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                if self.disk.setdefault(partition, topic_id) != topic_id:
                    text = f"{self.name} has {partition} of a topic that is deleted"
                    raise Violation("a deletion leaves no replica", text)
                known = self.roles.get(partition)
                if known is not None and known.leader_epoch >= state.leader_epoch:
                    continue
                role = Role(
                    topic_id, state.leader, state.leader_epoch, list(state.isr),
                    state.partition_epoch, list(state.replicas),
                )  # fmt: skip
                self.roles[partition] = role
                if state.leader == self.number:
                    key = role.key(partition)
                    self._checks.leads(key, state.leader_epoch, self.number, self.epoch)
        return LeaderAndIsrResponse()

    def _see(self, order: UpdateMetadataRequest) -> BrokerResponse:
        if order.type == FULL:
            self.pictures.clear()
        self.live_brokers = {each.id for each in order.live_brokers}
        for topic in order.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == LEADER_DURING_DELETE:
                    self.pictures.pop(partition, None)
                    continue
                self.pictures[partition] = Picture(
                    TopicId(topic.topic_id), state.leader, state.leader_epoch, list(state.isr),
                    state.zk_version,
                )  # fmt: skip
        return UpdateMetadataResponse()

    def _stop(self, order: StopReplicaRequest) -> BrokerResponse:
        errors = []
        for topic in order.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                error = ErrorCode.NONE
                if state.delete_partition and self._world.chance(0.1):
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    self.roles.pop(partition, None)
                    if state.delete_partition:
                        self.disk.pop(partition, None)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=partition.topic,
                        partition_index=partition.partition,
                        error_code=error,
                    )
                )
        return StopReplicaResponse(partition_errors=errors)

    # --- leading ---------------------------------------------------------------------------------
    def alteration(self, others: dict[int, "BrokerLife"]) -> AlterPartitionRequest | None:
        """An ISR request for a led partition, with recent or old knowledge of its followers."""
        led = [each for each, role in self.roles.items() if role.leader == self.number]
        if not led or self.epoch < 0:
            return None
        partition = self._world.random.choice(led)
        role = self.roles[partition]
        key = role.key(partition)
        for number in role.replicas:
            follower = others.get(number)
            theirs = follower.roles.get(partition) if follower is not None else None
            follows = theirs is not None and (
                theirs.key(partition) == key and theirs.leader_epoch == role.leader_epoch
            )
            if follower is not None and follows and follower.epoch >= 0 and self._world.chance(0.7):
                epoch = role.leader_epoch
                self._followers[key, epoch, number] = follower.epoch
                self._checks.met(key, epoch, follower.number, follower.epoch)
        met = {
            each: self._followers[key, role.leader_epoch, each]
            for each in role.replicas
            if (key, role.leader_epoch, each) in self._followers
        }
        members = list(met)
        if self._world.chance(0.4) and members:
            members.remove(self._world.random.choice(members))
        isr = [BrokerState(broker_id=self.number, broker_epoch=self.epoch)]
        isr += [
            BrokerState(broker_id=each, broker_epoch=met[each])
            for each in members
            if each != self.number
        ]
        data = PartitionData(
            partition_index=partition.partition,
            leader_epoch=role.leader_epoch,
            new_isr_with_epochs=isr,
            partition_epoch=role.partition_epoch,
        )
        topic = TopicData(topic_id=role.topic_id, partitions=[data])
        return AlterPartitionRequest(broker_id=self.number, broker_epoch=self.epoch, topics=[topic])

    def altered(self, request: AlterPartitionRequest, answer: AlterPartitionResponse) -> None:
        """The controller has answered the request."""
        for topic in answer.topics:
            for each in topic.partitions:
                if answer.error_code or each.error_code:
                    continue
                key = (TopicId(topic.topic_id), each.partition_index)
                self._checks.altered(key, each.leader_epoch, each.partition_epoch, each.isr)
                for partition, role in self.roles.items():
                    if role.key(partition) == key and role.leader_epoch == each.leader_epoch:
                        role.isr = each.isr
                        role.partition_epoch = max(role.partition_epoch, each.partition_epoch)
