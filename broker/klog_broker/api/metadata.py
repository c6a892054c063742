"""Metadata: brokers, topics and their partitions' leaders; creates missing topics on request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from klog_broker.api.services import TopicsServices
from klog_broker.cluster.known_topics import once_complete
from klog_broker.cluster.topic_requests import (
    AUTO_CREATION_TIMEOUT_MS,
    TopicRequests,
    creation_errors,
)
from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import (
    INTERNAL_TOPICS,
    Topic,
    check_topic_name,
)
from klog_broker.metadata.interface import NewTopic
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.resources.operations import cluster_operations, topic_operations
from klog_broker.resources.requested_topics import may_create_topic, may_use_topic, requested_topic
from klog_broker.resources.visible_partitions import SeenPartitions
from klog_broker.security.acls import AclOperation
from klog_broker.topics.changes import create_topics
from klog_broker.topics.planning import MAX_PARTITIONS_PER_REQUEST, plan_new_topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from pyspark_klog.protocol.keys import ApiKey

# Cost of checking a topic to create, with its settings, in units of about 5 us of the event loop's
# time (runtime/event_loop/slices.py).
_PLANNED = 10

_PARTITIONS_A_STEP = 50
_FIRST_VERSION_WITH_LISTENERS = 6
_FIRST_VERSION_BY_ID = 12


def handle(
    services: TopicsServices, request: MetadataRequest, context: RequestContext
) -> ResponseSteps | None:
    """Answer with brokers and topics.

    In a cluster, the response waits up to 2 s (PATIENCE_MS) for topics that the controller has not
    sent yet. If the wait ends without them, an unknown topic gets LEADER_NOT_AVAILABLE, so that
    clients retry. A request for all topics waits only if the controller has never sent all topics
    since this broker started; if it still has not sent them then, the connection is closed.

    Versions 10 and 11 have a field for topic ids, but Kafka refuses requests that use it before
    version 12. From version 12 on a topic's id takes precedence over its name.
    """
    for each in request.topics or ():
        if context.api_version < _FIRST_VERSION_BY_ID:
            if each.name is None or each.topic_id != NO_TOPIC_ID:
                raise BrokerError(ErrorCode.INVALID_REQUEST)
        elif each.topic_id != NO_TOPIC_ID:
            each.name = None
    if _knows_requested_topics(services, request, context):
        return _answer(services, request, context)
    return once_complete(
        services.known_topics,
        lambda: _answer_after_wait(services, request, context),
        request,
        context,
        error_response,
    )


def _answer_after_wait(
    services: TopicsServices, request: MetadataRequest, context: RequestContext
) -> ResponseSteps:
    if _names_all(request, context) and not services.known_topics.has_been_complete:
        context.response_sink.close("the controller has not sent the cluster's topics yet")
        return None
    return (yield from _answer(services, request, context))


def _names_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _knows_requested_topics(
    services: TopicsServices, request: MetadataRequest, context: RequestContext
) -> bool:
    if services.known_topics.is_complete:
        return True
    if request.topics is None or _names_all(request, context):
        return services.known_topics.has_been_complete
    image = services.metadata.image
    return all(
        each.name in image.topics
        if each.name is not None
        else image.topic_by_id(each.topic_id) is not None
        for each in request.topics
    )


def _answer(
    services: TopicsServices, request: MetadataRequest, context: RequestContext
) -> ResponseSteps:
    missing = _topics_to_create(services, request, context)
    if not missing:
        return _describe(services, request, context, {})
    controller = services.other_controller()
    if controller is None:
        return _create(services, request, context, missing)
    return _create_at_controller(services, request, context, missing, controller)


def _create_at_controller(
    services: TopicsServices,
    request: MetadataRequest,
    context: RequestContext,
    missing: list[str],
    controller: TopicRequests,
) -> ResponseSteps:
    denied: dict[str, ErrorCode] = {}

    def created(refused: dict[str, ErrorCode]) -> None:
        refused.update(denied)
        context.response_sink.send_in_slices(_describe(services, request, context, refused))

    legal = []
    for name in missing:
        yield 1
        try:
            check_topic_name(name)
        except InvalidTopicName:
            continue
        if may_create_topic(services, context, name):
            legal.append(name)
        else:
            denied[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    controller.create(legal, created)
    return None


def _create(
    services: TopicsServices, request: MetadataRequest, context: RequestContext, missing: list[str]
) -> ResponseSteps:
    planned: list[NewTopic] = []
    refused: dict[str, ErrorCode] = {}
    partitions_left = MAX_PARTITIONS_PER_REQUEST
    for name in missing:
        yield _PLANNED
        if not may_create_topic(services, context, name):
            refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        try:
            new = plan_new_topic(services, name)
        except BrokerError as error:
            refused[name] = error.code
            continue
        partitions_left -= len(new.assignment)
        if partitions_left < 0:
            # One request creates at most MAX_PARTITIONS_PER_REQUEST partitions. The response calls
            # the remaining topics unknown; the client retries, and its next request creates them.
            break
        planned.append(new)

    def created(results: list[Topic | BrokerError]) -> None:
        codes = {
            new.name: result.code
            for new, result in zip(planned, results, strict=True)
            if isinstance(result, BrokerError)
        }
        refused.update(creation_errors(codes))
        # Answer with an error although the topic was created, so that the client requests the
        # metadata again: Kafka answers with the same error while its controller creates a topic.
        if services.metadata.is_standalone:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        made = (new.name for new in planned if new.name not in codes)
        refused.update(dict.fromkeys(made, code))
        context.response_sink.send_in_slices(_describe(services, request, context, refused))

    if not planned:
        return (yield from _describe(services, request, context, refused))
    create_topics(services, planned, created, timeout_ms=AUTO_CREATION_TIMEOUT_MS)
    return None


def _topics_to_create(
    services: TopicsServices, request: MetadataRequest, context: RequestContext
) -> list[str]:
    """Return the names of unknown topics that both the client and the broker allow to create."""
    allowed = request.allow_auto_topic_creation or context.api_version < 4
    if request.topics is None or not allowed or not services.config["auto.create.topics.enable"]:
        return []
    if not services.known_topics.is_complete:
        return []
    names = dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
    known = services.metadata.image.topics
    # Metadata creates no internal topics: FindCoordinator creates them, with special settings.
    missing = [name for name in names if name not in known and name not in INTERNAL_TOPICS]
    may_describe = partial(may_use_topic, services, context, AclOperation.DESCRIBE)
    return missing if services.authorizer is ALLOWS_ALL else list(filter(may_describe, missing))


def _describe(
    services: TopicsServices,
    request: MetadataRequest,
    context: RequestContext,
    refused: dict[str, ErrorCode],
) -> ResponseSteps:
    """Return the response; each yield is the cost of a step in units of about 5 us of the event
    loop's time. A long response is made over several event-loop turns: a topic that is created or
    deleted meanwhile may or may not be in it."""
    image = services.metadata.image
    seen = SeenPartitions(
        services,
        context,
        names_listeners=context.api_version >= _FIRST_VERSION_WITH_LISTENERS,
        hides_replicas=context.api_version == 0,
    )
    with_operations = request.include_topic_authorized_operations
    response = MetadataResponse(
        brokers=_brokers(services, context),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
    )
    wanted: Iterable[Topic | MetadataRequestTopic]
    if request.topics is None or _names_all(request, context):
        wanted = image.topics.values()
    else:
        # Describe each requested name or id once, as in Kafka, since the description can be much
        # longer than the name.
        wanted = {
            (requested.name, requested.topic_id): requested for requested in request.topics
        }.values()
    topic: Topic | None
    for each in wanted:
        if isinstance(each, Topic):
            if not may_use_topic(services, context, AclOperation.DESCRIBE, each.name):
                continue
            topic, answer = each, _topic(services, context, each, with_operations)
        else:
            topic, answer = _one(services, each, context, refused, with_operations)
        response.topics.append(answer)
        yield 1
        if topic is not None:
            for number, state in enumerate(topic.partitions):
                if number % _PARTITIONS_A_STEP == _PARTITIONS_A_STEP - 1:
                    yield _PARTITIONS_A_STEP
                answer.partitions.append(seen.partition(topic.name, number, state))
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(services, context)
    return response


def _brokers(services: TopicsServices, context: RequestContext) -> list[MetadataResponseBroker]:
    """Return the brokers that have a listener of the same name as the listener to which the client
    is connected, with the address of this listener."""
    found = []
    for broker in services.metadata.image.brokers.values():
        address = broker.endpoint(context.listener)
        if address is not None:
            found.append(
                MetadataResponseBroker(
                    node_id=broker.broker_id,
                    host=address.host,
                    port=address.port,
                    rack=broker.rack,
                )
            )
    return found


def _one(
    services: TopicsServices,
    requested: MetadataRequestTopic,
    context: RequestContext,
    refused: dict[str, ErrorCode],
    with_operations: bool,
) -> tuple[Topic | None, MetadataResponseTopic]:
    """Return the topic (None if the response has an error), and its response without partitions."""
    # Names can be null in requests from version 10 on, but in responses only from 12 on.
    no_name = None if context.api_version >= 12 else ""
    if requested.name is None and requested.topic_id == NO_TOPIC_ID:
        return None, MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=no_name)
    topic_id = requested.topic_id if requested.name is None else None
    found = requested_topic(services, context, AclOperation.DESCRIBE, requested.name, topic_id)
    topic = found.topic
    if requested.name is None:
        if topic is None:
            unknown = MetadataResponseTopic(
                error_code=found.error, name=no_name, topic_id=requested.topic_id
            )
            return None, unknown
        return topic, _topic(services, context, topic, with_operations)
    if found.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None, MetadataResponseTopic(error_code=found.error, name=requested.name)
    if topic is None or requested.name in refused:
        code = refused.get(requested.name, found.error)
        try:
            check_topic_name(requested.name)
        except InvalidTopicName:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        unknown = MetadataResponseTopic(
            error_code=code, name=requested.name, is_internal=requested.name in INTERNAL_TOPICS
        )
        if with_operations:
            unknown.topic_authorized_operations = topic_operations(
                services, context, requested.name
            )
        return None, unknown
    return topic, _topic(services, context, topic, with_operations)


def _topic(
    services: TopicsServices, context: RequestContext, topic: Topic, with_operations: bool
) -> MetadataResponseTopic:
    answer = MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal
    )
    if with_operations:
        answer.topic_authorized_operations = topic_operations(services, context, topic.name)
    return answer


def error_response(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


API = BrokerApi(
    ApiKey.METADATA,
    handle,
    error_response,
    access=(
        on_topics(AclOperation.DESCRIBE),
        on_topics(AclOperation.CREATE),
        sometimes_on_cluster(AclOperation.CREATE),
    ),
)
