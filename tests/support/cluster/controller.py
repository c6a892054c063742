"""One controller on a simulated ZooKeeper, and brokers that respond to its requests."""

from collections.abc import Callable
from typing import Any

from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic
from klog_broker.controller.zookeeper.fenced_writes import ControllerEpoch, FencedWrites
from klog_broker.controller.zookeeper.request_batch import ControllerRequest
from klog_broker.controller.zookeeper.request_sender import BrokerResponse
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, Session
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.znodes.brokers import BrokerRegistration as Znode
from pyspark_klog.znodes.brokers import Endpoint, encode_broker
from pyspark_klog.znodes.paths import (
    CONTROLLER_EPOCH,
    PERSISTENT,
    broker_path,
    partition_state_path,
    topic_path,
)
from pyspark_klog.znodes.topics import (
    PartitionState,
    decode_partition_state,
    decode_topic,
)
from tests.support.cluster.zookeeper import ClusterWorld

TOPIC_ID = TopicId(UUID(int=7))
GIVEN_ID = TopicId(UUID(int=8))
PARTITION = TopicPartition("t", 0)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
_ANSWERS: dict[type[Any], type[Any]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}
_VERSIONS = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}


class Controlled(ClusterWorld):
    """A controller of epoch 3 on broker 1, and brokers that respond to each of its requests."""

    def __init__(self, *, deletes_topics: bool = True) -> None:
        super().__init__()
        self.requests: list[tuple[BrokerId, ControllerRequest]] = []
        self.fails_to_delete = 0
        self.broken: set[int] = set()
        """The brokers that cannot use their logs."""
        self.has_roles: set[int] = set()
        """Brokers that have carried out each request before: their first responses were lost."""
        self.silent: set[int] = set()
        """Brokers that carry requests out but respond only to `release_responses`."""
        self._held: list[Callable[[], None]] = []
        self.unclean: set[str] = set()
        for path in PERSISTENT:
            self.call_zookeeper("create", path, b"", makes_parents=True)
        self.call_zookeeper("create", CONTROLLER_EPOCH, b"3")
        self.controller = Controller(
            self.loop,
            ONE,
            "PLAINTEXT",
            send=self._send,
            is_unclean=lambda name: name in self.unclean,
            new_topic_id=lambda: GIVEN_ID,
            deletes_topics=deletes_topics,
        )
        self.session: Session | None = None
        self.process, self.client = self.sessions(self)

    @classmethod
    def of_three(cls) -> "Controlled":
        """Start the controller with brokers 1, 2 and 3."""
        made = cls()
        made.register(1, 2, 3)
        made.start_controller()
        return made

    def connected(self, session: Session) -> None:
        self.session = session
        self.controller.connected(session)

    def expired(self) -> None:
        self.controller.resigned()
        self.controller.expired()

    def start_controller(self) -> None:
        self.until(lambda: self.session)
        assert self.session is not None
        epoch = ControllerEpoch(3, self.stat(CONTROLLER_EPOCH).version)
        self.controller.elected(FencedWrites(self.session, epoch, self.controller.resigned))
        self.advance(500)

    def register(self, *numbers: int) -> None:
        for number in numbers:
            self.call_zookeeper("set", "/brokers/ids", b"", ANY_VERSION)
            endpoint = Endpoint("PLAINTEXT", f"host{number}", 9092, "PLAINTEXT")
            data = encode_broker(Znode((endpoint,), 0))
            self.call_zookeeper("create", broker_path(BrokerId(number)), data, ephemeral=True)
        self.advance(500)

    def unregister_broker(self, number: int) -> None:
        self.call_zookeeper("delete", broker_path(BrokerId(number)), ANY_VERSION)
        self.advance(500)

    def epoch(self, number: int) -> int:
        return int(self.stat(broker_path(BrokerId(number))).czxid)

    def create(self, *replicas: int, name: str = "t", configs: dict[str, str] | None = None) -> Any:
        topic_id = TOPIC_ID if name == "t" else TopicId(UUID(bytes=name.encode().rjust(16)))
        topic = ValidatedTopic(name, topic_id, (tuple(map(BrokerId, replicas)),), configs or {})
        answers: list[Any] = []
        self.controller.create_topic(topic, answers.append)
        self.until(lambda: answers)
        self.advance(500)
        return answers[0]

    def call(self, method: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        answers: list[Any] = []
        method(*arguments, answers.append, **options)
        found = self.until(lambda: answers)
        self.advance(500)
        return found[0]

    def topic_id(self, name: str) -> TopicId | None:
        """Return the topic's id in ZooKeeper."""
        data = self.data(topic_path(name))
        return None if data is None else decode_topic(name, data).topic_id

    def state(self, partition: TopicPartition = PARTITION) -> PartitionState | None:
        data = self.data(partition_state_path(partition))
        return None if data is None else decode_partition_state(partition, data)

    def release_responses(self, *, still_silent: bool = False) -> None:
        """Let all silent brokers respond; with `still_silent`, only to the requests so far."""
        if not still_silent:
            self.silent.clear()
        held, self._held = self._held, []
        for each in held:
            self.loop.post(each)
        self.advance(500)

    def pop_requests(self, kind: type[Any]) -> list[tuple[BrokerId, Any]]:
        """Return the requests of a kind that were sent since the last call."""
        found = [each for each in self.requests if isinstance(each[1], kind)]
        self.requests.clear()
        return found

    def _send(
        self,
        to: BrokerRegistration,
        order: ControllerRequest,
        done: Callable[[BrokerResponse | None], None],
    ) -> None:
        self.requests.append((to.broker_id, order))
        # Encode the request, because the controller would retry an unencodable request for ever.
        api_key = ApiKey(type(order).api_key)
        encode_request(RequestHeader(api_key, _VERSIONS[type(order)], 0, "controller"), order)
        answer = _ANSWERS[type(order)]()
        if isinstance(order, StopReplicaRequest) and self.fails_to_delete:
            self.fails_to_delete -= 1
            code = ErrorCode.KAFKA_STORAGE_ERROR
            error = StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=code)
            answer.partition_errors = [error]
        if isinstance(order, LeaderAndIsrRequest):
            code = ErrorCode.NONE
            if to.broker_id in self.broken:
                code = ErrorCode.KAFKA_STORAGE_ERROR
            elif to.broker_id in self.has_roles:
                code = ErrorCode.STALE_CONTROLLER_EPOCH
            answer.topics = [
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partition_states
                    ],
                )
                for topic in order.topic_states
            ]
        if to.broker_id in self.silent:
            self._held.append(lambda: done(answer))
        else:
            self.loop.call_later(1, lambda: done(answer))
