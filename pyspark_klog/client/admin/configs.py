"""Read and change the settings of topics, brokers, groups and client metrics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeVar

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import check_error_code, is_retriable_at_controller
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pyspark_klog.protocol.apis.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

T = TypeVar("T")

_SYNONYMS_SINCE = 1
"""The first version of DescribeConfigs whose response has synonyms and the source of a value."""


class ResourceType(IntEnum):
    """The types of resources that have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The place from which a setting's value comes, with Kafka's numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigOperation(IntEnum):
    """How a setting is changed, with Kafka's numbers; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    """A resource that has settings. The name of a broker is its id, or empty for all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


class ConfigChange(NamedTuple):
    """One change of one setting; ``value`` is None for DELETE."""

    name: str
    operation: ConfigOperation
    value: str | None = None


class Synonym(NamedTuple):
    """A setting that gives a `ConfigEntry` its value if none of the synonyms before it is set."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource; ``source`` is Kafka's number of the value's `ConfigSource`."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether no command set the value: it comes from a broker's file or is Kafka's default. A
        dynamic setting of all brokers is no default, also where a topic inherits its value. False
        for brokers before Kafka 1.1, which do not send the source."""
        return self.source in (ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG)


_OWN_SOURCES = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}


def is_own(resource: Resource, entry: ConfigEntry) -> bool:
    """Whether the value was set for this very resource: not for all brokers, in a broker's file or
    by default. For the resource "all brokers": whether the value was set for all brokers."""
    if resource.type is ResourceType.BROKER and not resource.name:
        return entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entry.source == _OWN_SOURCES[resource.type]


def describe_configs(
    client: BlockingClient,
    resource: Resource,
    *,
    synonyms: bool = False,
    deadline_ms: int | None = None,
) -> dict[str, ConfigEntry]:
    """The settings of a resource, by name. Brokers give ``synonyms`` since Kafka 1.1."""
    what = f"describe the settings of {resource}"

    def build(version: int) -> DescribeConfigsRequest:
        row = DescribeConfigsResource(
            resource_type=resource.type, resource_name=resource.name, configuration_keys=None
        )
        return DescribeConfigsRequest(
            resources=[row], include_synonyms=synonyms and version >= _SYNONYMS_SINCE
        )

    def attempt(link: Link) -> dict[str, ConfigEntry]:
        response = client.call(link, DescribeConfigsResponse, build)
        for row in response.results:
            check_error_code(row.error_code, row.error_message, what)
        return {each.name: _entry(each) for row in response.results for each in row.configs}

    return _run_at_broker(client, resource, attempt, what, deadline_ms)


def alter_configs(
    client: BlockingClient,
    resource: Resource,
    changes: Iterable[ConfigChange],
    *,
    validate_only: bool = False,
    deadline_ms: int | None = None,
) -> None:
    """Make all changes of settings of a resource, or none; with ``validate_only`` only check them.
    The resource's other settings stay. Brokers need Kafka 2.3 or newer.

    :raises BrokerError: with the broker's reason, if the broker refuses the changes
    """
    what = f"alter the settings of {resource}"
    rows = [
        AlterableConfig(name=each.name, config_operation=each.operation, value=each.value)
        for each in changes
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type, resource_name=resource.name, configs=rows
            )
        ],
        validate_only=validate_only,
    )

    def attempt(link: Link) -> None:
        response = client.call(link, IncrementalAlterConfigsResponse, lambda _: request)
        for row in response.responses:
            check_error_code(row.error_code, row.error_message, what)

    _run_at_broker(client, resource, attempt, what, deadline_ms)


def list_config_resources(client: BlockingClient, deadline_ms: int | None = None) -> list[Resource]:
    """The resources that have settings, or could have some, sorted. Kafka 4.1 and newer list
    topics, brokers, groups and client metrics; Kafka 3.7 to 4.0 list only client metrics."""
    what = "list what has settings"
    known = {int(each) for each in ResourceType}

    def attempt(link: Link) -> list[Resource]:
        response = client.call(
            link, ListConfigResourcesResponse, lambda _: ListConfigResourcesRequest()
        )
        check_error_code(response.error_code, None, what)
        return sorted(
            Resource(ResourceType(row.resource_type), row.resource_name)
            for row in response.config_resources
            if row.resource_type in known
        )

    return _run_at_broker(client, Resource(ResourceType.TOPIC, ""), attempt, what, deadline_ms)


def _run_at_broker(
    client: BlockingClient,
    resource: Resource,
    attempt: Callable[[Link], T],
    what: str,
    deadline_ms: int | None,
) -> T:
    """Run ``attempt`` on a connection to a broker that can answer for the resource: the broker
    itself if the resource is a broker or its loggers, else any broker."""
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    is_own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name

    def find_and_attempt() -> T:
        if not is_own:
            return attempt(client.link_to_any(deadline))
        client.refresh([], deadline)
        return attempt(client.link_to_broker(int(resource.name), deadline))

    return client.run_with_retries(find_and_attempt, deadline, what, is_retriable_at_controller)


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        row.config_source,
        row.read_only,
        row.is_sensitive,
        tuple(Synonym(each.name, each.value, each.source) for each in row.synonyms),
    )
