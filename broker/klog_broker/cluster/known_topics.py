"""Decides whether a topic that the metadata image does not show may exist.

In a cluster the controller sends all topics soon after the broker has registered. Until then, a
topic that the image does not show may exist.
"""

from collections.abc import Callable, Mapping, Set
from typing import Protocol

from klog_broker.cluster.role_change_queue import ControllerRequestQueue
from klog_broker.dispatch.request_context import ErrorResponse, RequestContext, ResponseSteps
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicId
from pyspark_klog.protocol.message import Request

PATIENCE_MS = 2_000
"""The longest time that a client's request waits until the controller has sent all topics. After
this time, the request is handled with the topics that the broker knows; a request that only the
controller may carry out gets NOT_CONTROLLER."""


class KnownTopics(Protocol):
    """Tells whether the broker's metadata image shows all topics, or whether a missing topic may
    exist."""

    @property
    def is_complete(self) -> bool:
        """Whether the metadata image shows all topics that the controller can read.

        If not, the controller may not have sent a missing topic or partition yet.
        """

    @property
    def has_been_complete(self) -> bool:
        """Whether the metadata image has shown all topics (`is_complete`) at any time since the
        broker started."""

    def may_exist(self, topic: str) -> bool:
        """Whether a topic that the image does not show may exist: the controller has not sent all
        topics yet, or cannot read this topic's znode."""

    def when_complete(self, then: Callable[[], None], patience_ms: int = PATIENCE_MS) -> None:
        """Call ``then`` once: as soon as the image shows all topics, or after ``patience_ms``. For
        calls while ``is_complete`` is False."""


class AllTopicsKnown:
    """Says for a standalone broker that all topics are known, because it reads them before it
    serves."""

    is_complete = True
    has_been_complete = True

    def may_exist(self, _topic: str) -> bool:
        return False

    def when_complete(self, then: Callable[[], None], _patience_ms: int = PATIENCE_MS) -> None:
        then()


class TopicsFromController:
    """Tells for a broker in a cluster whether the controller has sent all topics to it."""

    def __init__(
        self, requests: ControllerRequestQueue, unreadable: Callable[[], Set[str]], loop: Loop
    ) -> None:
        """``unreadable`` returns the names of topics that exist, but whose znode the controller
        cannot read."""
        self._requests = requests
        self._unreadable = unreadable
        self._loop = loop

    @property
    def is_complete(self) -> bool:
        return self._requests.has_full_metadata

    @property
    def has_been_complete(self) -> bool:
        return self._requests.has_had_full_metadata

    def may_exist(self, topic: str) -> bool:
        return not self._requests.has_full_metadata or topic in self._unreadable()

    def when_complete(self, then: Callable[[], None], patience_ms: int = PATIENCE_MS) -> None:
        """Call ``then`` after the next request with which the controller sends all topics, or after
        ``patience_ms``.

        Never calls ``then`` before this method returns. Call this method only while ``is_complete``
        is False, because the controller may send all topics only once.
        """
        requests = self._requests

        def over() -> None:
            requests.on_full_metadata.remove(complete)
            then()

        def complete() -> None:
            timer.cancel()
            then()

        timer = self._loop.call_later(patience_ms, over)
        requests.on_full_metadata.append(complete)


class NewTopicSettings(Protocol):
    """Tells whether this broker has read the settings of new topics. In a cluster the metadata
    store implements this Protocol (metadata/zookeeper/store.py), because it reads a topic's
    settings after the controller has sent the topic."""

    def is_reading_settings_of(self, topic_id: TopicId) -> bool:
        """Whether the metadata image shows the topic, but the broker is still reading the topic's
        settings from ZooKeeper."""

    def learn_topics(self, topics: Mapping[str, TopicId], done: Callable[[], None]) -> None:
        """Call ``done`` once this broker has the settings of these topics: immediately, or after it
        has read them from ZooKeeper."""


class AllSettingsRead:
    """Says for a standalone broker that the settings of all topics are read: its metadata image
    shows no topic without its settings."""

    def is_reading_settings_of(self, _topic_id: TopicId) -> bool:
        return False

    def learn_topics(self, _topics: Mapping[str, TopicId], done: Callable[[], None]) -> None:
        done()


def unknown_topic(known_topics: KnownTopics) -> ErrorCode:
    """The error for a topic that the metadata image does not show.

    If the controller has not sent all topics yet, it is LEADER_NOT_AVAILABLE, which clients retry.
    """
    if known_topics.is_complete:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.LEADER_NOT_AVAILABLE


def once_complete(
    known_topics: KnownTopics,
    answer: Callable[[], ResponseSteps],
    request: Request,
    context: RequestContext,
    error_response: ErrorResponse,
) -> ResponseSteps | None:
    """Return the response steps of `answer`, which needs a metadata image that shows all topics.

    If the image does not show all topics yet, return None and send the response later: as soon as
    the image shows all topics, or after PATIENCE_MS (2 s). `error_response` then turns a
    BrokerError of `answer` into a response.
    """
    if known_topics.is_complete:
        return answer()

    def steps() -> ResponseSteps:
        try:
            return (yield from answer())
        except BrokerError as error:
            return error_response(request, error.code)

    known_topics.when_complete(lambda: context.response_sink.send_in_slices(steps()))
    return None
