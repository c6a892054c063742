"""DeleteTopics (key 20): deletes topics by name, or from version 6 on by name or id."""

from collections import Counter
from functools import partial

from klog_broker.api.services import TopicsServices
from klog_broker.cluster.topic_requests import answer_at_controller
from klog_broker.dispatch.access import on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import Topic
from klog_broker.resources.requested_topics import may_use_topic, requested_topic
from klog_broker.security.acls import AclOperation
from klog_broker.topics.changes import delete_topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, TopicId
from pyspark_klog.protocol.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response

_NO_ID = UUID(int=0)
_FIRST_VERSION_WITH_IDS = 6
_FIRST_VERSION_WITH_TOPIC_DELETION_DISABLED = 3


# Cost of requesting one topic's deletion from the metadata store and answering, in units of about 5
# us of the event loop's time (runtime/event_loop/slices.py).
_DELETION = 10


def handle(
    services: TopicsServices, request: DeleteTopicsRequest, context: RequestContext
) -> Response | ResponseSteps | None:
    return answer_at_controller(
        services, lambda: _delete(services, request, context), request, context, error_response
    )


def _delete(
    services: TopicsServices, request: DeleteTopicsRequest, context: RequestContext
) -> ResponseSteps:
    """Delete or refuse each topic independently of the others.

    Like Kafka, answers INVALID_REQUEST in one result, and deletes nothing, for a name or id that
    the request has twice, and for a topic that the request names by its name and by its id."""
    requested = _requested_topics(request, context.api_version)
    results: list[DeletableTopicResult] = []
    found: dict[UUID, DeletableTopicResult] = {}
    times = Counter((each.name, each.topic_id) for each in requested)
    # The dict keeps one of several array elements with the same name or id, so that they get one
    # result together.
    for key, each in {(each.name, each.topic_id): each for each in requested}.items():
        yield 2
        try:
            if times[key] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
            topic = _find(services, context, each)
        except BrokerError as error:
            results.append(_failed(each, error))
            continue
        result = found.get(topic.topic_id)
        is_named_twice = result is not None or times[None, topic.topic_id] > 1
        if result is None:
            result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
            found[topic.topic_id] = result
            results.append(result)
        if is_named_twice:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"topic {topic.name} is named twice: by its name and by its id"
    response = DeleteTopicsResponse(responses=results)
    to_delete = {
        topic_id: result
        for topic_id, result in found.items()
        if result.error_code == ErrorCode.NONE
    }
    if not to_delete:
        return response
    waiting = len(to_delete)

    def on_deleted(result: DeletableTopicResult, error: BrokerError | None) -> None:
        nonlocal waiting
        if error is not None:
            result.error_code, result.error_message = error.code, client_text(error)
        waiting -= 1
        if waiting == 0:
            context.response_sink.send(response)

    for topic_id, result in to_delete.items():
        yield _DELETION
        delete_topic(
            services,
            TopicId(topic_id),
            partial(on_deleted, result),
            timeout_ms=request.timeout_ms,
        )
    return None


def _requested_topics(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= _FIRST_VERSION_WITH_IDS:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def _find(services: TopicsServices, context: RequestContext, requested: DeleteTopicState) -> Topic:
    if not services.config["delete.topic.enable"]:
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED
            if context.api_version >= _FIRST_VERSION_WITH_TOPIC_DELETION_DISABLED
            else ErrorCode.INVALID_REQUEST
        )
        raise BrokerError(code, "this broker deletes no topics: delete.topic.enable=false")
    if requested.name is not None and requested.topic_id != _NO_ID:
        text = "name the topic or give its id, not both"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    if requested.name is not None:
        found = requested_topic(services, context, AclOperation.DELETE, requested.name)
    elif requested.topic_id != _NO_ID:
        found = requested_topic(services, context, AclOperation.DELETE, None, requested.topic_id)
        is_denied = found.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if is_denied and may_use_topic(services, context, AclOperation.DESCRIBE, found.name):
            # The response names the topic only to a client that may describe it.
            requested.name = found.name
    else:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "name the topic or give its id")
    topic = found.existing()
    if topic.is_internal:
        text = f"{topic.name} holds this broker's own state and cannot be deleted"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    return topic


def _failed(requested: DeleteTopicState, error: BrokerError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=requested.name,
        topic_id=requested.topic_id,
        error_code=error.code,
        error_message=client_text(error),
    )


def error_response(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Return a response with ``code`` for every topic."""
    error = BrokerError(code)
    requested = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    return DeleteTopicsResponse(responses=[_failed(each, error) for each in requested])


API = BrokerApi(
    ApiKey.DELETE_TOPICS,
    handle,
    error_response,
    access=(
        on_topics(AclOperation.DELETE),
        on_topics(AclOperation.DESCRIBE),
    ),
)
