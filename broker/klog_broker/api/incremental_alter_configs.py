"""IncrementalAlterConfigs (key 44): sets or deletes single settings, or changes items of lists.

When the response is sent, a topic's logs on this broker already follow the topic's new settings.
New settings of brokers are in effect on this broker too, but the logs of topics that inherit them
get them over the next event-loop turns.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial

from klog_broker.api.alterable_brokers import stored_name
from klog_broker.api.alterable_topics import alterable_topic, check_setting_names
from klog_broker.api.alterations import alter_each, set_error
from klog_broker.api.services import SettingsServices
from klog_broker.config import TOPIC_SETTINGS, render, stored_topic_config
from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.security.acls import AclOperation
from klog_broker.topics.broker_settings import Given, checked_broker_configs, list_of_broker
from klog_broker.topics.changes import Alter, change_broker_configs, change_topic_configs
from klog_broker.topics.entries import ResourceType
from klog_broker.topics.planning import check_effects, checked_topic_config, list_setting
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pyspark_klog.protocol.keys import ApiKey


class Operation(IntEnum):
    """The operation on a setting; the numbers are those of the field ConfigOperation in the request
    (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle(
    services: SettingsServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> ResponseSteps:
    """Apply or refuse all changes of a resource (a topic or broker) together, independently of the
    other resources."""
    return alter_each(
        services,
        context,
        request.resources,
        IncrementalAlterConfigsResponse(responses=[_result(each) for each in request.resources]),
        partial(_planned, services, context),
        validate_only=request.validate_only,
    )


def _planned(
    services: SettingsServices, context: RequestContext, resource: AlterConfigsResource
) -> Alter:
    """Check the changes against the present settings, and return a function that stores them. The
    metadata store checks the changes again before it writes them, since other clients may have
    altered the settings since this check."""
    names = [each.name for each in resource.configs]
    if resource.resource_type == ResourceType.BROKER:
        check_setting_names(names)
        name = stored_name(services, resource.resource_name)
        of_broker = partial(_changed_broker, services, resource, name)
        of_broker(services.metadata.image.broker_configs)
        return partial(change_broker_configs, services, name, of_broker)
    topic = alterable_topic(
        services, context, resource.resource_type, resource.resource_name, names
    )
    of_topic = partial(_changed, services, resource)
    of_topic(topic.configs)
    return partial(change_topic_configs, services, resource.resource_name, of_topic)


def _changed_broker(
    services: SettingsServices, resource: AlterConfigsResource, name: str, given: Given
) -> Mapping[str, str]:
    """Return the settings of one broker, or of all brokers, after the changes. BrokerError if they
    are invalid."""
    config, broker_id = services.config, services.broker_id
    changed = dict(given.get(name, {}))
    for change in resource.configs:
        _apply(changed, change, partial(list_of_broker, config, broker_id, given, name))
    return checked_broker_configs(config, broker_id, given, name, changed)


def _changed(
    services: SettingsServices, resource: AlterConfigsResource, configs: Mapping[str, str]
) -> Mapping[str, str]:
    """Return a topic's overrides after the changes; ``configs`` are the overrides before.
    BrokerError if an override is invalid. An invalid override that was stored before, and is
    ignored since then, is accepted as long as the changes keep its value."""

    def items_of(name: str) -> tuple[str, ...]:
        list_setting(name, TOPIC_SETTINGS)
        own = {name: configs[name]} if name in configs else {}
        items: tuple[str, ...] = stored_topic_config(services.config, own)[name]
        return items

    changed = dict(configs)
    for change in resource.configs:
        _apply(changed, change, items_of)
    given = [each.name for each in resource.configs if each.config_operation != Operation.DELETE]
    check_effects(services, given)
    unused = stored_topic_config(services.config, configs).unused
    stays = [name for name in unused if changed.get(name) == configs[name]]
    checked_topic_config(
        services, {name: text for name, text in changed.items() if name not in stays}
    )
    return changed


def _apply(
    configs: dict[str, str],
    change: AlterableConfig,
    items_of: Callable[[str], tuple[str, ...]],
) -> None:
    """Apply one change to ``configs``. ``items_of`` returns the present items of a setting whose
    value is a list, or raises BrokerError for any other setting."""
    name = change.name
    if change.config_operation not in tuple(Operation):
        text = f"{name}: operation {change.config_operation} is none of 0 (set), 1 (delete), "
        raise BrokerError(ErrorCode.INVALID_REQUEST, text + "2 (append), 3 (subtract)")
    operation = Operation(change.config_operation)
    if operation is Operation.DELETE:
        configs.pop(name, None)
        return
    if change.value is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} has no value (null)")
    if operation is Operation.SET:
        configs[name] = change.value
        return
    current = items_of(name)
    items = [item.strip() for item in change.value.split(",") if item.strip()]
    if operation is Operation.APPEND:
        changed = (*current, *(item for item in dict.fromkeys(items) if item not in current))
    else:
        changed = tuple(item for item in current if item not in items)
    configs[name] = render(changed) or ""


def _result(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Return a response with ``code`` for every resource."""
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        result = _result(resource)
        set_error(result, BrokerError(code))
        response.responses.append(result)
    return response


API = BrokerApi(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    handle,
    error_response,
    access=(
        sometimes_on_cluster(AclOperation.ALTER_CONFIGS),
        on_topics(AclOperation.ALTER_CONFIGS),
    ),
)
