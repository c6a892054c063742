"""AlterConfigs: a topic's settings replaced as a whole; what is not named is reset."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.api import alter_configs
from klog_broker.api.alterable_topics import MAX_CHANGES_PER_RESOURCE
from klog_broker.topics.changes import change_topic_configs
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tests.support.api.topic_world import World, new

TOPIC, BROKER = 2, 4
Settings = list[tuple[str, str | None]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(new("there", 1, 1, retention_ms="77", flush_ms="5"), new("other", 1, 1))
    return world


def resource(name: str, settings: Settings, kind: int = TOPIC) -> AlterConfigsResource:
    rows = [AlterableConfig(name=key, value=value) for key, value in settings]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


def alter(world: World, *resources: AlterConfigsResource, **more: Any) -> list[str]:
    version = more.pop("version", 2)
    request = AlterConfigsRequest(resources=list(resources), **more)
    rows = world.call_api(alter_configs, request, version).responses
    assert [(each.resource_type, each.resource_name) for each in rows] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    assert all((each.error_code == 0) == (each.error_message is None) for each in rows)
    return [ErrorCode(each.error_code).name for each in rows]


def configs(world: World, name: str = "there") -> dict[str, str]:
    assert world.store.image.topics == world.image_again().topics
    topic = world.store.image.topic(name)
    assert topic is not None
    return dict(topic.configs)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_is_not_named_is_reset(world: World, version: int) -> None:
    asked = resource("there", [("retention.ms", "99"), ("segment.ms", "1000")])
    assert alter(world, asked, version=version) == ["NONE"]
    assert configs(world) == {"retention.ms": "99", "segment.ms": "1000"}
    log = world.logs.by_partition[TopicPartition("there", 0)]
    assert (log.config.retention_ms, log.config.segment_ms) == (99, 1000)
    assert alter(world, resource("there", [])) == ["NONE"]
    assert configs(world) == {}
    assert log.config.retention_ms == 7 * 86_400_000


def test_the_answer_waits_until_all_logs_follow() -> None:
    """The logs of a topic with many partitions take its settings in several turns of the loop."""
    taken: list[Callable[[], None]] = []
    done: list[BrokerError | None] = []
    broker: Any = SimpleNamespace(
        metadata=SimpleNamespace(update_topic_configs=lambda _name, _change, done: done(None)),
        replicas=SimpleNamespace(when_settings_are_taken=taken.append),
    )
    change_topic_configs(broker, "there", dict, done.append)
    assert done == []
    taken[0]()
    assert done == [None]


def test_validated_only(world: World) -> None:
    asked = resource("there", [("retention.ms", "99")])
    assert alter(world, asked, validate_only=True) == ["NONE"]
    assert configs(world) == {"retention.ms": "77", "flush.ms": "5"}


def test_each_topic_by_itself(world: World) -> None:
    asked = [
        resource("there", [("retention.ms", "x")]),
        resource("none", []),
        resource("other", [("retention.ms", "5")]),
    ]
    assert alter(world, *asked) == ["INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION", "NONE"]
    assert configs(world) == {"retention.ms": "77", "flush.ms": "5"}
    assert configs(world, "other") == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (resource("there", [("retention.ms", None)]), "INVALID_REQUEST"),
        (resource("none", [("retention.ms", None)]), "INVALID_REQUEST"),
        (resource("there", [("retention.mss", "1")]), "INVALID_CONFIG"),
        (resource("there", [("", "")]), "INVALID_CONFIG"),
        (resource("none", [("retention.ms", "x")]), "INVALID_CONFIG"),
        (resource("a b", [("retention.ms", "x")]), "INVALID_TOPIC_EXCEPTION"),
        (resource("there", [("flush.ms", "1"), ("flush.ms", "1")]), "INVALID_REQUEST"),
        (resource("none", [("flush.ms", "1"), ("flush.ms", "2")]), "INVALID_REQUEST"),
        (resource("there", [("flush.ms", "1"), ("flush.ms", None)]), "INVALID_REQUEST"),
        (
            resource("there", [("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")]),
            "INVALID_CONFIG",
        ),
        (resource("a b", []), "INVALID_TOPIC_EXCEPTION"),
        (resource("", []), "INVALID_REQUEST"),
        (resource("x", [], 77), "INVALID_REQUEST"),
        (resource("x", [], 0), "INVALID_REQUEST"),
        (resource("2", [], BROKER), "INVALID_REQUEST"),
        (
            resource("there", [(f"x{n}", "1") for n in range(MAX_CHANGES_PER_RESOURCE + 1)]),
            "INVALID_REQUEST",
        ),
    ],
)
def test_what_is_refused(world: World, asked: AlterConfigsResource, code: str) -> None:
    assert alter(world, asked) == [code]
    assert configs(world) == {"retention.ms": "77", "flush.ms": "5"}


def test_a_topic_that_is_named_twice(world: World) -> None:
    assert alter(world, resource("there", []), resource("there", [])) == ["INVALID_REQUEST"] * 2
    assert configs(world) == {"retention.ms": "77", "flush.ms": "5"}


def test_nothing_is_asked_for(world: World) -> None:
    assert alter(world) == []
