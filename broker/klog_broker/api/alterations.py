"""Answers a request that alters settings of resources (topics or brokers): all changes of a
resource are applied or refused together, independently of the other resources.

AlterConfigs and IncrementalAlterConfigs share :func:`alter_each`. Each of the two APIs passes a
function to it that checks the changes of one resource.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from klog_broker.api.alterable_topics import check_may_alter
from klog_broker.api.services import SettingsServices
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.topics.changes import Alter
from klog_broker.topics.entries import ResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis import alter_configs, incremental_alter_configs

AlterRequest = (
    alter_configs.AlterConfigsRequest | incremental_alter_configs.IncrementalAlterConfigsRequest
)
AlterResponse = (
    alter_configs.AlterConfigsResponse | incremental_alter_configs.IncrementalAlterConfigsResponse
)
_Result = (
    alter_configs.AlterConfigsResourceResponse
    | incremental_alter_configs.AlterConfigsResourceResponse
)
_Resource = TypeVar(
    "_Resource",
    alter_configs.AlterConfigsResource,
    incremental_alter_configs.AlterConfigsResource,
)

# Costs in units of about 5 us of the event loop's time (runtime/event_loop/slices.py). _CHECKED: to
# check the changes of a topic. _BROKER_CHECKED: to check the changes of a broker, which has many
# more settings. _CHANGE: to request one change from the metadata store and to answer.
_CHECKED = 20
_BROKER_CHECKED = 100
_CHANGE = 20


def alter_each(
    services: SettingsServices,
    context: RequestContext,
    resources: Sequence[_Resource],
    response: AlterResponse,
    plan: Callable[[_Resource], Alter],
    *,
    validate_only: bool,
) -> ResponseSteps:
    """Apply or refuse all changes of a resource (a topic or broker) together, and answer with
    ``response`` once every resource is altered or refused. With ``validate_only``, only check the
    changes.

    ``response`` has one result for each resource, in the same order. ``plan`` checks the changes of
    one resource and returns a function that applies them, or raises BrokerError if they are
    invalid.
    """
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    results: Sequence[_Result] = response.responses
    planned: list[tuple[_Result, Alter]] = []
    for resource, result in zip(resources, results, strict=True):
        yield _CHECKED
        try:
            if times[(resource.resource_type, resource.resource_name)] > 1:
                text = "the resource is named twice; put its settings into one entry"
                raise BrokerError(ErrorCode.INVALID_REQUEST, text)
            check_may_alter(services, context, resource.resource_type, resource.resource_name)
            if resource.resource_type == ResourceType.BROKER:
                yield _BROKER_CHECKED
            planned.append((result, plan(resource)))
        except BrokerError as error:
            set_error(result, error)
    if validate_only or not planned:
        return response
    waiting = len(planned)

    def on_altered(result: _Result, error: BrokerError | None) -> None:
        nonlocal waiting
        if error is not None:
            set_error(result, error)
        waiting -= 1
        if waiting == 0:
            context.response_sink.send(response)

    for result, alter in planned:
        yield _CHANGE
        alter(partial(on_altered, result))
    return None


def set_error(result: _Result, error: BrokerError) -> None:
    """Put the code and the message of ``error`` into the result of one resource."""
    result.error_code, result.error_message = error.code, client_text(error)
