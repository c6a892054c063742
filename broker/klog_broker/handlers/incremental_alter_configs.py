"""IncrementalAlterConfigs (key 44): single settings of topics set, deleted, added to, taken from.

When the reply is sent the topic's logs already follow the new settings. A broker's own settings
cannot be changed while it runs.
"""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from functools import partial

from klog_broker.config import TOPIC_SETTINGS, render, topic_config
from klog_broker.config.types import SettingType, nearest
from klog_broker.handlers.alterable_topics import alterable_topic
from klog_broker.handlers.context import AnswerSteps, BrokerServices, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.told import told
from klog_broker.topics.changing import change_topic_configs
from klog_broker.topics.planning import checked_topic_config
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
    """What to do to a setting, as on the wire (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# Costs in elements (runtime/slices.py): checking a topic's settings; asking for their change, and
# answering.
_CHECKED = 20
_CHANGE = 20


def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> AnswerSteps:
    """Every resource succeeds or fails as a whole, by itself."""
    broker = context.broker
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    results: list[AlterConfigsResourceResponse] = []
    planned: list[tuple[AlterConfigsResourceResponse, AlterConfigsResource]] = []
    for asked in request.resources:
        yield _CHECKED
        result = _result(asked)
        results.append(result)
        try:
            if times[(asked.resource_type, asked.resource_name)] > 1:
                text = "the resource is named twice; put its settings into one entry"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            names = [each.name for each in asked.configs]
            topic = alterable_topic(broker, asked.resource_type, asked.resource_name, names)
            _changed(broker, asked, topic.configs)
            planned.append((result, asked))
        except BrokerError as error:
            _put(result, error)
    response = IncrementalAlterConfigsResponse(responses=results)
    if request.validate_only or not planned:
        return response
    waiting = len(planned)

    def done(result: AlterConfigsResourceResponse, error: BrokerError | None) -> None:
        nonlocal waiting
        if error is not None:
            _put(result, error)
        waiting -= 1
        if waiting == 0:
            context.reply.send(response)

    for result, asked in planned:
        yield _CHANGE
        # The store calls `change` with the settings of that moment: other clients may have changed
        # them since the check above.
        change = partial(_changed, broker, asked)
        change_topic_configs(broker, asked.resource_name, change, partial(done, result))
    return None


def _changed(
    broker: BrokerServices, asked: AlterConfigsResource, configs: Mapping[str, str]
) -> Mapping[str, str]:
    """The overrides, checked, that a topic with the overrides `configs` has after the changes."""
    changed = dict(configs)
    for change in asked.configs:
        _apply(broker, changed, change)
    checked_topic_config(broker, changed)
    return changed


def _apply(broker: BrokerServices, configs: dict[str, str], change: AlterableConfig) -> None:
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
    row = TOPIC_SETTINGS.get(name)
    if row is None:
        near = nearest(name, TOPIC_SETTINGS)
        text = f"{name} is no topic setting" + (f"; did you mean {near}?" if near else "")
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
    if row.type is not SettingType.LIST:
        text = f"{name} is no list: nothing can be added to it or taken from it"
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
    own = {name: configs[name]} if name in configs else {}
    current: tuple[str, ...] = topic_config(broker.config, own)[name]
    items = [item.strip() for item in change.value.split(",") if item.strip()]
    if operation is Operation.APPEND:
        changed = (*current, *(item for item in dict.fromkeys(items) if item not in current))
    else:
        changed = tuple(item for item in current if item not in items)
    configs[name] = render(changed) or ""


def _result(asked: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def _put(result: AlterConfigsResourceResponse, error: BrokerError) -> None:
    result.error_code, result.error_message = error.code, told(error)


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    response = IncrementalAlterConfigsResponse()
    for asked in request.resources:
        result = _result(asked)
        _put(result, BrokerError(code))
        response.responses.append(result)
    return response


HANDLER = ApiHandler(ApiKey.INCREMENTAL_ALTER_CONFIGS, handle, error_response)
