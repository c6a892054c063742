"""AlterConfigs (key 33): all settings of topics replaced; those that are not named are reset.

IncrementalAlterConfigs, which changes single settings, took its place; old tools still send this.
When the reply is sent the topic's logs already follow the new settings.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial

from klog_broker.handlers.alterable_topics import alterable_topic, check_alterable
from klog_broker.handlers.context import AnswerSteps, BrokerServices, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.told import told
from klog_broker.topics.changing import change_topic_configs
from klog_broker.topics.planning import checked_topic_config
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from pyspark_klog.protocol.keys import ApiKey

# Costs in elements (runtime/slices.py): checking a topic's settings; asking for their change, and
# answering.
_CHECKED = 20
_CHANGE = 20


def handle(request: AlterConfigsRequest, context: RequestContext) -> AnswerSteps:
    """Every resource succeeds or fails as a whole, by itself."""
    broker = context.broker
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    response = AlterConfigsResponse()
    planned: list[tuple[AlterConfigsResourceResponse, Mapping[str, str]]] = []
    for asked in request.resources:
        yield _CHECKED
        result = _result(asked)
        response.responses.append(result)
        try:
            if times[(asked.resource_type, asked.resource_name)] > 1:
                text = "the resource is named twice; put its settings into one entry"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            planned.append((result, _wanted(broker, asked)))
        except BrokerError as error:
            _put(result, error)
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

    for result, configs in planned:
        yield _CHANGE
        change = partial(_instead, configs)
        change_topic_configs(broker, result.resource_name, change, partial(done, result))
    return None


def _wanted(broker: BrokerServices, asked: AlterConfigsResource) -> Mapping[str, str]:
    """The overrides, checked, that the topic is to have. BrokerError."""
    names = [each.name for each in asked.configs]
    configs: dict[str, str] = {}
    for each in asked.configs:
        if each.value is None:
            text = f"{each.name} has no value (null); leave out what is to be reset"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        configs[each.name] = each.value
    # As in Kafka, settings that no topic could have are refused before the topic is looked for.
    check_alterable(asked.resource_type, asked.resource_name, names)
    checked_topic_config(broker, configs)
    alterable_topic(broker, asked.resource_type, asked.resource_name, names)
    return configs


def _instead(configs: Mapping[str, str], _: Mapping[str, str]) -> Mapping[str, str]:
    return configs


def _result(asked: AlterConfigsResource) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
    )


def _put(result: AlterConfigsResourceResponse, error: BrokerError) -> None:
    result.error_code, result.error_message = error.code, told(error)


def error_response(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """The same error for every resource."""
    response = AlterConfigsResponse()
    for asked in request.resources:
        result = _result(asked)
        _put(result, BrokerError(code))
        response.responses.append(result)
    return response


HANDLER = ApiHandler(ApiKey.ALTER_CONFIGS, handle, error_response)
