"""Who keeps a key's state: FindCoordinator for groups and transactional ids, and their topics."""

from collections.abc import Callable

from klog_broker.coordinator.hashing import partition_for_key
from klog_broker.handlers.at_controller import Refused, have_created, is_controller
from klog_broker.handlers.context import BrokerServices, CoordinatorAnswer, RequestContext
from klog_broker.handlers.told_topics import knows_all_partitions
from klog_broker.metadata.image import NO_BROKER, MetadataImage, Topic
from klog_broker.topics.changing import create_topics
from klog_broker.topics.planning import plan_new_topic
from pyspark_klog.errors import BrokerError, ErrorCode


class CoordinatorFinder:
    """Answers FindCoordinator for one type of keys; the first request creates the topic.

    ``find`` says whether this broker serves a key now. The empty key has a coordinator, as in
    Kafka.
    """

    def __init__(
        self,
        broker: BrokerServices,
        topic: str,
        find: Callable[[str], ErrorCode],
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._find = find
        self._is_creating = False
        self._seen_image: MetadataImage | None = None
        self._num_partitions: int | None = None

    def num_partitions(self) -> int | None:
        """Of the topic; None while there is none. Asked with every request, and looked up once an
        image."""
        image = self._broker.metadata.image
        if image is not self._seen_image:
            self._seen_image, topic = image, image.topic(self._topic)
            self._num_partitions = None if topic is None else len(topic.partitions)
        return self._num_partitions

    def find(self, key: str, context: RequestContext) -> CoordinatorAnswer:
        """Who leads the key's partition, once the topic exists; until then, and while nobody does,
        COORDINATOR_NOT_AVAILABLE (retriable).

        While the key's shard loads, its broker is the answer, too: the shard itself answers
        requests with COORDINATOR_LOAD_IN_PROGRESS.
        """
        count = self.num_partitions()
        if count is None and not knows_all_partitions(self._broker):
            text = f"this broker was not told yet whether there is {self._topic}"
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        if count is None:
            return self._create_topic()
        image = self._broker.metadata.image
        state = image.partition(self._topic, partition_for_key(key, count))
        leader = NO_BROKER if state is None else state.leader
        if leader == self._broker.broker_id:
            if self._find(key) is not ErrorCode.NOT_COORDINATOR:
                own = self._broker.advertised[context.listener]
                return CoordinatorAnswer(ErrorCode.NONE, leader, own.host, own.port)
        elif leader in image.brokers:
            other = image.brokers[leader].endpoint(context.listener)
            if other is not None:
                return CoordinatorAnswer(ErrorCode.NONE, leader, other.host, other.port)
        text = f"the key's {self._topic} partition is offline, damaged or not made yet"
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def _create_topic(self) -> CoordinatorAnswer:
        answer = _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic} is being created")
        if self._is_creating:
            return answer
        broker = self._broker
        try:
            planned = plan_new_topic(broker, self._topic)
        except BrokerError as error:
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.text or error.code.message)
        self._is_creating = True
        if is_controller(broker):
            create_topics(broker, [planned], self._created)
        else:
            have_created(broker, [self._topic], self._created)
        return answer

    def _created(self, _: list[Topic | BrokerError] | Refused) -> None:
        """Created or not: the next request finds the topic, or tries again."""
        self._is_creating = False


def _none(code: ErrorCode, message: str) -> CoordinatorAnswer:
    return CoordinatorAnswer(code, NO_BROKER, "", -1, message)
