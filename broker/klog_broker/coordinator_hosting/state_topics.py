"""Finds the coordinator of a group or transactional id, and creates the state topics."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from klog_broker.cluster.known_topics import KnownTopics
from klog_broker.cluster.topic_requests import Refused, TopicRequests
from klog_broker.coordinator.hashing import partition_for_key
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.image import NO_BROKER, MetadataImage, Topic
from klog_broker.metadata.interface import MetadataStore
from klog_broker.topics.changes import create_topics
from klog_broker.topics.planning import plan_new_topic
from klog_broker.topics.services import TopicServices
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId


class AdvertisedAddress(NamedTuple):
    """The advertised address of a listener."""

    host: str
    port: int


class CoordinatorResult(NamedTuple):
    """The result of FindCoordinator for one key."""

    error_code: ErrorCode
    broker_id: BrokerId
    host: str
    port: int
    message: str | None = None


class StateTopic:
    """Counts the partitions of a topic in which a coordinator stores its state."""

    def __init__(self, metadata: Callable[[], MetadataStore], topic: str) -> None:
        self._metadata = metadata
        self._topic = topic
        self._seen_image: MetadataImage | None = None
        self._num_partitions: int | None = None

    def num_partitions(self) -> int | None:
        """The number of partitions; None while the topic does not exist.

        Every request to a coordinator calls this method, so the number is cached until the metadata
        image changes.
        """
        image = self._metadata().image
        if image is not self._seen_image:
            self._seen_image, topic = image, image.topic(self._topic)
            self._num_partitions = None if topic is None else len(topic.partitions)
        return self._num_partitions


class FinderServices(TopicServices, Protocol):
    """The services that a CoordinatorFinder needs."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def known_topics(self) -> KnownTopics: ...

    @property
    def other_controller(self) -> Callable[[], TopicRequests | None]: ...

    @property
    def advertised(self) -> Mapping[str, AdvertisedAddress]:
        """The advertised addresses by listener name."""


class CoordinatorFinder:
    """Answers FindCoordinator for one type of keys (group ids or transactional ids). A request
    creates ``topic``, in which the coordinators store their state, if the topic does not exist.

    ``serving_error`` returns NONE if this broker's coordinator serves a key now. The empty key has
    a coordinator, too, as in Kafka.
    """

    def __init__(
        self,
        services: FinderServices,
        topic: str,
        serving_error: Callable[[str], ErrorCode],
    ) -> None:
        self._services = services
        self._topic = topic
        self._serving_error = serving_error
        self._is_creating = False
        self.num_partitions = StateTopic(lambda: services.metadata, topic).num_partitions

    def find(self, key: str, context: RequestContext) -> CoordinatorResult:
        """Return the leader of the key's partition, or COORDINATOR_NOT_AVAILABLE (retriable).

        The error is returned until the topic exists, while its partition has no leader that has
        the client's listener, and if this broker leads the partition but does not serve it. A
        broker whose shard is still loading is returned, because the shard itself answers requests
        with COORDINATOR_LOAD_IN_PROGRESS.
        """
        count = self.num_partitions()
        if count is None and not self._services.known_topics.is_complete:
            text = f"this broker does not know yet whether {self._topic} exists"
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        if count is None:
            return self._create_topic()
        image = self._services.metadata.image
        state = image.partition(self._topic, partition_for_key(key, count))
        leader = NO_BROKER if state is None else state.leader
        if leader == self._services.broker_id:
            if self._serving_error(key) is not ErrorCode.NOT_COORDINATOR:
                own = self._services.advertised[context.listener]
                return CoordinatorResult(ErrorCode.NONE, leader, own.host, own.port)
        elif leader in image.brokers:
            other = image.brokers[leader].endpoint(context.listener)
            if other is not None:
                return CoordinatorResult(ErrorCode.NONE, leader, other.host, other.port)
        text = f"the key's partition of {self._topic} has no leader, or could not be loaded"
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def _create_topic(self) -> CoordinatorResult:
        answer = _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic} is being created")
        if self._is_creating:
            return answer
        services = self._services
        try:
            planned = plan_new_topic(services, self._topic)
        except BrokerError as error:
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text or error.code.message)
        self._is_creating = True
        controller = services.other_controller()
        if controller is None:
            create_topics(services, [planned], self._created)
        else:
            controller.create([self._topic], self._created)
        return answer

    def _created(self, _: list[Topic | BrokerError] | Refused) -> None:
        """Note that the creation of the topic has ended, successfully or not: the next request that
        does not find the topic may try again."""
        self._is_creating = False


def _none(code: ErrorCode, message: str) -> CoordinatorResult:
    return CoordinatorResult(code, NO_BROKER, "", -1, message)
