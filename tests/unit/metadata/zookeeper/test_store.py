"""The store of a broker in a cluster: topics come from the controller, settings from ZooKeeper."""

from collections.abc import Callable
from typing import Any

import pytest

from klog_broker.metadata.image import PartitionRegistration, Topic
from klog_broker.metadata.zookeeper.image_updater import TopicUpdate
from klog_broker.metadata.zookeeper.store import ClusterStore
from pyspark_klog.ids import UUID, BrokerId, TopicId
from pyspark_klog.znodes.configs import TOPICS, config_path, encode_config, entity
from pyspark_klog.znodes.paths import PERSISTENT
from tests.support.cluster.zookeeper import ClusterWorld

STATES = {0: PartitionRegistration((BrokerId(1),), (BrokerId(1),), BrokerId(1))}


class NotedChanges:
    """Counts the notifications about a changed image."""

    def __init__(self) -> None:
        self.images = 0

    def image_changed(self) -> None:
        self.images += 1


class Stored:
    """A broker's store, connected to ZooKeeper."""

    def __init__(self) -> None:
        self.cluster = ClusterWorld()
        for path in PERSISTENT:
            self.cluster.call_zookeeper("create", path, b"", makes_parents=True)
        self.changes: Any = NotedChanges()
        self.told: list[tuple[str, ...]] = []
        self.store = ClusterStore(self.cluster.loop, "c", register=lambda _: None)
        self.store.changes = self.changes
        self.store.start(
            self.cluster.loop,
            None,  # type: ignore[arg-type]
            on_image=lambda _, names: self.told.append(tuple(names)),
            apply=lambda _, __: None,
        )
        self.cluster.sessions(self.store.settings)
        self.cluster.until(lambda: self.store.settings.is_read)

    def set(self, name: str, value: str) -> None:
        path, data = config_path(entity(TOPICS, name)), encode_config({"retention.ms": value})
        if self.cluster.stat(path) is None:
            self.cluster.call_zookeeper("create", path, data)
        else:
            self.cluster.call_zookeeper("set", path, data, -1)

    def update_topic(self, number: int, *, is_deleted: bool = False) -> None:
        topic = TopicUpdate("orders", TopicId(UUID(int=number)), STATES, is_deleted)
        self.store.view.update_topics([topic], is_all=False)

    def learn(self, number: int, done: Callable[[], None]) -> None:
        self.store.learn_topics({"orders": TopicId(UUID(int=number))}, done)

    @property
    def topic(self) -> Topic:
        return self.store.image.topics["orders"]


@pytest.fixture
def stored() -> Stored:
    return Stored()


def test_a_topic_that_was_learnt_has_its_settings_at_once(stored: Stored) -> None:
    stored.set("orders", "5")
    learnt: list[bool] = []
    stored.learn(7, lambda: learnt.append(True))
    stored.cluster.until(lambda: learnt)
    stored.update_topic(7)
    assert stored.topic.configs == {"retention.ms": "5"}
    assert stored.told == [("orders",)]
    stored.cluster.advance(1_000)
    assert stored.told == [("orders",)], "it was not read again"
    assert stored.changes.images == 1


def test_settings_of_a_published_topic_are_read(stored: Stored) -> None:
    stored.set("orders", "5")
    stored.update_topic(7)
    assert stored.topic.configs == {}
    assert stored.store.is_reading_settings_of(TopicId(UUID(int=7)))
    stored.cluster.until(lambda: stored.topic.configs == {"retention.ms": "5"})
    stored.cluster.advance(1_000)
    assert not stored.store.is_reading_settings_of(TopicId(UUID(int=7)))
    assert stored.told == [("orders",), ("orders",)]


def test_a_topic_that_is_made_again_has_its_new_settings(stored: Stored) -> None:
    stored.set("orders", "5")
    stored.update_topic(7)
    stored.cluster.until(lambda: stored.topic.configs)
    stored.update_topic(7, is_deleted=True)
    assert stored.store.topic_configs("orders") == {}
    stored.set("orders", "6")
    learnt: list[bool] = []
    stored.learn(8, lambda: learnt.append(True))
    stored.cluster.until(lambda: learnt)
    stored.update_topic(8)
    assert stored.topic.configs == {"retention.ms": "6"}


def test_settings_of_a_recreated_topic_may_be_read_before_the_deletion_is_published(
    stored: Stored,
) -> None:
    stored.set("orders", "5")
    stored.update_topic(7)
    stored.cluster.until(lambda: stored.topic.configs)
    stored.set("orders", "6")
    learnt: list[bool] = []
    stored.learn(8, lambda: learnt.append(True))
    stored.cluster.until(lambda: learnt)
    stored.update_topic(7, is_deleted=True)
    stored.update_topic(8)
    assert stored.topic.configs == {"retention.ms": "6"}


def test_the_first_of_two_topics_of_one_name_may_never_be_published(stored: Stored) -> None:
    stored.set("orders", "5")
    learnt: list[bool] = []
    stored.learn(7, lambda: learnt.append(True))
    stored.cluster.until(lambda: learnt)
    # The topic is deleted, and the next topic of this name has no replica here.
    stored.set("orders", "6")
    stored.update_topic(8)
    stored.cluster.until(lambda: stored.topic.configs == {"retention.ms": "6"})


def test_a_topic_published_before_its_settings_are_known_is_still_to_be_read(
    stored: Stored,
) -> None:
    """A broker that lags behind receives UpdateMetadata for a topic before its roles."""
    stored.set("orders", "5")
    stored.update_topic(7)
    learnt: list[object] = []
    stored.learn(7, lambda: learnt.append(stored.store.topic_configs("orders")))
    assert not learnt
    stored.cluster.until(lambda: learnt)
    assert learnt == [{"retention.ms": "5"}]
    stored.learn(7, lambda: learnt.append("at once"))
    assert learnt[1:] == ["at once"]


def test_nothing_to_learn_is_learnt_at_once(stored: Stored) -> None:
    learnt: list[bool] = []
    stored.store.learn_topics({}, lambda: learnt.append(True))
    assert learnt == [True]
