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
"""How long a request waits for the controller to send all topics. After this time, the broker
answers from the topics that it knows."""


class KnownTopics(Protocol):
    """The broker's knowledge of topics that its image does not show."""

    @property
    def is_complete(self) -> bool:
        """Whether every partition that the metadata image does not show is deleted.

        If not, the controller may not have sent such a partition yet.
        """

    @property
    def has_been_complete(self) -> bool:
        """Whether the metadata image has been complete at some time since the broker started."""

    def may_exist(self, topic: str) -> bool:
        """Whether a topic that the image does not show may exist: the controller has not sent all
        topics yet, or cannot read this topic."""

    def when_complete(self, then: Callable[[], None], patience_ms: int = PATIENCE_MS) -> None:
        """Call ``then`` once: as soon as all topics are known, or after ``patience_ms``."""


class AllTopicsKnown:
    """The KnownTopics of a standalone broker, which reads its topics before it serves."""

    is_complete = True
    has_been_complete = True

    def may_exist(self, _topic: str) -> bool:
        return False

    def when_complete(self, then: Callable[[], None], _patience_ms: int = PATIENCE_MS) -> None:
        then()


class TopicsFromController:
    """The KnownTopics of a broker in a cluster."""

    def __init__(
        self, requests: ControllerRequestQueue, unreadable: Callable[[], Set[str]], loop: Loop
    ) -> None:
        """``unreadable`` gives the topics that exist and that the controller cannot read."""
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
        """Call ``then`` once the controller has sent all topics, or after ``patience_ms``.

        Never calls ``then`` before this method returns.
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
    """Implemented by the metadata store of a cluster (metadata/zookeeper/store.py)."""

    def is_reading_settings_of(self, topic_id: TopicId) -> bool:
        """Whether the image shows a topic without its settings, because they are still being
        read."""

    def learn_topics(self, topics: Mapping[str, TopicId], done: Callable[[], None]) -> None:
        """Call ``done`` once the settings of these topics are known."""


class AllSettingsRead:
    """The NewTopicSettings of a standalone broker, whose image has topics with their settings."""

    def is_reading_settings_of(self, _topic_id: TopicId) -> bool:
        return False

    def learn_topics(self, _topics: Mapping[str, TopicId], done: Callable[[], None]) -> None:
        done()


def unknown_topic(known_topics: KnownTopics) -> ErrorCode:
    """The error for a topic that the metadata image does not show.

    If the topic may exist, the error makes clients repeat the request.
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
    """Return the result of a handler whose `answer` needs all topics.

    The result is None if the response is sent later, once all topics are known; `error_response`
    then turns a BrokerError into a response.
    """
    if known_topics.is_complete:
        return answer()

    def steps() -> ResponseSteps:
        try:
            return (yield from answer())
        except BrokerError as error:
            return error_response(request, error.code)

    known_topics.when_complete(lambda: context.reply.send_in_slices(steps()))
    return None
