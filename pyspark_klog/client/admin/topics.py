"""The administration of topics: creates, deletes, lists and describes them, adds partitions, and
reads the settings of topics and brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_klog.client.admin.configs import ConfigEntry as ConfigEntry
from pyspark_klog.client.admin.configs import Resource, ResourceType, describe_configs
from pyspark_klog.client.admin.controller_requests import call_controller
from pyspark_klog.client.admin.deleting_topics import deleting_topics
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import ClusterView, TopicInfo
from pyspark_klog.client.errors import TopicMissing, broker_error, check_error_code
from pyspark_klog.client.settings.setting_rows import Value
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.apis.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BROKERS_DEFAULT = -1
"""A number of partitions or replicas that stands for the brokers' default, or for 1 with brokers
before Kafka 2.4."""
_BROKERS_DEFAULT_SINCE = 4
"""The first version of CreateTopics that accepts `BROKERS_DEFAULT` (KIP-464, Kafka 2.4)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    num_partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)


class Admin:
    """Administers a cluster. ``settings`` are Kafka's client settings, in which the argument
    ``bootstrap_servers`` replaces bootstrap.servers.

    In each method ``timeout_ms`` is default.api.timeout.ms unless given: the time in which brokers
    have to do the work. Requests that fail are repeated for at least default.api.timeout.ms.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        settings: Mapping[str, Value] | None = None,
        *,
        client: BlockingClient | None = None,
    ) -> None:
        """Pass addresses of brokers (``bootstrap_servers``, or bootstrap.servers in ``settings``),
        or a ``client``, which `close` then leaves open."""
        self._owns_client = client is None
        given = dict(settings or {})
        if bootstrap_servers is not None:
            given["bootstrap.servers"] = bootstrap_servers
        self._client = BlockingClient(given) if client is None else client

    def close(self) -> None:
        """Close the connections, unless they are those of the constructor's argument ``client``."""
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create topics and wait until each of them has leaders; with ``validate_only`` only check
        whether the topics could be created.

        :raises BrokerError: for the first topic that was not created, with the broker's reason
        """
        wanted = list(topics)
        timeout_ms = self._timeout_ms(timeout_ms)

        def build(version: int) -> CreateTopicsRequest:
            request = CreateTopicsRequest(
                topics=[_creatable(topic, version) for topic in wanted], timeout_ms=timeout_ms
            )
            if version >= 1:
                request.validate_only = validate_only
            return request

        def check(response: CreateTopicsResponse) -> None:
            for row in response.topics:
                check_error_code(row.error_code, row.error_message, f"create topic {row.name}")

        call_controller(
            self._client, CreateTopicsResponse, build, check, timeout_ms, "create topics"
        )
        if not validate_only:
            self._wait_for_leaders([t.name for t in wanted], timeout_ms)

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics.

        :raises BrokerError: for the first topic that was not deleted, with the broker's reason
        """
        wanted = list(names)
        timeout_ms = self._timeout_ms(timeout_ms)

        def build(version: int) -> DeleteTopicsRequest:
            if version >= 6:
                rows = [DeleteTopicState(name=name) for name in wanted]
                return DeleteTopicsRequest(topics=rows, timeout_ms=timeout_ms)
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=timeout_ms)

        def check(response: DeleteTopicsResponse) -> None:
            for row in response.responses:
                check_error_code(row.error_code, row.error_message, f"delete topic {row.name}")

        call_controller(
            self._client, DeleteTopicsResponse, build, check, timeout_ms, "delete topics"
        )
        for name in wanted:
            self._client.forget_topic(name)

    def create_partitions(
        self, topic: str, total_count: int, *, timeout_ms: int | None = None
    ) -> None:
        """Raise a topic's number of partitions to ``total_count``, and wait until each partition
        has a leader."""
        timeout_ms = self._timeout_ms(timeout_ms)

        def build(_: int) -> CreatePartitionsRequest:
            row = CreatePartitionsTopic(name=topic, count=total_count, assignments=None)
            return CreatePartitionsRequest(topics=[row], timeout_ms=timeout_ms)

        def check(response: CreatePartitionsResponse) -> None:
            for row in response.results:
                check_error_code(
                    row.error_code, row.error_message, f"add partitions to topic {row.name}"
                )

        call_controller(
            self._client, CreatePartitionsResponse, build, check, timeout_ms, "add partitions"
        )
        self._wait_for_leaders([topic], timeout_ms, at_least=total_count)

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; internal topics only with ``internal``."""
        view = self._client.refresh(None)
        return sorted(n for n, topic in view.topics.items() if internal or not topic.is_internal)

    def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Topics with their partitions, leaders and replicas, by name; all by default.

        :raises TopicMissing: naming a topic that does not exist
        """
        wanted = None if names is None else list(names)
        view = self._client.refresh(wanted)
        if wanted is None:
            return dict(sorted(view.topics.items()))
        for name in wanted:
            info = view.topics[name]
            if info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicMissing(f"topic {name} does not exist")
            if info.error is not ErrorCode.NONE and not info.partitions:
                raise broker_error(info.error, f"topic {name}")
        return {name: view.topics[name] for name in wanted}

    def deleting_topics(self) -> list[str]:
        """The topics whose deletion waits for a broker or a disk, sorted; only klog's brokers name
        them."""
        return deleting_topics(self._client)

    def describe_cluster(self) -> ClusterView:
        """Brokers, the controller and the cluster's id, as a fresh snapshot."""
        return self._client.refresh([])

    def describe_configs(
        self, topic: str | None = None, *, broker_id: int | None = None
    ) -> dict[str, ConfigEntry]:
        """The settings of a topic or of a broker, by name."""
        if (topic is None) == (broker_id is None):
            raise ValueError("pass either a topic or a broker_id")
        resource = (
            Resource(ResourceType.TOPIC, topic)
            if topic is not None
            else Resource(ResourceType.BROKER, str(broker_id))
        )
        return describe_configs(self._client, resource)

    def _timeout_ms(self, given: int | None) -> int:
        return self._client.settings.number("default.api.timeout.ms") if given is None else given

    def _wait_for_leaders(self, names: list[str], timeout_ms: int, *, at_least: int = 1) -> None:
        client = self._client
        deadline_ms = client.deadline(timeout_ms)

        def attempt() -> None:
            view = client.refresh(names, deadline_ms)
            for name in names:
                topic = view.topics[name]
                partitions = topic.partitions.values()
                if len(partitions) < at_least or any(p.leader < 0 for p in partitions):
                    raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")

        client.run_with_retries(
            attempt, deadline_ms, "waiting for the leaders of " + ", ".join(names)
        )


def _creatable(topic: NewTopic, version: int) -> CreatableTopic:
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if version < _BROKERS_DEFAULT_SINCE:
        partitions = 1 if partitions == BROKERS_DEFAULT else partitions
        replicas = 1 if replicas == BROKERS_DEFAULT else replicas
    return CreatableTopic(
        name=topic.name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=n, value=v) for n, v in topic.configs.items()],
    )
