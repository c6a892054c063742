"""A broker's settings change while it runs: precedence, application, refused values."""

import logging

import pytest

from klog_broker.app import BrokerServer
from klog_broker.config import SETTINGS, BrokerConfig
from klog_broker.config.setting_changes import effective_settings
from klog_broker.metadata.image import ALL_BROKERS
from klog_broker.topics.broker_settings import MAX_SETTINGS_PER_BROKER
from pyspark_klog.protocol.apis.describe_configs import DescribeConfigsResourceResult
from tests.support.api.settings_requests import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    change,
    create,
    describe,
    replace,
    sources,
)
from tests.support.cluster.server import asked, log_of, make_topic, start
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import MemoryFiles

META = DATA / "klog-metadata"
OK = ("NONE", None)
THIS = "0"
DAY_MS = 86_400_000


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(files: MemoryFiles) -> BrokerServer:
    return start(files, log_retention_hours=2)


def given(broker: BrokerServer) -> dict[str, dict[str, str]]:
    found = broker.services.metadata.image.broker_configs
    return {name: dict(texts) for name, texts in found.items()}


def store(broker: BrokerServer, name: str, texts: dict[str, str]) -> None:
    """Store a setting as an earlier release may have stored it, without a check."""
    metadata = broker.services.metadata
    asked(broker, lambda done: metadata.update_broker_configs(name, lambda _: texts, done))


def test_what_is_given_counts_in_kafkas_order(broker: BrokerServer) -> None:
    static = [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]
    assert describe(broker, THIS)["log.retention.ms"].value is None
    assert change(broker, ALL_BROKERS, ("log.retention.ms", SET, "200000")) == OK
    for_all = ("log.retention.ms", "200000", 3)
    assert sources(describe(broker, THIS)["log.retention.ms"]) == [for_all, *static]
    assert change(broker, THIS, ("log.retention.ms", SET, "100000")) == OK
    own = ("log.retention.ms", "100000", 2)
    row = describe(broker, THIS, "log.retention.ms")["log.retention.ms"]
    assert sources(row) == [own, for_all, *static]
    assert (row.read_only, broker.config["log.retention.ms"]) == (False, 100_000)
    make_topic(broker, "a")
    of_topic = describe(broker, "a", "retention.ms", kind=TOPIC)["retention.ms"]
    assert sources(of_topic) == [own, for_all, *static]
    assert change(broker, "a", ("retention.ms", SET, "7"), kind=TOPIC) == OK
    of_topic = describe(broker, "a", "retention.ms", kind=TOPIC)["retention.ms"]
    assert sources(of_topic) == [("retention.ms", "7", 1), own, for_all, *static]
    assert change(broker, THIS, ("log.retention.ms", DELETE, None)) == OK
    assert sources(describe(broker, THIS)["log.retention.ms"]) == [for_all, *static]
    assert log_of(broker, "a").config.retention_ms == 7


def test_the_settings_of_all_brokers_are_only_the_given_ones(broker: BrokerServer) -> None:
    change(broker, ALL_BROKERS, ("log.segment.bytes", SET, " 1000 "), ("num.io.threads", SET, "9"))
    found = describe(broker, ALL_BROKERS)
    assert {name: sources(row) for name, row in found.items()} == {
        "log.segment.bytes": [("log.segment.bytes", "1000", 3)],
        "num.io.threads": [("num.io.threads", "9", 3)],
    }
    assert not any(row.read_only for row in found.values())
    assert list(describe(broker, ALL_BROKERS, "num.io.threads", "log.roll.ms")) == [
        "num.io.threads"
    ]


def test_a_restart_keeps_what_was_given(files: MemoryFiles, broker: BrokerServer) -> None:
    make_topic(broker, "a")
    change(broker, ALL_BROKERS, ("log.segment.bytes", SET, "5000"))
    change(broker, THIS, ("log.retention.bytes", SET, "77"))
    for again in (start(files.killed()), start(files.killed(), log_segment_bytes=9000)):
        assert given(again) == {
            ALL_BROKERS: {"log.segment.bytes": "5000"},
            THIS: {"log.retention.bytes": "77"},
        }
        config = log_of(again, "a").config
        assert (config.segment_bytes, config.retention_bytes) == (5000, 77)


def test_everybody_follows_at_once(broker: BrokerServer) -> None:
    make_topic(broker, "a", 2)
    make_topic(broker, "own")
    change(broker, "own", ("segment.bytes", SET, "3000"), kind=TOPIC)
    changes: list[Change] = [
        ("log.segment.bytes", SET, "5000"),
        ("min.insync.replicas", SET, "2"),
        ("max.connections", SET, "3"),
        ("log.cleaner.backoff.ms", SET, "9"),
        ("producer.id.expiration.ms", SET, "11"),
    ]
    version = broker.services.replicas.version
    assert change(broker, ALL_BROKERS, *changes) == OK
    configs = [log_of(broker, "a", number).config.segment_bytes for number in (0, 1)]
    assert (configs, log_of(broker, "own").config.segment_bytes) == ([5000, 5000], 3000)
    assert broker.services.replicas.version > version
    assert broker.services.config["max.connections"] == broker.config["max.connections"] == 3
    make_topic(broker, "later")
    assert log_of(broker, "later").config.segment_bytes == 5000
    assert change(broker, ALL_BROKERS, *[(name, DELETE, None) for name, _, _ in changes]) == OK
    assert log_of(broker, "a").config.segment_bytes == 1 << 30
    assert given(broker) == {}


def test_many_topics_follow_in_slices(broker: BrokerServer) -> None:
    for number in range(6):
        make_topic(broker, f"t{number}", 200)

    def followed(segment_bytes: int) -> int:
        logs = broker.services.logs.logs()
        return sum(log.config.segment_bytes == segment_bytes for log in logs)

    change(broker, ALL_BROKERS, ("log.segment.bytes", SET, "5000"))
    assert 0 < followed(5000) < 1200
    # Make another change before all have followed the first: all of them get the newest value.
    change(broker, ALL_BROKERS, ("log.segment.bytes", SET, "6000"))
    for _ in range(10):
        broker.loop.run_turn(0)
    assert followed(6000) == 1200


def test_only_validated(broker: BrokerServer) -> None:
    assert change(broker, THIS, ("log.segment.bytes", SET, "99"), validate_only=True) == OK
    assert replace(broker, THIS, {"log.segment.bytes": "99"}, validate_only=True) == OK
    assert given(broker) == {}


def test_all_that_was_given_is_replaced(broker: BrokerServer) -> None:
    change(broker, THIS, ("log.segment.bytes", SET, "99"), ("log.roll.ms", SET, "5"))
    assert replace(broker, THIS, {"log.roll.ms": "6", "log.retention.ms": "7"}) == OK
    assert given(broker) == {THIS: {"log.roll.ms": "6", "log.retention.ms": "7"}}
    assert replace(broker, "00", {}) == OK
    assert given(broker) == {}


def test_lists_are_added_to_what_counts(broker: BrokerServer) -> None:
    policy = "log.cleanup.policy"
    assert change(broker, ALL_BROKERS, (policy, APPEND, "compact,delete")) == OK
    assert given(broker) == {ALL_BROKERS: {policy: "delete,compact"}}
    assert change(broker, THIS, (policy, SUBTRACT, "delete")) == OK
    assert given(broker)[THIS] == {policy: "compact"}
    assert change(broker, THIS, (policy, APPEND, "delete")) == OK
    assert given(broker)[THIS] == {policy: "compact,delete"}


@pytest.mark.parametrize("name", [THIS, ALL_BROKERS])
@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ([("node.id", SET, "3")], "INVALID_REQUEST", "cannot be changed while the broker runs"),
        ([("listeners", SET, "PLAINTEXT://:1")], "INVALID_REQUEST", "cannot be changed while"),
        ([("zookeeper.connect", SET, "a")], "INVALID_REQUEST", "cannot be changed while"),
        ([("port", SET, "5")], "INVALID_REQUEST", "cannot be changed while"),
        ([("ssl.keystore.location", SET, "/x")], "INVALID_REQUEST", "cannot be changed while"),
        ([("log.retention.minutes", SET, "3")], "INVALID_REQUEST", "cannot be changed while"),
        ([("log.segment.byte", SET, "99")], "INVALID_CONFIG", "did you mean log.segment.bytes?"),
        ([("", SET, "")], "INVALID_CONFIG", "is not a setting"),
        ([("log.segment.bytes", SET, "x")], "INVALID_REQUEST", "must be a whole number"),
        ([("log.segment.bytes", SET, "1")], "INVALID_REQUEST", "must be at least 14"),
        ([("log.segment.bytes", SET, None)], "INVALID_REQUEST", "has no value (null)"),
        ([("log.retention.ms", SET, "0")], "INVALID_REQUEST", "it must be -1 (for ever)"),
        ([("max.connections.per.ip.overrides", SET, "a:b")], "INVALID_REQUEST", "not host:number"),
        ([("log.cleaner.threads", SET, "3")], "INVALID_REQUEST", "must be from 1 to 2"),
        ([("log.cleaner.dedupe.buffer.size", SET, "5")], "INVALID_REQUEST", "at least 1048577"),
        ([("log.segment.bytes", APPEND, "1")], "INVALID_CONFIG", "is no list"),
        ([("nonsense", APPEND, "1")], "INVALID_CONFIG", "is no list"),
        ([("log.roll.ms", 7, "1")], "INVALID_REQUEST", "operation 7"),
        (
            [("log.roll.ms", SET, "1"), ("log.roll.ms", DELETE, None)],
            "INVALID_REQUEST",
            "named twice",
        ),
    ],
)
def test_what_is_refused_changes_nothing(
    broker: BrokerServer, name: str, changes: list[Change], code: str, text: str
) -> None:
    found_code, found_text = change(broker, name, ("log.roll.jitter.ms", SET, "5"), *changes)
    assert (found_code, text in str(found_text)) == (code, True), found_text
    assert given(broker) == {}


@pytest.mark.parametrize("name", ["1", "-1", "x", " 0", "0x0", "٠", "9" * 5000])
def test_other_brokers_are_not_known(broker: BrokerServer, name: str) -> None:
    code, text = change(broker, name, ("log.roll.ms", SET, "5"))
    assert (code, "this is broker 0" in str(text)) == ("INVALID_REQUEST", True)
    assert replace(broker, name, {})[0] == "INVALID_REQUEST"


def test_what_is_for_one_broker_is_not_for_all(broker: BrokerServer) -> None:
    for name in ("ssl.protocol", "cordoned.log.dirs", "listener.name.a.ssl.protocol"):
        code, text = change(broker, ALL_BROKERS, (name, SET, "x"))
        assert (code, "for one broker" in str(text)) == ("INVALID_REQUEST", True)
        assert change(broker, THIS, (name, SET, "x")) == OK
    assert change(broker, ALL_BROKERS, ("listener.name.a.max.connections", SET, "5")) == OK


def test_secrets_of_what_is_not_there_are_not_stored(broker: BrokerServer) -> None:
    for name in ("sasl.jaas.config", "listener.name.a.ssl.keystore.password"):
        code, text = change(broker, THIS, (name, SET, "hush"))
        assert (code, "does not store it" in str(text)) == ("INVALID_REQUEST", True)


def test_a_broker_takes_so_many_settings(broker: BrokerServer) -> None:
    names = [f"listener.name.a{n}.max.connections" for n in range(MAX_SETTINGS_PER_BROKER + 1)]
    assert change(broker, THIS, *[(name, SET, "1") for name in names[:-1]]) == OK
    code, text = change(broker, THIS, (names[-1], SET, "1"))
    assert (code, "at most 1000" in str(text)) == ("INVALID_REQUEST", True)


def test_settings_without_effect_are_stored_and_described_as_such(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "klog.config"):
        assert change(broker, THIS, ("num.io.threads", SET, "9")) == OK
    (line,) = [each.getMessage() for each in caplog.records if each.name == "klog.config"]
    assert line.startswith("num.io.threads=9 has no effect here. One event loop")
    row = describe(broker, THIS)["num.io.threads"]
    assert sources(row) == [("num.io.threads", "9", 2)]
    assert "No effect here: One event loop serves all connections" in str(row.documentation)
    assert "num.network.threads" not in describe(broker, THIS)
    asked_for = describe(broker, THIS, "num.network.threads", "process.roles", "nonsense")
    assert {name: (row.value, row.read_only) for name, row in asked_for.items()} == {
        "num.network.threads": (None, False),
        "process.roles": (None, True),
    }


def test_settings_that_can_be_changed_are_described(broker: BrokerServer) -> None:
    found = describe(broker, THIS)
    changeable = {name for name, row in found.items() if not row.read_only}
    assert changeable == {name for name, row in SETTINGS.items() if row.dynamic}
    rows: list[DescribeConfigsResourceResult] = list(found.values())
    assert [row.name for row in rows] == sorted(row.name for row in rows)


def test_what_is_stored_and_cannot_be_used_does_not_count(
    files: MemoryFiles, broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    stored = {"log.segment.bytes": "x", "gone.setting": "1", "node.id": "5", "log.roll.ms": "5"}
    store(broker, THIS, stored)
    assert broker.config["log.roll.ms"] == 5
    caplog.clear()
    with caplog.at_level(logging.WARNING, "klog.config"):
        again = start(files.killed())
    told = [each.getMessage() for each in caplog.records if each.name == "klog.config"]
    assert len(told) == 3
    assert all("changed for this broker" in line and "ignoring" in line for line in told)
    assert again.config["log.segment.bytes"] == 1 << 30
    assert again.config["log.roll.ms"] == 5
    # The unusable setting blocks no other change, and it can be deleted.
    assert change(again, THIS, ("log.roll.ms", SET, "6"), ("gone.setting", DELETE, None)) == OK
    assert given(again)[THIS] == {"log.segment.bytes": "x", "node.id": "5", "log.roll.ms": "6"}


def test_what_is_stored_for_a_topic_and_cannot_be_used_does_not_count(
    files: MemoryFiles, broker: BrokerServer, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker, "a")
    stored = {"retention.ms": "7", "of.tomorrow": "1", "cleanup.policy": "shred"}
    metadata = broker.services.metadata
    caplog.clear()
    asked(broker, lambda done: metadata.update_topic_configs("a", lambda _: stored, done))
    named = "topic=a ignoring a stored setting"
    assert sum(named in line for line in caplog.messages) == 2
    assert log_of(broker, "a").config.retention_ms == -1
    caplog.clear()
    again = start(files.killed())
    assert sum(named in line for line in caplog.messages) == 2
    config = log_of(again, "a").config
    assert (config.retention_ms, config.delete) == (-1, True), "nothing is deleted meanwhile"
    found = describe(again, "a", kind=TOPIC)
    assert sources(found["retention.ms"])[0] == ("retention.ms", "-1", 1)
    assert sources(found["cleanup.policy"])[0] == ("cleanup.policy", "delete", 1)
    # The unusable setting blocks no other change, and it can be deleted.
    assert change(again, "a", ("retention.ms", SET, "8"), kind=TOPIC) == OK
    assert change(again, "a", ("cleanup.policy", SET, "mince"), kind=TOPIC)[0] == "INVALID_CONFIG"
    assert change(again, "a", ("cleanup.policy", APPEND, "compact"), kind=TOPIC) == OK
    assert change(again, "a", ("of.tomorrow", DELETE, None), kind=TOPIC) == OK
    topic = again.services.metadata.image.topic("a")
    assert topic is not None
    assert topic.configs == {"retention.ms": "8", "cleanup.policy": "delete,compact"}


def test_half_of_an_odd_number_of_cleaner_threads_is_rounded_down(broker: BrokerServer) -> None:
    """Kafka divides whole numbers."""
    for count in ("2", "3", "1"):
        assert change(broker, "", ("log.cleaner.threads", SET, count)) == OK


def test_of_settings_that_do_not_go_together_some_count() -> None:
    begun = BrokerConfig.load(overrides={"log.cleaner.dedupe.buffer.size": "2097154"})
    one = effective_settings(begun, {"log.cleaner.threads": "4"}, {"log.roll.ms": "5"})
    assert (one.config["log.cleaner.threads"], one.config["log.roll.ms"]) == (1, 5)
    (problem,) = one.problems
    assert problem.startswith("log.cleaner.threads, changed for all brokers: ")
    # Each setting is valid only with the other one, in whatever order both are set.
    both = effective_settings(
        begun,
        {"log.cleaner.min.compaction.lag.ms": "50", "log.retention.ms": "0"},
        {"log.cleaner.max.compaction.lag.ms": "60"},
    )
    assert both.config["log.cleaner.min.compaction.lag.ms"] == 50
    assert both.config["log.retention.ms"] == 7 * DAY_MS
    assert len(both.problems) == 1


def test_a_file_without_settings_of_brokers_is_as_it_was(
    files: MemoryFiles, broker: BrokerServer
) -> None:
    before = files.read_bytes(META)
    assert b'"version":1' in before
    change(broker, THIS, ("log.roll.ms", SET, "6"))
    assert b'"version":2' in files.read_bytes(META)
    change(broker, THIS, ("log.roll.ms", DELETE, None))
    assert files.read_bytes(META) == before


def test_nothing_is_written_for_a_change_that_changes_nothing(
    files: MemoryFiles, broker: BrokerServer
) -> None:
    change(broker, THIS, ("log.roll.ms", SET, "6"))
    image = broker.services.metadata.image
    assert change(broker, THIS, ("log.roll.ms", SET, "6"), ("x", DELETE, None)) == OK
    assert broker.services.metadata.image is image


def test_with_strict_configs_what_has_no_effect_is_refused(files: MemoryFiles) -> None:
    lax = start(files)
    make_topic(lax, "a")
    assert change(lax, "a", ("message.format.version", SET, "2.8"), kind=TOPIC) == OK
    assert change(lax, THIS, ("num.io.threads", SET, "9")) == OK
    strict = start(files.killed(), strict_configs=True)
    assert describe(strict, THIS, "num.io.threads")["num.io.threads"].value is None
    for code, text in (
        change(strict, THIS, ("num.io.threads", SET, "8")),
        change(strict, ALL_BROKERS, ("num.network.threads", SET, "8")),
        replace(strict, THIS, {"num.network.threads": "9"}),
        change(strict, "a", ("local.retention.ms", SET, "8"), kind=TOPIC),
        replace(strict, "a", {"message.format.version": "2.8"}, kind=TOPIC),
        create(strict, "b", {"message.format.version": "2.8"}),
    ):
        assert (code, "strict.configs=true refuses" in str(text)) == ("INVALID_CONFIG", True)
    # Settings that were stored before block no other change, and they can be deleted.
    assert change(strict, THIS, ("log.roll.ms", SET, "6")) == OK
    assert change(strict, THIS, ("num.io.threads", DELETE, None)) == OK
    assert change(strict, "a", ("flush.ms", SET, "6"), kind=TOPIC) == OK
    assert change(strict, "a", ("message.format.version", DELETE, None), kind=TOPIC) == OK
    assert create(strict, "b", {"flush.ms": "6"}) == OK


def test_types_other_than_topics_and_brokers(broker: BrokerServer) -> None:
    code, text = change(broker, THIS, ("a", SET, "b"), kind=8)
    assert (code, "loggers have no settings here" in str(text)) == ("INVALID_REQUEST", True)
    code, text = change(broker, THIS, ("a", SET, "b"), kind=3)
    assert (code, f"2 (topic) and {BROKER} (broker) are" in str(text)) == ("INVALID_REQUEST", True)
