"""The same wrong requests to Apache Kafka 3.9.1 and to our handlers: the same error codes."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from klog_broker.api import (
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyspark_klog.protocol.registry import response_class
from tests.support.api.topic_world import World, new
from tests.support.peers import OLDEST_KAFKA, KafkaServer

pytestmark = pytest.mark.peers

# The number that KafkaServer gives its one broker.
BROKER_ID = 0
SET, DELETE, APPEND, SUBTRACT = range(4)
ID = UUID(int=77)


def create(*topics: CreatableTopic) -> tuple[ModuleType, Any]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=True)
    return create_topics, request


def grow(
    name: str, count: int, by_hand: list[list[int]] | None = None, times: int = 1
) -> tuple[ModuleType, Any]:
    rows = None
    if by_hand is not None:
        rows = [CreatePartitionsAssignment(broker_ids=ids) for ids in by_hand]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return create_partitions, CreatePartitionsRequest(
        topics=[topic] * times, timeout_ms=10_000, validate_only=True
    )


def delete(*topics: DeleteTopicState) -> tuple[ModuleType, Any]:
    return delete_topics, DeleteTopicsRequest(topics=list(topics), timeout_ms=10_000)


def alter(
    *changes: tuple[str, int, str | None], name: str = "there", kind: int = 2
) -> tuple[ModuleType, Any]:
    rows = [AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    return incremental_alter_configs, request


CASES: dict[str, tuple[ModuleType, Any]] = {
    "fine": create(new("a", 2, 1)),
    "the defaults": create(new("a")),
    "2^31 - 1 partitions": create(new("a", 2**31 - 1, 1)),
    "10,001 partitions": create(new("a", 10_001, 1)),
    "9,000 partitions": create(new("a", 9000, 1)),
    "twice 6,000 partitions": create(new("a", 6000, 1), new("b", 6000, 1)),
    "by hand": create(new("a", by_hand={0: [0], 1: [0]})),
    "by hand and replicas": create(new("a", -1, 1, {0: [0]})),
    "by hand and partitions": create(new("a", 1, -1, {0: [0]})),
    "a gap": create(new("a", by_hand={0: [0], 2: [0]})),
    "not from 0": create(new("a", by_hand={1: [0]})),
    "an empty assignment": create(new("a", by_hand={0: []})),
    "a replica twice": create(new("a", by_hand={0: [0, 0]})),
    "an unknown broker": create(new("a", by_hand={0: [9]})),
    "a setting that is no number": create(new("a", 1, 1, retention_ms="x")),
    "a setting out of range": create(new("a", 1, 1, segment_bytes="13")),
    "a setting without a value": create(new("a", 1, 1, retention_ms=None)),
    "an unknown setting": create(new("a", 1, 1, retentionms="1")),
    "an unknown policy": create(new("a", 1, 1, cleanup_policy="burn")),
    "settings that do not fit": create(
        new("a", 1, 1, min_compaction_lag_ms="5", max_compaction_lag_ms="4")
    ),
    "tiered": create(new("a", 1, 1, remote_storage_enable="true")),
    "a topic twice": create(new("a", 1, 1), new("a", 1, 1)),
    "grow": grow("there", 3),
    "grow what is not there": grow("nope", 3),
    "grow to the same": grow("there", 2),
    "shrink": grow("there", 1),
    "grow to -1": grow("there", -1),
    "too many assigned": grow("there", 3, [[0], [0]]),
    "none assigned": grow("there", 3, []),
    "grow with an empty assignment": grow("there", 3, [[]]),
    "grow onto an unknown broker": grow("there", 3, [[9]]),
    "grow twice": grow("there", 3, times=2),
    "delete nothing": delete(DeleteTopicState()),
    "delete by both": delete(DeleteTopicState(name="there", topic_id=ID)),
    "delete an unknown name": delete(DeleteTopicState(name="nope")),
    "delete an unknown id": delete(DeleteTopicState(topic_id=ID)),
    "delete twice": delete(DeleteTopicState(name="there"), DeleteTopicState(name="there")),
    "set": alter(("retention.ms", SET, "5")),
    "set to no number": alter(("retention.ms", SET, "x")),
    "set an unknown one": alter(("retention.mss", SET, "1")),
    "append to an unknown one": alter(("retention.mss", APPEND, "1")),
    "delete an unknown one": alter(("retention.mss", DELETE, None)),
    "set to null": alter(("retention.ms", SET, None)),
    "append to a number": alter(("retention.ms", APPEND, "1")),
    "append": alter(("cleanup.policy", APPEND, "compact")),
    "append what is not allowed": alter(("cleanup.policy", APPEND, "burn")),
    "subtract": alter(("cleanup.policy", SUBTRACT, "delete")),
    "set a list to nothing": alter(("cleanup.policy", SET, "")),
    "a setting twice": alter(("flush.ms", SET, "1"), ("flush.ms", DELETE, None)),
    "alter what is not there": alter(name="nope"),
    "alter what cannot be a topic": alter(name="a b"),
    "alter an unknown kind": alter(kind=77),
}


def codes(response: Any) -> list[tuple[str, str]]:
    """Return each row's subject and its error code, sorted, because Kafka's order is random."""
    rows = next(
        getattr(response, name)
        for name in ("topics", "responses", "results")
        if hasattr(response, name)
    )
    return sorted(
        (
            str(row.name if hasattr(row, "name") else row.resource_name),
            ErrorCode(row.error_code).name,
        )
        for row in rows
    )


@pytest.fixture(scope="module")
def kafka() -> Iterator[BlockingClient]:
    with KafkaServer(OLDEST_KAFKA) as server:
        client = BlockingClient({"bootstrap.servers": server.bootstrap_servers})
        request = CreateTopicsRequest(
            topics=[new("there", 2, 1), new("my.topic", 1, 1)], timeout_ms=10_000
        )
        assert {code for _, code in codes(_ask(client, request))} == {"NONE"}
        yield client
        client.close()


@pytest.mark.parametrize("case", CASES)
def test_the_codes_are_kafkas(kafka: BlockingClient, tmp_path: Path, case: str) -> None:
    module, request = CASES[case]
    world = World(tmp_path, broker_id=BROKER_ID)
    world.create(new("there", 2, 1), new("my.topic", 1, 1))
    assert codes(world.call_api(module, request)) == codes(_ask(kafka, request))


def _ask(client: BlockingClient, request: Any) -> Any:
    link = client.link_to_any(client.deadline())
    return client.call(link, response_class(request.api_key), lambda _: request)
