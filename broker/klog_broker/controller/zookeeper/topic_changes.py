"""Creates, extends and deletes topics for clients, by means of this broker's controller.

The controller answers as soon as ZooKeeper has the change. The consequences (leaders, logs,
deletions) then appear in the metadata image. The client gets its response when the image shows the
change, or when its timeout is over. A broker that is not the controller answers NOT_CONTROLLER, as
in Kafka with ZooKeeper; the client then sends its request to the controller.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from klog_broker.controller.zookeeper import controller_requests
from klog_broker.controller.zookeeper.controller_requests import ElectionErrors
from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic as ControllersTopic
from klog_broker.metadata.changes import log_topic_event
from klog_broker.metadata.errors import NoResponse, PartitionsChanged, TopicExists, UnknownTopic
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
    """The methods of a Controller that ControllerTopicChanges uses."""

    @property
    def deleting_topics(self) -> Collection[str]:
        """The topics whose deletion waits for brokers."""

    def create_topic(self, topic: ControllersTopic, done: Callable[[ErrorCode], None], /) -> None:
        """Create a topic. `done` gets the result once ZooKeeper has the topic."""

    def add_partitions(
        self,
        name: str,
        replicas: Mapping[int, tuple[BrokerId, ...]],
        done: Callable[[ErrorCode], None],
        /,
    ) -> None:
        """Add partitions to a topic; `replicas` has their assignments by partition number."""

    def delete_topic(
        self, name: str, topic_id: TopicId, done: Callable[[ErrorCode], None], /
    ) -> None:
        """Delete the topic of this name and id."""

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        done: Callable[[ElectionErrors | ErrorCode], None],
        /,
        *,
        unclean: bool,
    ) -> None:
        """Elect the preferred leaders of these partitions, or of all partitions if None. With
        `unclean`, elect any live replica for each partition without a live leader."""


class ControllerTopicChanges:
    """Changes topics for clients. Its methods may be called in the event loop's thread only.

    The broker calls `image_changed` after each change of its metadata image.
    """

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

    def deleting_topics(self) -> Collection[str]:
        """Return the topics whose deletion waits for brokers, if this broker is the controller."""
        return self._controller.deleting_topics

    def image_changed(self) -> None:
        """Answer the clients' requests whose changes the new metadata image shows."""
        self._waits.changed()

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int,
    ) -> None:
        """Create topics; `done` gets a topic or an error for each, in the order of `topics`."""
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
        # Check here whether the name collides with that of a topic being created: the controller
        # does not check for colliding names, and the metadata image does not show such a topic yet.
        plain = plain_name(new.name)
        other = self._making.get(plain)
        if other is not None:
            refusal = (
                TopicExists(f"topic {other} is being created")
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
            return _with_leaders(image.topic_by_id(topic_id), len(new.assignment))

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
        """Add partitions to a topic; `done` gets the topic once all its partitions have leaders."""

        def shown(image: MetadataImage) -> Topic | None:
            return _with_leaders(image.topic(name), first_partition + len(assignment))

        replicas = {first_partition + index: tuple(each) for index, each in enumerate(assignment)}
        answered = self._wait("extended", name, timeout_ms, shown, done)
        self._controller.add_partitions(name, replicas, answered)

    def delete_topic(self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int) -> None:
        """Delete a topic; call `done` once clients no longer see it. Its logs are removed later."""
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
        done: Callable[[ElectionErrors | ErrorCode], None],
        *,
        unclean: bool,
        timeout_ms: int,
    ) -> None:
        """Elect the preferred leaders of the partitions, or of all partitions if None. With
        `unclean`, elect any live replica for each partition without a live leader.

        Calls `done` once the metadata image shows the leaders; partitions whose leaders the image
        does not show in time get REQUEST_TIMED_OUT.
        """
        unseen: deque[TopicPartition] = deque()
        outcome: ElectionErrors | ErrorCode = ErrorCode.REQUEST_TIMED_OUT

        def is_shown(image: MetadataImage) -> bool:
            # UpdateMetadata requests name the partitions in the order of `unseen`, so the check of
            # an image stops at the first partition whose leader the image does not show yet.
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

        wait = self._waits.start_wait(timeout_ms, over)

        def on_elected(elected: ElectionErrors | ErrorCode) -> None:
            nonlocal outcome
            outcome = elected
            if isinstance(elected, dict):
                unseen.extend(each for each, code in elected.items() if code is ErrorCode.NONE)
                wait.until(is_shown)
            elif wait.drop():
                self._loop.call_soon(lambda: done(elected))

        self._controller.elect_leaders(partitions, on_elected, unclean=unclean)

    def _wait(
        self,
        event: str,
        name: str,
        timeout_ms: int,
        shown: Callable[[MetadataImage], Topic | None],
        done: Outcome,
    ) -> Callable[[ErrorCode], None]:
        """Return the callback for the controller's response.

        After a success, the callback waits until `shown` finds the changed topic in the metadata
        image, and then calls `done`. `event` is the change's name for log and error messages.
        """

        def over(_is_shown: bool) -> None:
            topic = shown(self._image())
            if topic is not None:
                log_topic_event(event, topic)
                done(topic)
                return
            text = f"topic {name} was not {event} within {timeout_ms} ms, but may be later"
            done(NoResponse(f"{text}: describe the topic to find out"))

        wait = self._waits.start_wait(timeout_ms, over)

        def on_outcome(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                wait.until(lambda image: shown(image) is not None)
            elif wait.drop():
                error = _refused(name, code)
                self._loop.call_soon(lambda: done(error))

        return on_outcome


def _with_leaders(topic: Topic | None, partitions: int) -> Topic | None:
    """Return the topic if it has at least this many partitions and all have leaders; else None."""
    if topic is None or len(topic.partitions) < partitions:
        return None
    return None if any(each.leader == NO_BROKER for each in topic.partitions) else topic


def _is_elected(image: MetadataImage, partition: TopicPartition, *, unclean: bool) -> bool:
    state = image.partition(*partition)
    if state is None or state.leader == NO_BROKER:
        # `replicas` is empty if no UpdateMetadata request has named the partition, so return before
        # the line below reads the preferred leader, `replicas[0]`.
        return False
    return unclean or state.leader == state.replicas[0]


def _refused(name: str, code: ErrorCode) -> Exception:
    match code:
        case ErrorCode.TOPIC_ALREADY_EXISTS:
            return TopicExists(f"topic {name} already exists, or is still being deleted")
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopic(f"there is no topic {name}")
        case ErrorCode.INVALID_PARTITIONS:
            return PartitionsChanged(f"another request has added partitions to topic {name}")
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return BrokerError(code, f"topic {name} is being deleted: wait until it is gone")
        case controller_requests.TOO_LARGE:
            return BrokerError(
                code,
                f"topic {name} does not fit into ZooKeeper, which stores all its partitions with"
                " their replicas in one znode, and its settings in another: request fewer",
            )
        case ErrorCode.UNKNOWN_SERVER_ERROR:
            return BrokerError(
                code,
                f"the controller cannot change topic {name} in ZooKeeper: the controller's log"
                " names the znode and the reason",
            )
        case ErrorCode.NOT_CONTROLLER:
            return BrokerError(code, "this broker is not the controller: ask the controller")
    return BrokerError(code)
