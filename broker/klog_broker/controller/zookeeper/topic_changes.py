"""Topics made, changed and deleted by this broker's controller, for clients that wait until it is
seen.

The controller answers when ZooKeeper has a change. What follows from it (leaders, logs, deletions)
comes back through the image; who asked hears of it then, or that the time is over. As in Kafka with
ZooKeeper a broker that is not the controller answers NOT_CONTROLLER, on which clients ask that one.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from klog_broker.controller.zookeeper import controller_requests
from klog_broker.controller.zookeeper.controller_requests import Elected
from klog_broker.controller.zookeeper.controller_requests import NewTopic as ControllersTopic
from klog_broker.metadata.changes import tell
from klog_broker.metadata.errors import NoAnswer, PartitionsChanged, TopicExists, UnknownTopic
from klog_broker.metadata.image import (
    NO_BROKER,
    MetadataImage,
    Topic,
    collision,
    plain_name,
)
from klog_broker.metadata.interface import Done, NewTopic
from klog_broker.metadata.zookeeper.image_waits import ImageWaits
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition

Outcome = Callable[[Topic | Exception], None]


class TopicController(Protocol):
    """What a Controller does here."""

    def create_topic(self, topic: ControllersTopic, done: Callable[[ErrorCode], None], /) -> None:
        """Make a topic."""

    def add_partitions(
        self,
        name: str,
        replicas: Mapping[int, tuple[BrokerId, ...]],
        done: Callable[[ErrorCode], None],
        /,
    ) -> None:
        """Add partitions to a topic, by number."""

    def delete_topic(
        self, name: str, topic_id: TopicId, done: Callable[[ErrorCode], None], /
    ) -> None:
        """Delete the topic of this name and id."""

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        done: Callable[[Elected | ErrorCode], None],
        /,
        *,
        unclean: bool,
    ) -> None:
        """Elect leaders."""


class TopicChanges:
    """For the loop's thread. `image_changed` is called with each new image."""

    def __init__(
        self,
        loop: Loop,
        controller: TopicController,
        image: Callable[[], MetadataImage],
        new_topic_id: Callable[[], TopicId],
    ) -> None:
        self._loop = loop
        self._controller = controller
        self._image = image
        self._new_topic_id = new_topic_id
        self._waits = ImageWaits(loop, image)
        self._making: dict[str, str] = {}

    def image_changed(self) -> None:
        """The image is another one."""
        self._waits.changed()

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int,
    ) -> None:
        """See MetadataStore."""
        outcomes: dict[int, Topic | Exception] = {}

        def one_is_over(place: int, outcome: Topic | Exception) -> None:
            outcomes[place] = outcome
            if len(outcomes) == len(topics):
                done([outcomes[each] for each in range(len(topics))])

        for place, topic in enumerate(topics):
            self._create(topic, partial(one_is_over, place), timeout_ms)
        if not topics:
            self._loop.call_soon(lambda: done([]))

    def _create(self, new: NewTopic, done: Outcome, timeout_ms: int) -> None:
        # The controller takes any name, and the image does not show yet what is being made.
        plain = plain_name(new.name)
        other = self._making.get(plain)
        if other is not None:
            refusal = (
                TopicExists(f"topic {other} is being made")
                if other == new.name
                else collision(new.name, other)
            )
            self._loop.call_soon(lambda: done(refusal))
            return
        self._making[plain] = new.name
        topic_id = new.topic_id if new.topic_id is not None else self._new_topic_id()

        def made(outcome: Topic | Exception) -> None:
            self._making.pop(plain, None)
            done(outcome)

        def shown(image: MetadataImage) -> Topic | None:
            return _led(image.topic_by_id(topic_id), len(new.assignment))

        answered = self._wait("created", new.name, timeout_ms, shown, made)
        asked = ControllersTopic(new.name, topic_id, tuple(new.assignment), dict(new.configs))
        self._controller.create_topic(asked, answered)

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
        *,
        timeout_ms: int,
    ) -> None:
        """See MetadataStore."""

        def shown(image: MetadataImage) -> Topic | None:
            return _led(image.topic(name), first_partition + len(assignment))

        replicas = {first_partition + index: tuple(each) for index, each in enumerate(assignment)}
        answered = self._wait("extended", name, timeout_ms, shown, done)
        self._controller.add_partitions(name, replicas, answered)

    def delete_topic(self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int) -> None:
        """See MetadataStore. `done` when clients no longer see the topic; its logs go later."""
        topic = self._image().topic_by_id(topic_id)
        if topic is None:
            unknown = UnknownTopic(f"there is no topic of id {topic_id}")
            self._loop.call_soon(lambda: done(unknown))
            return

        def shown(image: MetadataImage) -> Topic | None:
            return topic if image.topic_by_id(topic_id) is None else None

        answered = self._wait("deleted", topic.name, timeout_ms, shown, done)
        self._controller.delete_topic(topic.name, topic_id, answered)

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        done: Callable[[Elected | ErrorCode], None],
        *,
        unclean: bool,
        timeout_ms: int,
    ) -> None:
        """See Controller.elect_leaders. `done` when the image shows the leaders; REQUEST_TIMED_OUT
        for those that it does not show in time."""
        unseen: deque[TopicPartition] = deque()
        outcome: Elected | ErrorCode = ErrorCode.REQUEST_TIMED_OUT

        def is_shown(image: MetadataImage) -> bool:
            # Brokers are told of them in this order: each image shows some more, and is looked at
            # up to the first that it does not show, not for all that are left.
            while unseen and _is_elected(image, unseen[0], unclean=unclean):
                unseen.popleft()
            return not unseen

        def over(_is_shown: bool) -> None:
            if isinstance(outcome, ErrorCode):
                done(outcome)
                return
            image = self._image()
            late = [each for each in unseen if not _is_elected(image, each, unclean=unclean)]
            done(outcome | dict.fromkeys(late, ErrorCode.REQUEST_TIMED_OUT))

        wait = self._waits.begin(timeout_ms, over)

        def answered(elected: Elected | ErrorCode) -> None:
            nonlocal outcome
            outcome = elected
            if isinstance(elected, dict):
                unseen.extend(each for each, code in elected.items() if code is ErrorCode.NONE)
                wait.until(is_shown)
            elif wait.drop():
                self._loop.call_soon(lambda: done(elected))

        self._controller.elect_leaders(partitions, answered, unclean=unclean)

    def _wait(
        self,
        event: str,
        name: str,
        timeout_ms: int,
        shown: Callable[[MetadataImage], Topic | None],
        done: Outcome,
    ) -> Callable[[ErrorCode], None]:
        """Who hears the controller's answer. `shown` finds the topic that `done` gets; `event` is
        what has happened to it then, for the log."""

        def over(_is_shown: bool) -> None:
            topic = shown(self._image())
            if topic is not None:
                tell(event, topic)
                done(topic)
                return
            text = f"topic {name} was not {event} within {timeout_ms} ms, and may be later"
            done(NoAnswer(f"{text}: describe it"))

        wait = self._waits.begin(timeout_ms, over)

        def answered(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                wait.until(lambda image: shown(image) is not None)
            elif wait.drop():
                error = _refused(name, code)
                self._loop.call_soon(lambda: done(error))

        return answered


def _led(topic: Topic | None, partitions: int) -> Topic | None:
    """The topic, if it has so many partitions and all of them are led."""
    if topic is None or len(topic.partitions) < partitions:
        return None
    return None if any(each.leader == NO_BROKER for each in topic.partitions) else topic


def _is_elected(image: MetadataImage, partition: TopicPartition, *, unclean: bool) -> bool:
    state = image.partition(*partition)
    if state is None or state.leader == NO_BROKER:
        return False  # Of one that was never told of, between others, no replicas are known either.
    return unclean or state.leader == state.replicas[0]


def _refused(name: str, code: ErrorCode) -> Exception:
    match code:
        case ErrorCode.TOPIC_ALREADY_EXISTS:
            return TopicExists(f"topic {name} already exists, or is still being deleted")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopic(f"there is no topic {name}")
        case ErrorCode.INVALID_PARTITIONS:
            return PartitionsChanged(f"somebody else has added partitions to topic {name}")
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return BrokerError(code, f"topic {name} is being deleted: wait until it is gone")
        case controller_requests.TOO_LARGE:
            return BrokerError(
                code,
                f"topic {name} does not fit into ZooKeeper, which keeps all its partitions with"
                " their replicas in one znode, and its settings in another: ask for less",
            )
        case ErrorCode.UNKNOWN_SERVER_ERROR:
            return BrokerError(
                code,
                f"the controller cannot change topic {name} in ZooKeeper: its log names the znode"
                " and says why",
            )
        case ErrorCode.NOT_CONTROLLER:
            return BrokerError(code, "this broker is not the controller: ask that one")
    return BrokerError(code)
