"""The settings of a broker in a cluster: what they mean together, and which refuse the start."""

import pytest

from klog_broker.config import BrokerConfig, ConfigError
from klog_broker.config.cluster import inter_broker_listener

IN_CLUSTER = "zookeeper.connect=zk1:2181,zk2:2181/kafka"


def load(*settings: str) -> BrokerConfig:
    return BrokerConfig.load(overrides=(IN_CLUSTER, *settings))


def problem(*settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*settings)
    return str(caught.value)


def test_a_broker_joins_a_cluster_where_zookeeper_is_named() -> None:
    assert load().joins_cluster
    assert not BrokerConfig.load().joins_cluster
    assert not BrokerConfig.load(overrides=("zookeeper.connect= ",)).joins_cluster


def test_the_times_are_kafkas() -> None:
    config = load()
    assert config["zookeeper.session.timeout.ms"] == 18000
    assert config["zookeeper.connection.timeout.ms"] == 18000
    config = load("zookeeper.session.timeout.ms=6000")
    assert config["zookeeper.connection.timeout.ms"] == 6000
    config = load("zookeeper.session.timeout.ms=6000", "zookeeper.connection.timeout.ms=1")
    assert config["zookeeper.connection.timeout.ms"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "zk",
        "zk:2181",
        "[::1]:2181",
        "[fe80::1%eth0]:1",
        "zk_1.a-b.:1",
        "10.0.0.1:1,b",
        " a:1 , b:2/x/y",
        "a,b/kafka",
        "a/",
    ],
)
def test_addresses_of_zookeeper(text: str) -> None:
    assert load(f"zookeeper.connect={text}").joins_cluster


@pytest.mark.parametrize(
    "text",
    [
        *("a:b", "a:0", "a:65536", "a,,b", ",", "/kafka", "a/b/", "a//b", "a/b c", "a b"),
        *("a/.", "a/../b", "a/b\x07c", "[10.0.0.1]:1", "[:::]:1", "[]:1", "a@:1", "#a", "a?b:1"),
        *("a..b:1", f"{'a' * 64}:1"),
    ],
)
def test_addresses_that_are_none(text: str) -> None:
    sentence = problem(f"zookeeper.connect={text}")
    assert sentence.startswith(f"zookeeper.connect={text} is refused: ")


def test_without_a_number_zookeeper_gives_one() -> None:
    assert load()["broker.id"] == load()["node.id"] == -1
    assert load("broker.id=7")["broker.id"] == 7
    assert load("node.id=7")["broker.id"] == 7
    assert load("broker.id=-1")["broker.id"] == -1
    assert BrokerConfig.load()["broker.id"] == 0


def test_a_generated_number_may_be_above_those_that_can_be_set() -> None:
    config = load().with_generated_id(1001)
    assert (config["broker.id"], config["node.id"]) == (1001, 1001)
    changed = config.with_changes({"message.max.bytes": "5"}, {})
    assert (changed["broker.id"], changed["message.max.bytes"]) == (1001, 5)


@pytest.mark.parametrize(
    "settings, sentence",
    [
        (["broker.id=1001"], "it must lie between -1 and reserved.broker.max.id=1000"),
        (["broker.id=-2"], "it must lie between -1 and reserved.broker.max.id=1000"),
        (["broker.id=9", "reserved.broker.max.id=8"], "reserved.broker.max.id=8"),
        (["broker.id.generation.enable=false"], "broker.id=-1 is refused: with"),
        (
            ["inter.broker.listener.name=X"],
            "inter.broker.listener.name=X names no advertised listener (PLAINTEXT)",
        ),
        (
            ["security.inter.broker.protocol=SSL"],
            "security.inter.broker.protocol=SSL names no advertised listener (PLAINTEXT)",
        ),
        (
            ["security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=PLAINTEXT"],
            "are both set",
        ),
        (["zookeeper.session.timeout.ms=0"], "zookeeper.session.timeout.ms=0 is refused"),
        (
            ["zookeeper.connection.timeout.ms=-1"],
            "zookeeper.connection.timeout.ms=-1 is refused",
        ),
        (["zookeeper.max.in.flight.requests=0"], "it must be at least 1"),
        (["control.plane.listener.name=CONTROLLER"], "and on no other; remove the line"),
        (["zookeeper.set.acl=true"], "klog writes znodes that every client of ZooKeeper may"),
        (["zookeeper.ssl.client.enable=true"], "klog connects to ZooKeeper without TLS"),
        (["zookeeper.metadata.migration.enable=true"], "from ZooKeeper to KRaft"),
        (["process.roles=broker,controller"], "this line is for KRaft;"),
        (["controller.quorum.voters=0@localhost:9093"], "this line is for KRaft;"),
    ],
)
def test_what_a_broker_in_a_cluster_refuses(settings: list[str], sentence: str) -> None:
    assert sentence in problem(*settings)


def test_what_says_no_more_than_klog_does_starts() -> None:
    load("zookeeper.set.acl=false", "zookeeper.ssl.client.enable=FALSE", "process.roles=")
    load("broker.id=1001", "broker.id.generation.enable=false")


def test_a_standalone_broker_accepts_the_settings_of_clusters() -> None:
    BrokerConfig.load(
        overrides=(
            "inter.broker.protocol.version=2.8",
            "inter.broker.listener.name=OTHER",
            "control.plane.listener.name=CONTROLLER",
            "zookeeper.set.acl=true",
            "broker.id=5000",
        )
    )
    with pytest.raises(ConfigError, match=r"broker\.id=-1 is refused: a broker without zookeeper"):
        BrokerConfig.load(overrides=("broker.id=-1",))


@pytest.mark.parametrize("text", ["3.5", "3.5-IV2", "3.6.1", "3.7-IV4", "3.8", "3.9-IV0", " 3.9 "])
def test_releases_that_klog_speaks(text: str) -> None:
    load(f"inter.broker.protocol.version={text}")


@pytest.mark.parametrize("text", ["3.4", "3.4-IV0", "4.0-IV0", "0.10.2"])
def test_releases_that_klog_does_not_speak(text: str) -> None:
    assert "klog speaks to other brokers as Kafka 3.5, 3.6, 3.7, 3.8, 3.9 does" in problem(
        f"inter.broker.protocol.version={text}"
    )


@pytest.mark.parametrize("text", ["3.5-IV3", "3", "x", "", "4.0", "5.0", "3.9."])
def test_releases_that_are_none(text: str) -> None:
    assert f"inter.broker.protocol.version={text} is refused: it must be a release" in problem(
        f"inter.broker.protocol.version={text}"
    )


def test_the_listener_of_the_brokers() -> None:
    two = (
        "listeners=A://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093",
        "listener.security.protocol.map=A:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    )
    config = load(*two)
    assert inter_broker_listener(config, config.advertised_listeners).name == "PLAINTEXT"
    config = load(*two, "inter.broker.listener.name=a")
    assert inter_broker_listener(config, config.advertised_listeners).name == "A"
