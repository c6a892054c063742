"""DescribeConfigs (key 32): the settings of topics and of this broker."""

from klog_broker.config import topic_config
from klog_broker.handlers.config_entries import (
    ConfigEntry,
    ConfigSource,
    ResourceType,
    broker_entries,
    topic_entries,
)
from klog_broker.handlers.context import BrokerServices, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import check_topic_name
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Every resource succeeds or fails by itself. A null list of names asks for all.

    One that stands there twice is answered once: the answer is much longer than the question.
    """
    results = []
    for asked in _each_once(request.resources):
        result = DescribeConfigsResult(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            error_message=None,
        )
        try:
            entries = _entries(context.broker, asked)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.text
        else:
            keys = asked.configuration_keys
            names = None if keys is None else set(keys)
            result.configs = [
                _described(entry, request, context.api_version)
                for entry in entries
                if names is None or entry.setting.name in names
            ]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _each_once(resources: list[DescribeConfigsResource]) -> list[DescribeConfigsResource]:
    """By type and name; of those that are asked about twice all settings that either asks for."""
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for each in resources:
        first = found.setdefault((each.resource_type, each.resource_name), each)
        if first is not each and first.configuration_keys is not None:
            if each.configuration_keys is None:
                first.configuration_keys = None
            else:
                first.configuration_keys += each.configuration_keys
    return list(found.values())


def _entries(broker: BrokerServices, asked: DescribeConfigsResource) -> list[ConfigEntry]:
    name = asked.resource_name
    match asked.resource_type:
        case ResourceType.TOPIC:
            try:
                check_topic_name(name)
            except InvalidTopicName as error:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
            topic = broker.metadata.image.topic(name)
            if topic is None:
                text = f"there is no topic {name}"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            return topic_entries(topic_config(broker.config, topic.configs), broker.config)
        case ResourceType.BROKER:
            # An empty name asks for the settings that were given to all brokers while they ran.
            if name == "":
                return []
            if name != str(broker.broker_id):
                text = f"this is broker {broker.broker_id}, and it does not know broker {name!r}"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            return broker_entries(broker.config)
        case other:
            text = f"resource type {other} is not served: 2 (topic) and 4 (broker) are"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)


def _described(
    entry: ConfigEntry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        # The field exists in version 0 alone; the source took its place.
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
    """The same error for every resource."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=code.message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked in request.resources
        ]
    )


HANDLER = ApiHandler(ApiKey.DESCRIBE_CONFIGS, handle, error_response)
