"""DescribeConfigs (key 32): returns the settings of topics, of this broker, and of all brokers.

resources_without_settings.py describes resources of other types.
"""

from collections.abc import Generator, Mapping
from itertools import islice
from typing import Any

from klog_broker.api.alterable_brokers import stored_name
from klog_broker.api.resources_without_settings import describe_other
from klog_broker.api.services import SettingsServices
from klog_broker.cluster.known_topics import PATIENCE_MS, once_complete
from klog_broker.config import stored_topic_config
from klog_broker.config.types import SettingType
from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import ALL_BROKERS, check_topic_name
from klog_broker.resources.authorizer import is_allowed
from klog_broker.resources.requested_topics import check_topic, requested_topic
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from klog_broker.topics.entries import (
    ConfigEntry,
    ConfigSource,
    ResourceType,
    all_brokers_entries,
    broker_entries,
    topic_entries,
)
from pyspark_klog.errors import BrokerError, ErrorCode, InvariantViolation
from pyspark_klog.ids import TopicId
from pyspark_klog.protocol.apis.describe_configs import (
    DELETING_TOPICS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pyspark_klog.protocol.keys import ApiKey

# Costs of finding and describing all settings of a topic or broker, in units of about 5 us of the
# event loop's time (runtime/event_loop/slices.py).
_SETTINGS = {ResourceType.TOPIC: 60, ResourceType.BROKER: 500}

MOST_DELETING_NAMED = 100
"""The most topics that the setting klog.deleting.topics names: versions before 4 of DescribeConfigs
allow 32,767 bytes for a value."""

_DescribedSettings = dict[tuple[Any, ...], list[DescribeConfigsResourceResult]]


def handle(
    services: SettingsServices, request: DescribeConfigsRequest, context: RequestContext
) -> ResponseSteps | None:
    if all(each.resource_type != ResourceType.TOPIC for each in request.resources):
        return _answer(services, request, context)
    return once_complete(
        services.known_topics,
        lambda: _with_settings(services, request, context),
        request,
        context,
        error_response,
    )


def _with_settings(
    services: SettingsServices, request: DescribeConfigsRequest, context: RequestContext
) -> ResponseSteps:
    """Answer at once, unless this broker is still reading the settings of a requested topic from
    ZooKeeper, because the controller has just sent the topic: then answer after the read, or after
    PATIENCE_MS, 2 s. Without this wait the topic would seem to have no overrides."""
    reading = services.new_topic_settings
    unread: dict[str, TopicId] = {}
    for resource in request.resources:
        topic = services.metadata.image.topic(resource.resource_name)
        if topic is None or resource.resource_type != ResourceType.TOPIC:
            continue
        if reading.is_reading_settings_of(topic.topic_id):
            unread[topic.name] = topic.topic_id
    if not unread:
        return (yield from _answer(services, request, context))
    is_answered = False

    def answer() -> None:
        nonlocal is_answered
        if not is_answered:
            is_answered = True
            timer.cancel()
            context.response_sink.send_in_slices(_answer(services, request, context))

    timer = services.loop.call_later(PATIENCE_MS, answer)
    reading.learn_topics(unread, answer)
    return None


def _answer(
    services: SettingsServices, request: DescribeConfigsRequest, context: RequestContext
) -> ResponseSteps:
    """Describe each resource independently of the others. If the list of setting names of a
    resource is null or, as in Kafka, empty, all settings of the resource are described.

    A resource that the request names twice is described once, because a short request that repeats
    a name could cause a huge response.
    """
    results = []
    answered: _DescribedSettings = {}
    for resource in _each_once(request.resources):
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message=None,
        )
        try:
            result.configs = yield from _configs(services, request, resource, context, answered)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, client_text(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _configs(
    services: SettingsServices,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    context: RequestContext,
    answered: _DescribedSettings,
) -> Generator[int, None, list[DescribeConfigsResourceResult]]:
    """Return the described settings of one resource. Each yield is the cost of a step, in units of
    about 5 us of the event loop's time (runtime/event_loop/slices.py). ``answered`` caches the
    described settings for later topics of the request with the same overrides (most topics have
    none) and the same requested setting names."""
    yield 1
    keys = resource.configuration_keys or None
    if resource.resource_type not in _SETTINGS:
        found = describe_other(services, resource.resource_type, resource.resource_name)
        return [each for each in found if keys is None or each.name in keys]
    given = _given(services, context, resource)
    name = "" if resource.resource_type == ResourceType.TOPIC else resource.resource_name
    key = (resource.resource_type, name, given, None if keys is None else tuple(keys))
    if key not in answered:
        yield _SETTINGS[ResourceType(resource.resource_type)]
        names = None if keys is None else set(keys)
        answered[key] = [
            _described(entry, request, context.api_version)
            for entry in _entries(services, resource, dict(given or ()))
            if names is None or entry.setting.name in names
        ]
    found = answered[key]
    if DELETING_TOPICS in (keys or ()) and resource.resource_type == ResourceType.BROKER:
        found = [*found, _deleting_topics(services)]
    return found


def _deleting_topics(services: SettingsServices) -> DescribeConfigsResourceResult:
    """Return the names of the topics whose deletion is not finished, for `klog topics`."""
    names = islice(sorted(services.metadata.deleting_topics()), MOST_DELETING_NAMED)
    return DescribeConfigsResourceResult(
        name=DELETING_TOPICS,
        value=",".join(names),
        read_only=True,
        config_source=ConfigSource.DYNAMIC_BROKER_CONFIG,
        config_type=SettingType.LIST,
    )


def _each_once(resources: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """Return each resource once, by type and name, with all settings that any of the request's
    array elements for this resource names."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for each in resources:
        first = found.setdefault((each.resource_type, each.resource_name), each)
        if first is not each and first.configuration_keys:
            if not each.configuration_keys:
                first.configuration_keys = None
            else:
                first.configuration_keys += each.configuration_keys
    return list(found.values())


def _given(
    services: SettingsServices, context: RequestContext, resource: DescribeConfigsResource
) -> tuple[tuple[str, str], ...] | None:
    """Return the stored settings from which a resource is described: the overrides of a topic, or
    the settings stored for all brokers. Return None for a single broker, which is described from
    its configuration."""
    name, operation = resource.resource_name, AclOperation.DESCRIBE_CONFIGS
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic(services, context, operation, name)
            try:
                check_topic_name(name)
            except InvalidTopicName as error:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
            topic = requested_topic(services, context, operation, name).existing()
            return tuple(sorted(topic.configs.items()))
        case ResourceType.BROKER:
            if not is_allowed(services, context, operation, AclResourceType.CLUSTER, CLUSTER_NAME):
                raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if stored_name(services, name) == ALL_BROKERS:
                return tuple(services.metadata.image.broker_configs.get(ALL_BROKERS, {}).items())
            return None
        case other:
            raise InvariantViolation(f"resource type {other} has no settings")


def _entries(
    services: SettingsServices, resource: DescribeConfigsResource, given: Mapping[str, str]
) -> list[ConfigEntry]:
    if resource.resource_type == ResourceType.TOPIC:
        return topic_entries(stored_topic_config(services.config, given), services.config)
    if resource.resource_name == ALL_BROKERS:
        return all_brokers_entries(given)
    return broker_entries(services.config, resource.configuration_keys or ())


def _described(
    entry: ConfigEntry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        # Only responses of version 0 have is_default; later versions have config_source instead.
        is_default=version == 0 and entry.source is ConfigSource.DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=entry.setting.is_secret,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in synonyms
        ],
        config_type=entry.setting.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def error_response(request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """Return a response with ``code`` for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=code.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


API = BrokerApi(
    ApiKey.DESCRIBE_CONFIGS,
    handle,
    error_response,
    access=(
        sometimes_on_cluster(AclOperation.DESCRIBE_CONFIGS),
        on_topics(AclOperation.DESCRIBE_CONFIGS),
    ),
)
