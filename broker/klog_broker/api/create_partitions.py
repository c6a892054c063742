"""CreatePartitions (key 37): adds partitions to existing topics."""

from collections import Counter
from functools import partial

from klog_broker.api.services import TopicsServices
from klog_broker.cluster.topic_requests import answer_at_controller
from klog_broker.dispatch.access import on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import Topic
from klog_broker.resources.requested_topics import requested_topic
from klog_broker.security.acls import AclOperation
from klog_broker.topics.changes import add_partitions
from klog_broker.topics.planning import (
    MAX_PARTITIONS_PER_REQUEST,
    MorePartitions,
    plan_more_partitions,
    too_many_partitions,
)
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response

# Cost of requesting one topic's new partitions from the metadata store and answering, in units of
# about 5 us of the event loop's time (runtime/event_loop/slices.py).
_CHANGE = 10


def handle(
    services: TopicsServices, request: CreatePartitionsRequest, context: RequestContext
) -> Response | ResponseSteps | None:
    return answer_at_controller(
        services, lambda: _add(services, request, context), request, context, error_response
    )


def _add(
    services: TopicsServices, request: CreatePartitionsRequest, context: RequestContext
) -> ResponseSteps:
    """Add or refuse the partitions of each topic independently of the others. But if the topics
    that pass the checks would together get more than MAX_PARTITIONS_PER_REQUEST new partitions,
    refuse them all. A topic that the request names twice gets one result, an error."""
    times = Counter(topic.name for topic in request.topics)
    results = {name: CreatePartitionsTopicResult(name=name) for name in times}
    planned: dict[str, MorePartitions] = {}
    for topic in request.topics:
        yield 2
        try:
            if times[topic.name] > 1:
                text = f"topic {topic.name} stands {times[topic.name]} times in the request"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            planned[topic.name] = _plan(services, context, topic)
        except BrokerError as error:
            _put(results[topic.name], error)
    total = sum(len(more.assignment) for more in planned.values())
    if total > MAX_PARTITIONS_PER_REQUEST:
        for name in planned:
            _put(results[name], too_many_partitions(total))
        planned = {}
    response = CreatePartitionsResponse(results=list(results.values()))
    if request.validate_only or not planned:
        return response
    waiting = len(planned)

    def on_added(name: str, outcome: Topic | BrokerError) -> None:
        nonlocal waiting
        if isinstance(outcome, BrokerError):
            _put(results[name], outcome)
        waiting -= 1
        if waiting == 0:
            context.response_sink.send(response)

    for name, more in planned.items():
        yield _CHANGE
        add_partitions(services, name, more, partial(on_added, name), timeout_ms=request.timeout_ms)
    return None


def _plan(
    services: TopicsServices, context: RequestContext, requested: CreatePartitionsTopic
) -> MorePartitions:
    topic = requested_topic(services, context, AclOperation.ALTER, requested.name).existing()
    if topic.is_internal:
        text = f"{topic.name} holds this broker's own state; its partitions are fixed"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    assignment = None
    if requested.assignments is not None:
        assignment = [each.broker_ids for each in requested.assignments]
    return plan_more_partitions(services, topic, requested.count, assignment)


def _put(result: CreatePartitionsTopicResult, error: BrokerError) -> None:
    result.error_code, result.error_message = error.code, client_text(error)


def error_response(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Return a response with ``code`` for every topic."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=code.message
            )
            for topic in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.CREATE_PARTITIONS, handle, error_response, access=(on_topics(AclOperation.ALTER),)
)
