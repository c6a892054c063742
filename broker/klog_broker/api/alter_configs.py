"""AlterConfigs (key 33): replaces all settings of topics or all dynamic settings of brokers.

Settings that the request does not name are reset. IncrementalAlterConfigs, which changes single
settings, has replaced AlterConfigs; old tools still send it. When the response is sent, the topic's
logs on this broker already follow the new settings.
"""

from collections.abc import Mapping
from functools import partial

from klog_broker.api.alterable_brokers import stored_name
from klog_broker.api.alterable_topics import (
    alterable_topic,
    check_alterable,
    check_setting_names,
)
from klog_broker.api.alterations import alter_each, set_error
from klog_broker.api.services import SettingsServices
from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.security.acls import AclOperation
from klog_broker.topics.broker_settings import Given, checked_broker_configs
from klog_broker.topics.changes import Alter, change_broker_configs, change_topic_configs
from klog_broker.topics.entries import ResourceType
from klog_broker.topics.planning import check_effects, checked_topic_config
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: SettingsServices, request: AlterConfigsRequest, context: RequestContext
) -> ResponseSteps:
    """Apply or refuse all changes of a resource (a topic or broker) together, independently of the
    other resources."""
    return alter_each(
        services,
        context,
        request.resources,
        AlterConfigsResponse(responses=[_result(each) for each in request.resources]),
        partial(_planned, services, context),
        validate_only=request.validate_only,
    )


def _planned(
    services: SettingsServices, context: RequestContext, resource: AlterConfigsResource
) -> Alter:
    """Return a function that stores the resource's new settings. BrokerError if they are
    invalid."""
    if resource.resource_type == ResourceType.BROKER:
        return _planned_broker(services, resource)
    names = [each.name for each in resource.configs]
    configs = _texts(resource)
    # Check for settings that no topic can have before looking for the topic, as in Kafka.
    check_alterable(resource.resource_type, resource.resource_name, names)
    check_effects(services, names)
    checked_topic_config(services, configs)
    alterable_topic(services, context, resource.resource_type, resource.resource_name, names)
    return partial(change_topic_configs, services, resource.resource_name, lambda _: configs)


def _planned_broker(services: SettingsServices, resource: AlterConfigsResource) -> Alter:
    """Return a function that stores the new settings of one broker or of all brokers. BrokerError
    if they are invalid."""
    texts = _texts(resource)
    check_setting_names([each.name for each in resource.configs])
    name = stored_name(services, resource.resource_name)

    def change(given: Given) -> Mapping[str, str]:
        return checked_broker_configs(services.config, services.broker_id, given, name, texts)

    change(services.metadata.image.broker_configs)
    return partial(change_broker_configs, services, name, change)


def _texts(resource: AlterConfigsResource) -> dict[str, str]:
    configs: dict[str, str] = {}
    for each in resource.configs:
        if each.value is None:
            text = f"{each.name} has no value (null); leave a setting out to reset it"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        configs[each.name] = each.value
    return configs


def _result(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """Return a response with ``code`` for every resource."""
    response = AlterConfigsResponse()
    for resource in request.resources:
        result = _result(resource)
        set_error(result, BrokerError(code))
        response.responses.append(result)
    return response


API = BrokerApi(
    ApiKey.ALTER_CONFIGS,
    handle,
    error_response,
    access=(
        sometimes_on_cluster(AclOperation.ALTER_CONFIGS),
        on_topics(AclOperation.ALTER_CONFIGS),
    ),
)
