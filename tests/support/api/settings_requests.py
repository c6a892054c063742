"""A whole broker in memory, asked by its handlers what its settings are, and to change them."""

from collections.abc import Mapping
from types import GeneratorType, SimpleNamespace
from typing import Any

from klog_broker.api import (
    alter_configs,
    create_topics,
    describe_configs,
    incremental_alter_configs,
)
from klog_broker.app import BrokerServer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis import alter_configs as altering
from pyspark_klog.protocol.apis import create_topics as making
from pyspark_klog.protocol.apis import describe_configs as describing
from pyspark_klog.protocol.apis import incremental_alter_configs as changing
from pyspark_klog.protocol.codec import decode_message, encode_message
from pyspark_klog.protocol.message import Request

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def call_handler(broker: BrokerServer, module: Any, request: Request) -> Any:
    """The response, as a client of the newest version sees it."""
    version = request.max_version
    received, _ = decode_message(type(request), version, encode_message(request, version))
    sent: list[Any] = []

    def send_all(steps: Any) -> None:
        try:
            while True:
                next(steps)
        except StopIteration as end:
            if end.value is not None:
                sent.append(end.value)

    reply = SimpleNamespace(send=sent.append, send_in_slices=send_all)
    context = SimpleNamespace(api_version=version, response_sink=reply)
    response = module.API.handle(broker.services, received, context)
    if isinstance(response, GeneratorType):
        send_all(response)
    elif response is not None:
        sent.append(response)
    for _ in range(100):
        if sent:
            break
        broker.loop.run_turn(0)
    (answer,) = sent
    return decode_message(type(answer), version, encode_message(answer, version))[0]


def change(
    broker: BrokerServer, name: str, *changes: Change, kind: int = BROKER, **more: Any
) -> tuple[str, str | None]:
    """IncrementalAlterConfigs of one resource: the error's name and text."""
    rows = [
        changing.AlterableConfig(name=each, config_operation=operation, value=value)
        for each, operation, value in changes
    ]
    resource = changing.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = changing.IncrementalAlterConfigsRequest(resources=[resource], **more)
    (result,) = call_handler(broker, incremental_alter_configs, request).responses
    return ErrorCode(result.error_code).name, result.error_message


def replace(
    broker: BrokerServer,
    name: str,
    texts: Mapping[str, str | None],
    kind: int = BROKER,
    **more: Any,
) -> tuple[str, str | None]:
    """AlterConfigs of one resource."""
    rows = [altering.AlterableConfig(name=each, value=text) for each, text in texts.items()]
    resource = altering.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = altering.AlterConfigsRequest(resources=[resource], **more)
    (result,) = call_handler(broker, alter_configs, request).responses
    return ErrorCode(result.error_code).name, result.error_message


def create(broker: BrokerServer, name: str, texts: Mapping[str, str]) -> tuple[str, str | None]:
    """CreateTopics of one topic."""
    rows = [making.CreatableTopicConfig(name=each, value=text) for each, text in texts.items()]
    topic = making.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
    (result,) = call_handler(
        broker, create_topics, making.CreateTopicsRequest(topics=[topic])
    ).topics
    return ErrorCode(result.error_code).name, result.error_message


def describe(
    broker: BrokerServer, name: str, *keys: str, kind: int = BROKER
) -> dict[str, describing.DescribeConfigsResourceResult]:
    """The settings of one resource by name; without keys all of them."""
    resource = describing.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = describing.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = call_handler(broker, describe_configs, request).results
    assert result.error_code == 0
    return {row.name: row for row in result.configs}


def sources(row: describing.DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    """The synonyms of a setting, of which the first one gives the value."""
    found = [(each.name, each.value, each.source) for each in row.synonyms]
    if found:
        assert (row.value, row.config_source) == found[0][1:]
    return found
