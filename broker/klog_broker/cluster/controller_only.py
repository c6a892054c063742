"""Changes of topics, which the controller of a cluster makes: clients ask the controller, and
brokers ask it for clients.

A standalone broker is its own controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from klog_broker.cluster.controller_channel import ToController
from klog_broker.cluster.known_topics import KnownTopics, once_complete
from klog_broker.config import BrokerConfig
from klog_broker.dispatch.request_context import AnswerSteps, ErrorResponse, RequestContext
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
"""How long a request waits for the leaders of topics that it has made; then it is answered that
there are none yet, and the client asks again."""
_SLACK_MS = 500

Refused = dict[str, ErrorCode]


class ControllerServices(Protocol):
    """The services of APIs that the controller answers."""

    @property
    def known_topics(self) -> KnownTopics: ...

    @property
    def other_controller(self) -> Callable[[], TopicRequests | None]:
        """Asks the controller; None while this broker makes and changes topics itself."""


def at_controller(
    services: ControllerServices,
    answer: Callable[[], AnswerSteps],
    request: Request,
    context: RequestContext,
    error_response: ErrorResponse,
) -> Response | AnswerSteps | None:
    """Return from a handler whose `answer` only the controller has, and may say that a topic does
    not exist. Other brokers answer NOT_CONTROLLER, on which clients ask again. A controller that
    has just started waits until it knows all topics: on UNKNOWN_TOPIC_OR_PARTITION no client asks
    again."""
    if services.other_controller() is not None:
        return error_response(request, ErrorCode.NOT_CONTROLLER)

    def once_known() -> AnswerSteps:
        if not services.known_topics.is_complete:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return (yield from answer())

    return once_complete(services.known_topics, once_known, request, context, error_response)


class TopicRequests:
    """Asks the controller, another broker, to create topics. ``config`` gives the settings in
    force."""

    def __init__(
        self, config: Callable[[], BrokerConfig], loop: Loop, to_controller: ToController
    ) -> None:
        self._config = config
        self._loop = loop
        self._to_controller = to_controller
        self._creating: set[str] = set()
        """Topics that the controller was asked to create and has not answered for."""

    def create(self, names: Sequence[str], done: Callable[[Refused], None]) -> None:
        """Have topics created with what this broker is configured for. ``done`` is called once,
        later, with the topics that were not created."""
        room = MAX_PARTITIONS_PER_REQUEST
        topics: list[CreatableTopic] = []
        for name in names:
            # A topic that the controller was asked for already is not asked for twice.
            topic = _topic(self._config(), name)
            if name not in self._creating and topic.num_partitions <= room:
                room -= topic.num_partitions
                topics.append(topic)
        asked = [topic.name for topic in topics]
        unknown: Refused = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not asked:
            self._loop.call_soon(lambda: done(unknown))
            return

        def answered(reply: CreateTopicsResponse | None) -> None:
            self._creating.difference_update(asked)
            if reply is None:
                done(unknown)
                return
            codes = {each.name: error_code(each.error_code) for each in reply.topics}
            done(unknown | not_made(codes))

        self._creating.update(asked)
        request = CreateTopicsRequest(topics=topics, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
        self._to_controller.send(
            CreateTopicsResponse, lambda _: request, answered, AUTO_CREATION_TIMEOUT_MS + _SLACK_MS
        )


def not_made(codes: Mapping[str, ErrorCode]) -> Refused:
    """What a client is told that asked for topics which did not exist, by the codes of their
    creation: that a topic is there, or will be, is no error, but there may be no leader yet."""
    return {name: _TOLD.get(code, code) for name, code in codes.items()}


_TOLD = {
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
