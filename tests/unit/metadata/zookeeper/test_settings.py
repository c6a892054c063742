"""/config and /config/changes: what a broker of a cluster reads there, follows and changes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from klog_broker.metadata.errors import NoResponse, UnknownTopic, UnreadableConfig
from klog_broker.metadata.image import ALL_BROKERS, MetadataImage, Topic
from klog_broker.metadata.zookeeper import settings
from klog_broker.metadata.zookeeper.settings import (
    CHANGE_TIMEOUT_MS,
    KEPT_MS,
    ClusterSettings,
)
from klog_broker.metadata.zookeeper.settings_changes import SettingsChanges
from klog_broker.metadata.zookeeper.settings_image import (
    quota_entity,
    with_settings,
    znode_entity,
)
from klog_broker.metadata.zookeeper.settings_reading import Settings
from klog_broker.runtime.zookeeper.session import CarriedSession
from klog_broker.runtime.zookeeper.sessions import MultiFailed, NoAuth
from pyspark_klog.ids import UUID, TopicId
from pyspark_klog.znodes.configs import (
    TOPICS,
    Entity,
    EntityName,
    config_path,
    encode_config,
    encode_config_change,
    entity,
)
from pyspark_klog.znodes.paths import CONFIG_CHANGES, PERSISTENT
from tests.support.cluster.zookeeper import ClusterWorld

ALICE = EntityName("users", "alice")
ORDERS = entity(TOPICS, "orders")


class Follower:
    """A broker, as far as it follows settings."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.cluster = cluster
        topic = Topic("orders", TopicId(UUID(int=7)), ())
        self.image = MetadataImage("c").with_topics([topic])
        self.named: list[str] = []
        self.settings = ClusterSettings(cluster.loop, self._read)
        self.changes = SettingsChanges(cluster.loop, self.settings, lambda: self.image)
        self.sessions, self.client = cluster.sessions(self.settings)

    def _read(self, found: Settings, is_all: bool) -> None:
        self.image, names = with_settings(self.image, found, is_all=is_all)
        self.named += names

    @property
    def configs(self) -> dict[str, str]:
        return dict(self.image.topics["orders"].configs)

    def change(self, name: str, *arguments: Any) -> Any:
        outcomes: list[Any] = []
        getattr(self.changes, name)(*arguments, outcomes.append)
        self.cluster.until(lambda: outcomes)
        return outcomes[0]


def made_cluster(seed: int = 0) -> ClusterWorld:
    made = ClusterWorld(seed)
    for path in PERSISTENT:
        made.call_zookeeper("create", path, b"", makes_parents=True)
    made.call_zookeeper("create", "/brokers/topics/orders", b"{}")
    return made


@pytest.fixture
def cluster() -> ClusterWorld:
    return made_cluster()


def write(cluster: ClusterWorld, names: Entity, config: Mapping[str, str]) -> None:
    """Change settings as kafka-configs.sh --zookeeper does."""
    path = config_path(names)
    if cluster.stat(path) is None:
        cluster.call_zookeeper("create", path, encode_config(config), makes_parents=True)
    else:
        cluster.call_zookeeper("set", path, encode_config(config), -1)
    notify(cluster, encode_config_change(names))


def notify(cluster: ClusterWorld, data: bytes) -> None:
    cluster.call_zookeeper("create", f"{CONFIG_CHANGES}/config_change_", data, sequential=True)


def notifications(cluster: ClusterWorld) -> list[str]:
    names = [path for path in cluster.tree().paths() if path.startswith(f"{CONFIG_CHANGES}/")]
    return sorted(path.rpartition("/")[2] for path in names)


def setting(**values: str) -> Any:
    return lambda present: {**present, **{key.replace("_", "."): values[key] for key in values}}


# --- what is there, and what comes ----------------------------------------------------------------
def test_everything_is_read_at_the_first_connection(cluster: ClusterWorld) -> None:
    write(cluster, ORDERS, {"retention.ms": "5"})
    write(cluster, entity("brokers", None), {"log.retention.ms": "6"})
    write(cluster, entity("brokers", "3"), {"log.retention.ms": "7"})
    write(cluster, (EntityName("users", "a b"),), {"request_percentage": "50.0"})
    write(cluster, (ALICE, EntityName("clients", None)), {"producer_byte_rate": "1000"})
    write(cluster, entity("clients", "c"), {"consumer_byte_rate": "1E3"})
    write(cluster, entity("ips", "10.0.0.1"), {"connection_creation_rate": "3"})
    broker = Follower(cluster)
    cluster.until(lambda: broker.configs)
    assert broker.configs == {"retention.ms": "5"}
    assert broker.settings.topic_configs == {"orders": {"retention.ms": "5"}}
    assert broker.image.broker_configs == {
        ALL_BROKERS: {"log.retention.ms": "6"},
        "3": {"log.retention.ms": "7"},
    }
    assert broker.image.client_quotas == {
        (("user", "a b"),): {"request_percentage": 50.0},
        (("client-id", None), ("user", "alice")): {"producer_byte_rate": 1000.0},
        (("client-id", "c"),): {"consumer_byte_rate": 1000.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
    }


def test_what_another_changes_is_followed(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    cluster.advance(1_000)
    for value in ("5", "6"):
        write(cluster, ORDERS, {"retention.ms": value})
        cluster.until(lambda value=value: broker.configs == {"retention.ms": value})
    write(cluster, ORDERS, {})
    cluster.until(lambda: broker.configs == {})
    assert broker.named == ["orders"] * 3


def test_a_notification_of_version_1_is_understood(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    cluster.advance(1_000)
    cluster.call_zookeeper("create", config_path(ORDERS), encode_config({"retention.ms": "5"}))
    told = {"version": 1, "entity_type": "topics", "entity_name": "orders"}
    notify(cluster, json.dumps(told).encode())
    cluster.until(lambda: broker.configs == {"retention.ms": "5"})


def test_what_changed_without_a_connection_is_read_at_the_next_one(cluster: ClusterWorld) -> None:
    write(cluster, entity("clients", "c"), {"consumer_byte_rate": "1"})
    write(cluster, ORDERS, {"retention.ms": "5"})
    broker = Follower(cluster)
    cluster.until(lambda: broker.configs)
    broker.client.cut()
    cluster.advance(10_000)
    write(cluster, ORDERS, {"retention.ms": "6"})
    cluster.call_zookeeper("delete", config_path(entity("clients", "c")), -1)
    broker.client.mend()
    cluster.until(lambda: broker.configs == {"retention.ms": "6"})
    assert broker.image.client_quotas == {}


def test_a_new_topics_settings_are_learnt_without_a_notification(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    cluster.advance(1_000)
    cluster.call_zookeeper(
        "create", config_path(entity(TOPICS, "new")), encode_config({"retention.ms": "5"})
    )
    learnt: list[dict[str, Mapping[str, str]]] = []
    broker.settings.learn_topics(
        ["new", "plain"], lambda: learnt.append(dict(broker.settings.topic_configs))
    )
    cluster.until(lambda: learnt)
    assert learnt == [{"new": {"retention.ms": "5"}, "plain": {}}]
    broker.settings.forget_topic("new")
    assert "new" not in broker.settings.topic_configs


# --- bad znodes -----------------------------------------------------------------------------------
def test_bad_znodes_are_named_and_left(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    write(cluster, entity("brokers", None), {"log.retention.ms": "6"})
    cluster.call_zookeeper("create", config_path(ORDERS), b"nonsense")
    cluster.call_zookeeper("create", f"{CONFIG_CHANGES}/else", b"")
    broker = Follower(cluster)
    cluster.until(lambda: broker.image.broker_configs)
    notify(cluster, b"more nonsense")
    write(cluster, (ALICE,), {"request_percentage": "many", "SCRAM-SHA-256": "salt=x"})
    write(cluster, entity("clients", "c"), {"request_percentage": "2"})
    cluster.until(lambda: broker.image.client_quotas)
    assert broker.configs == {}
    assert broker.image.client_quotas == {(("client-id", "c"),): {"request_percentage": 2.0}}
    assert caplog.text.count("znode=/config/topics/orders is ignored") == 1
    assert "znode=/config/changes/config_change_" in caplog.text
    assert "request_percentage='many' is no number" in caplog.text
    assert cluster.data(config_path(ORDERS)) == b"nonsense"


def test_settings_that_become_bad_stay_in_force(cluster: ClusterWorld) -> None:
    write(cluster, ORDERS, {"retention.ms": "5"})
    broker = Follower(cluster)
    cluster.until(lambda: broker.configs)
    cluster.call_zookeeper("set", config_path(ORDERS), b"nonsense", -1)
    notify(cluster, encode_config_change(ORDERS))
    cluster.advance(1_000)
    assert broker.configs == {"retention.ms": "5"}
    outcome = broker.change("update_topic_configs", "orders", setting(retention_ms="6"))
    assert isinstance(outcome, UnreadableConfig)
    assert cluster.data(config_path(ORDERS)) == b"nonsense"


def test_what_may_not_be_read_is_named_and_left(
    cluster: ClusterWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bob, clients = EntityName("users", "bob"), "/config/users/alice/clients"
    write(cluster, ORDERS, {"retention.ms": "5"})
    for user in (ALICE, bob):
        write(cluster, (user,), {"request_percentage": "2"})
    denied = {config_path((ALICE,)), clients}
    for name in ("get", "children"):
        _deny(monkeypatch, name, denied)
    broker = Follower(cluster)
    cluster.until(lambda: broker.configs)
    assert broker.image.client_quotas == {(("user", "bob"),): {"request_percentage": 2.0}}
    write(cluster, ORDERS, {"retention.ms": "6"})
    cluster.until(lambda: broker.configs == {"retention.ms": "6"})
    denied.add(config_path((bob,)))
    write(cluster, (bob,), {"request_percentage": "3"})
    write(cluster, ORDERS, {"retention.ms": "7"})
    cluster.until(lambda: broker.configs == {"retention.ms": "7"})
    quotas = {(("user", "bob"),): {"request_percentage": 2.0}}
    assert broker.image.client_quotas == quotas, "they stay in force"
    for path in denied:
        assert caplog.text.count(f"znode={path} is ignored") == 1
    # Without its settings a topic's records might be deleted that are to be kept.
    denied.add(config_path(ORDERS))
    write(cluster, ORDERS, {"retention.ms": "8"})
    cluster.advance(3_000)
    assert broker.configs == {"retention.ms": "7"}
    assert not Follower(cluster).settings.is_read
    denied.clear()
    cluster.until(lambda: broker.configs == {"retention.ms": "8"})


def _deny(patch: pytest.MonkeyPatch, name: str, paths: set[str]) -> None:
    """Make reads of these znodes fail with NoAuth."""
    original = getattr(CarriedSession, name)

    def read(self: Any, path: str, done: Any, **options: Any) -> None:
        denied = path in paths
        original(self, path, lambda answer: done(NoAuth(path) if denied else answer), **options)

    patch.setattr(CarriedSession, name, read)


# --- changes --------------------------------------------------------------------------------------
def test_a_change_is_written_and_announced_as_kafka_does_it(cluster: ClusterWorld) -> None:
    broker, other = Follower(cluster), Follower(cluster)
    cluster.advance(1_000)
    topic = broker.change("update_topic_configs", "orders", setting(retention_ms="5"))
    assert topic == broker.image.topics["orders"]
    assert broker.configs == {"retention.ms": "5"}, "the image shows it when it is answered"
    assert cluster.data(config_path(ORDERS)) == b'{"version":1,"config":{"retention.ms":"5"}}'
    (name,) = notifications(cluster)
    told = cluster.data(f"{CONFIG_CHANGES}/{name}")
    assert told == b'{"version":2,"entity_path":"topics/orders"}'
    cluster.until(lambda: other.configs == {"retention.ms": "5"})


def test_changes_of_two_brokers_are_both_kept(cluster: ClusterWorld) -> None:
    brokers = [Follower(cluster), Follower(cluster)]
    cluster.advance(1_000)
    outcomes: list[Any] = []
    for number in range(20):
        update = setting(**{f"key{number}": "x"})
        brokers[number % 2].changes.update_topic_configs("orders", update, outcomes.append)
    cluster.until(lambda: len(outcomes) == 20)
    assert all(isinstance(each, Topic) for each in outcomes)
    cluster.until(lambda: len(brokers[0].configs) == len(brokers[1].configs) == 20)


@pytest.mark.parametrize("seed", range(20))
def test_a_change_back_is_written_though_a_server_lags_behind(seed: int) -> None:
    cluster = made_cluster(seed)
    write(cluster, ORDERS, {"retention.ms": "5"})
    brokers = [Follower(cluster), Follower(cluster)]
    cluster.until(lambda: all(each.configs for each in brokers))
    for broker, text in zip(brokers, ("6", "5"), strict=True):
        broker.change("update_topic_configs", "orders", setting(retention_ms=text))
    assert cluster.data(config_path(ORDERS)) == b'{"version":1,"config":{"retention.ms":"5"}}'
    cluster.until(lambda: all(each.configs == {"retention.ms": "5"} for each in brokers))


def test_a_change_that_changes_nothing_is_not_written(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    broker.change("update_topic_configs", "orders", setting(retention_ms="5"))
    version = cluster.stat(config_path(ORDERS)).version
    broker.change("update_topic_configs", "orders", setting(retention_ms="5"))
    assert cluster.stat(config_path(ORDERS)).version == version
    assert len(notifications(cluster)) == 1


def test_brokers_settings_and_quotas_are_changed(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    write(cluster, (ALICE,), {"SCRAM-SHA-256": "salt=x"})
    given: list[Mapping[str, Mapping[str, str]]] = []

    def update(texts: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
        given.append(texts)
        return {"log.retention.ms": "9"}

    assert broker.change("update_broker_configs", ALL_BROKERS, update) is None
    assert broker.change("update_broker_configs", "3", update) is None
    assert given == [{"": {}}, {"": {"log.retention.ms": "9"}, "3": {}}]
    assert cluster.data("/config/brokers/<default>") == cluster.data("/config/brokers/3")
    updates = {
        (("user", "alice"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        (("client-id", None), ("user", "bob")): {"consumer_byte_rate": 5.0},
    }
    assert broker.change("update_client_quotas", updates) is None
    assert broker.image.client_quotas == updates
    assert json.loads(cluster.data("/config/users/alice"))["config"] == {
        "SCRAM-SHA-256": "salt=x",
        "producer_byte_rate": "1000",
        "request_percentage": "12.5",
    }
    assert cluster.data("/config/users/bob/clients/<default>") is not None
    gone = {(("user", "alice"),): {"producer_byte_rate": None, "request_percentage": None}}
    assert broker.change("update_client_quotas", gone) is None
    assert list(broker.image.client_quotas) == [(("client-id", None), ("user", "bob"))]
    assert "SCRAM-SHA-256" in json.loads(cluster.data("/config/users/alice"))["config"]


def test_a_deleted_topic_has_no_settings(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    cluster.call_zookeeper("delete", "/brokers/topics/orders", -1)
    outcome = broker.change("update_topic_configs", "orders", setting(retention_ms="5"))
    assert isinstance(outcome, UnknownTopic)
    assert cluster.stat(config_path(ORDERS)) is None
    assert notifications(cluster) == []


def test_a_topic_that_may_not_be_checked_is_not_reported_as_missing(
    cluster: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the topic's znode needs the right to read the znode."""
    broker = Follower(cluster)
    denied = MultiFailed(0, NoAuth("check /brokers/topics/orders"))
    monkeypatch.setattr(CarriedSession, "multi", lambda _, __, done: done(denied))
    assert broker.change("update_topic_configs", "orders", setting(retention_ms="5")) is denied


def test_an_update_that_refuses_is_answered_with_its_error(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    refusal = ValueError("no")

    def update(_: Mapping[str, str]) -> Mapping[str, str]:
        raise refusal

    assert broker.change("update_topic_configs", "orders", update) is refusal
    assert isinstance(
        broker.change("update_topic_configs", "orders", setting(retention_ms="5")), Topic
    )


@pytest.mark.parametrize("breaks_at", range(1, 12))
def test_a_change_whose_answer_is_lost_is_read_back(cluster: ClusterWorld, breaks_at: int) -> None:
    broker = Follower(cluster)
    cluster.advance(1_000)
    outcomes: list[Any] = []
    broker.changes.update_topic_configs("orders", setting(retention_ms="5"), outcomes.append)
    cluster.advance(breaks_at)
    broker.client.reset()
    cluster.until(lambda: outcomes)
    assert outcomes == [broker.image.topics["orders"]]
    assert broker.configs == {"retention.ms": "5"}
    assert cluster.stat(config_path(ORDERS)).version == 0
    assert len(notifications(cluster)) == 1


def test_without_zookeeper_a_change_is_given_up(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    cluster.advance(1_000)
    broker.client.cut()
    outcomes: list[Any] = []
    broker.changes.update_topic_configs("orders", setting(retention_ms="5"), outcomes.append)
    cluster.advance(CHANGE_TIMEOUT_MS - 1_000)
    assert not outcomes
    cluster.advance(2_000)
    (outcome,) = outcomes
    assert isinstance(outcome, NoResponse)
    broker.client.mend()
    cluster.advance(10_000)
    assert len(outcomes) == 1


@pytest.mark.parametrize("timeout_ms", range(1, 16))
def test_a_change_that_is_given_up_under_way_is_answered_once(
    cluster: ClusterWorld, monkeypatch: pytest.MonkeyPatch, timeout_ms: int
) -> None:
    broker = Follower(cluster)
    cluster.advance(1_000)
    monkeypatch.setattr(settings, "CHANGE_TIMEOUT_MS", timeout_ms)
    outcomes: list[Any] = []
    broker.changes.update_topic_configs("orders", setting(retention_ms="5"), outcomes.append)
    cluster.advance(timeout_ms)
    was_given_up = bool(outcomes) and isinstance(outcomes[0], NoResponse)
    cluster.advance(1_000)
    assert len(outcomes) == 1
    if was_given_up and cluster.stat(config_path(ORDERS)) is not None:
        assert broker.configs == {"retention.ms": "5"}, "it came in force still"
    monkeypatch.setattr(settings, "CHANGE_TIMEOUT_MS", CHANGE_TIMEOUT_MS)
    broker.change("update_topic_configs", "orders", setting(retention_ms="6"))
    assert broker.configs == {"retention.ms": "6"}
    assert len(outcomes) == 1


def test_notifications_go_after_their_time(cluster: ClusterWorld) -> None:
    broker = Follower(cluster)
    broker.change("update_topic_configs", "orders", setting(retention_ms="5"))
    cluster.advance(KEPT_MS - 5_000)
    broker.change("update_topic_configs", "orders", setting(retention_ms="6"))
    cluster.advance(1_000)
    assert len(notifications(cluster)) == 2
    cluster.advance(10_000)
    broker.change("update_topic_configs", "orders", setting(retention_ms="7"))
    cluster.advance(1_000)
    assert len(notifications(cluster)) == 2
    broker.change("update_topic_configs", "orders", setting(retention_ms="8"))
    assert broker.configs == {"retention.ms": "8"}


@pytest.mark.parametrize(
    "names", [(ALICE,), (ALICE, EntityName("clients", None)), entity("ips", "10.0.0.1")]
)
def test_each_quota_entity_has_one_znode(names: Entity) -> None:
    assert znode_entity(quota_entity(names)) == names
