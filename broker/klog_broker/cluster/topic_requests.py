"""Requests that change topics: only the controller of a cluster carries them out.

A broker without ZooKeeper (a standalone broker) is its own controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from klog_broker.cluster.controller_channel import ControllerConnection
from klog_broker.cluster.known_topics import KnownTopics, once_complete
from klog_broker.config import BrokerConfig
from klog_broker.dispatch.request_context import ErrorResponse, RequestContext, ResponseSteps
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.topics.internal import internal_topic
from klog_broker.topics.planning import MAX_PARTITIONS_PER_REQUEST
from pyspark_klog.client.errors import error_code
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.message import Request, Response

AUTO_CREATION_TIMEOUT_MS = 2_000
"""How long the controller waits for the leaders of topics that a request creates automatically.
After this time the client gets an error for these topics, and repeats its request."""
_SLACK_MS = 500

Refused = dict[str, ErrorCode]


class ControllerServices(Protocol):
    """The broker's objects that handlers use for requests that only the controller may carry
    out."""

    @property
    def known_topics(self) -> KnownTopics: ...

    @property
    def other_controller(self) -> Callable[[], TopicRequests | None]:
        """Returns the object that sends topic requests to the controller; None while this broker is
        the controller itself."""


def answer_at_controller(
    services: ControllerServices,
    answer: Callable[[], ResponseSteps],
    request: Request,
    context: RequestContext,
    error_response: ErrorResponse,
) -> Response | ResponseSteps | None:
    """Carry out a request by calling `answer`, but only if this broker is the controller.

    Any other broker answers NOT_CONTROLLER, and the client sends its request to the controller. A
    controller that has just started calls `answer` once it knows all topics: before, it would have
    to answer UNKNOWN_TOPIC_OR_PARTITION for topics that exist, and clients do not retry after that
    error. If it does not learn all topics within PATIENCE_MS (2 s), it answers NOT_CONTROLLER, too.
    """
    if services.other_controller() is not None:
        return error_response(request, ErrorCode.NOT_CONTROLLER)

    def once_known() -> ResponseSteps:
        if not services.known_topics.is_complete:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return (yield from answer())

    return once_complete(services.known_topics, once_known, request, context, error_response)


class TopicRequests:
    """Requests the creation of topics from the controller, which is another broker.

    ``config`` returns the settings in force.
    """

    def __init__(
        self, config: Callable[[], BrokerConfig], loop: Loop, to_controller: ControllerConnection
    ) -> None:
        self._config = config
        self._loop = loop
        self._to_controller = to_controller
        self._creating: set[str] = set()
        """Topics with an outstanding CreateTopics request to the controller."""

    def create(self, names: Sequence[str], done: Callable[[Refused], None]) -> None:
        """Request the creation of topics with this broker's default settings.

        ``done`` is called once, asynchronously, with an error for each topic, which answers the
        client's request for the topic: even a topic just created may have no leader yet.
        """
        partitions_left = MAX_PARTITIONS_PER_REQUEST
        topics: list[CreatableTopic] = []
        for name in names:
            # Do not request the creation of a topic while an earlier request for it is outstanding.
            topic = _topic(self._config(), name)
            if name not in self._creating and topic.num_partitions <= partitions_left:
                partitions_left -= topic.num_partitions
                topics.append(topic)
        asked = [topic.name for topic in topics]
        unknown: Refused = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not asked:
            self._loop.call_soon(lambda: done(unknown))
            return

        def on_response(response: CreateTopicsResponse | None) -> None:
            self._creating.difference_update(asked)
            if response is None:
                done(unknown)
                return
            codes = {each.name: error_code(each.error_code) for each in response.topics}
            done(unknown | creation_errors(codes))

        self._creating.update(asked)
        request = CreateTopicsRequest(topics=topics, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
        self._to_controller.send(
            CreateTopicsResponse,
            lambda _: request,
            on_response,
            AUTO_CREATION_TIMEOUT_MS + _SLACK_MS,
        )


def creation_errors(codes: Mapping[str, ErrorCode]) -> Refused:
    """The errors for a client whose request created topics automatically, by topic name.

    `codes` has the errors of the creation. For a topic that exists now, or soon will, the client
    gets LEADER_NOT_AVAILABLE, which it retries: the topic may not have leaders yet.
    """
    return {name: _CLIENT_ERRORS.get(code, code) for name, code in codes.items()}


_CLIENT_ERRORS = {
    ErrorCode.NONE: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def _topic(config: BrokerConfig, name: str) -> CreatableTopic:
    own = internal_topic(name, config)
    if own is None:
        return CreatableTopic(
            name=name,
            num_partitions=config["num.partitions"],
            replication_factor=config["default.replication.factor"],
        )
    return CreatableTopic(
        name=name,
        num_partitions=own.num_partitions,
        replication_factor=own.replication_factor,
        configs=[CreatableTopicConfig(name=key, value=own.configs[key]) for key in own.configs],
    )
