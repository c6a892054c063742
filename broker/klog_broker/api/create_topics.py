"""CreateTopics (key 19): creates topics from partition and replica counts, or from an
assignment."""

from collections import Counter
from collections.abc import Generator

from klog_broker.api.services import TopicsServices
from klog_broker.config import topic_config
from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import INTERNAL_TOPICS, Topic
from klog_broker.metadata.interface import NewTopic
from klog_broker.resources.requested_topics import may_create_topic
from klog_broker.security.acls import AclOperation
from klog_broker.topics.changes import create_topics
from klog_broker.topics.entries import topic_entries
from klog_broker.topics.planning import (
    MAX_PARTITIONS_PER_REQUEST,
    plan_new_topic,
    too_many_partitions,
)
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.keys import ApiKey

_NO_ID = UUID(int=0)


_INTERNAL_TOPIC_MESSAGE = (
    "the broker keeps its own state in this topic, so it ignored the requested partitions and"
    " settings, and used the number of partitions, segment size and cleanup policy that the"
    " broker is configured for"
)

# Costs in units of about 5 us of the event loop's time (runtime/event_loop/slices.py). _PLANNED: to
# check a topic with its settings. _SETTINGS: to describe all settings of a topic.
_PLANNED = 10
_SETTINGS = 60

_DescribedSettings = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]


def handle(
    services: TopicsServices, request: CreateTopicsRequest, context: RequestContext
) -> ResponseSteps:
    """Create or refuse each topic independently of the others. But if the topics that pass the
    checks would together have more than MAX_PARTITIONS_PER_REQUEST partitions, refuse them all. A
    topic that the request names twice gets one result, an error."""
    if services.other_controller() is not None:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    results: dict[str, CreatableTopicResult] = {}
    planned: list[NewTopic] = []
    times = Counter(topic.name for topic in request.topics)
    for topic in request.topics:
        yield _PLANNED
        try:
            if times[topic.name] > 1:
                text = f"topic {topic.name} stands {times[topic.name]} times in the request"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            _check_may_create(services, context, topic.name)
            planned.append(_plan(services, topic))
        except BrokerError as error:
            results[topic.name] = _failed(topic.name, error)
    total = sum(len(new.assignment) for new in planned)
    if total > MAX_PARTITIONS_PER_REQUEST:
        too_many = too_many_partitions(total)
        results.update((new.name, _failed(new.name, too_many)) for new in planned)
        planned = []
    client_text: _DescribedSettings = {}
    if request.validate_only or not planned:
        for new in planned:
            results[new.name] = yield from _created(services, new, _NO_ID, client_text)
        return _response(times, results)

    def on_created(outcomes: list[Topic | BrokerError]) -> None:
        context.response_sink.send_in_slices(answer(outcomes))

    def answer(outcomes: list[Topic | BrokerError]) -> ResponseSteps:
        for new, outcome in zip(planned, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                results[new.name] = _failed(new.name, outcome)
            else:
                results[new.name] = yield from _created(
                    services, new, outcome.topic_id, client_text
                )
        return _response(times, results)

    create_topics(services, planned, on_created, timeout_ms=request.timeout_ms)
    return None


def _check_may_create(services: TopicsServices, context: RequestContext, name: str) -> None:
    """Raise BrokerError unless the client may create topics in the cluster, or this topic."""
    if not may_create_topic(services, context, name):
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _plan(services: TopicsServices, topic: CreatableTopic) -> NewTopic:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"{config.name} has no value (null)")
        configs[config.name] = config.value
    assignment: dict[int, list[int]] = {}
    for row in topic.assignments:
        if row.partition_index in assignment:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {row.partition_index} is assigned twice",
            )
        assignment[row.partition_index] = row.broker_ids
    return plan_new_topic(
        services,
        topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment,
        configs=configs,
    )


def _failed(name: str, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.code, error_message=client_text(error), configs=[]
    )


def _created(
    services: TopicsServices, new: NewTopic, topic_id: UUID, client_text: _DescribedSettings
) -> Generator[int, None, CreatableTopicResult]:
    """Return the result for a created topic. With validate_only no topic is created, and the result
    has no topic id.

    ``client_text`` caches the described settings for later topics of the request that override the
    same settings in the same way.
    """
    given = tuple(sorted(new.configs.items()))
    yield 1 if given in client_text else _SETTINGS
    if given not in client_text:
        client_text[given] = _settings(services, new)
    return CreatableTopicResult(
        name=new.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=_INTERNAL_TOPIC_MESSAGE if new.name in INTERNAL_TOPICS else None,
        num_partitions=len(new.assignment),
        replication_factor=len(new.assignment[0]),
        configs=client_text[given],
    )


def _settings(services: TopicsServices, new: NewTopic) -> list[CreatableTopicConfigs]:
    entries = topic_entries(topic_config(services.config, new.configs), services.config)
    return [
        CreatableTopicConfigs(
            name=entry.setting.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.setting.is_secret,
        )
        for entry in entries
    ]


def _response(
    names: Counter[str], results: dict[str, CreatableTopicResult]
) -> CreateTopicsResponse:
    """Return the response, with its topics in the order of the request."""
    return CreateTopicsResponse(topics=[results[name] for name in names])


def error_response(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Return a response with ``code`` for every topic."""
    error = BrokerError(code)
    return CreateTopicsResponse(topics=[_failed(topic.name, error) for topic in request.topics])


API = BrokerApi(
    ApiKey.CREATE_TOPICS,
    handle,
    error_response,
    access=(
        sometimes_on_cluster(AclOperation.CREATE),
        on_topics(AclOperation.CREATE),
        on_topics(AclOperation.DESCRIBE_CONFIGS),
    ),
)
