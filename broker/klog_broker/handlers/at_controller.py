"""What only the controller of a cluster does: clients ask it themselves, and brokers for clients.

A broker that is alone is its own controller.
"""

from collections.abc import Callable, Mapping, Sequence

from klog_broker.handlers.context import (
    AnswerSteps,
    BrokerServices,
    ErrorResponse,
    RequestContext,
)
from klog_broker.handlers.told_topics import knows_all_partitions, once_told
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


def is_controller(broker: BrokerServices) -> bool:
    """Whether topics are made and changed here."""
    if not broker.config.joins_cluster:
        return True
    return broker.metadata.image.controller_id == broker.broker_id


def at_controller(
    answer: Callable[[], AnswerSteps],
    request: Request,
    context: RequestContext,
    error_response: ErrorResponse,
) -> Response | AnswerSteps | None:
    """What a handler returns whose `answer` is the controller's, and may be that a topic is not
    there. A controller that has just started waits until it knows: nobody asks again who hears
    that. On NOT_CONTROLLER clients do."""
    broker = context.broker
    if not is_controller(broker):
        return error_response(request, ErrorCode.NOT_CONTROLLER)

    def once_known() -> AnswerSteps:
        if not knows_all_partitions(broker):
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return (yield from answer())

    return once_told(once_known, request, context, error_response)


def have_created(
    broker: BrokerServices, names: Sequence[str], done: Callable[[Refused], None]
) -> None:
    """Have the controller, which is another broker, make topics with what this broker is configured
    for. ``done`` is called once, later, with those that were not made."""
    room = MAX_PARTITIONS_PER_REQUEST
    topics: list[CreatableTopic] = []
    for name in names:
        # Who asks again meanwhile makes nothing new.
        topic = _topic(broker, name)
        if name not in broker.creating and topic.num_partitions <= room:
            room -= topic.num_partitions
            topics.append(topic)
    asked = [topic.name for topic in topics]
    unknown: Refused = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    to_controller = broker.to_controller
    if not asked or to_controller is None:
        broker.loop.call_soon(lambda: done(unknown))
        return

    def answered(reply: CreateTopicsResponse | None) -> None:
        broker.creating.difference_update(asked)
        if reply is None:
            done(unknown)
            return
        codes = {each.name: error_code(each.error_code) for each in reply.topics}
        done(unknown | not_made(codes))

    broker.creating.update(asked)
    request = CreateTopicsRequest(topics=topics, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
    to_controller.send(
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


def _topic(broker: BrokerServices, name: str) -> CreatableTopic:
    own = internal_topic(name, broker.config)
    if own is None:
        return CreatableTopic(
            name=name,
            num_partitions=broker.config["num.partitions"],
            replication_factor=broker.config["default.replication.factor"],
        )
    return CreatableTopic(
        name=name,
        num_partitions=own.num_partitions,
        replication_factor=own.replication_factor,
        configs=[CreatableTopicConfig(name=key, value=own.configs[key]) for key in own.configs],
    )
