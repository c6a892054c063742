"""The settings of a topic: where defaults come from, and what is refused."""

import pytest

from klog_broker.config import (
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    stored_topic_config,
    topic_config,
    topic_config_problem,
    topic_setting,
)
from klog_broker.log.log_config import LogConfig

BROKER = BrokerConfig.load()


def problem(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        topic_config(BROKER, {k.replace("_", "."): v for k, v in settings.items()})
    return str(caught.value)


def test_defaults_are_the_brokers() -> None:
    broker = BrokerConfig.load(overrides=["log.retention.hours=1", "log.segment.bytes=4096"])
    config = topic_config(broker, {})
    assert (config["retention.ms"], config["segment.bytes"]) == (3_600_000, 4096)
    assert set(config) == set(TOPIC_SETTINGS)


def test_a_brokers_default_settings_give_the_rows_own_defaults() -> None:
    config = topic_config(BROKER, {})
    assert {name: config[name] for name in config} == {
        name: row.default for name, row in TOPIC_SETTINGS.items()
    }


def test_what_a_topic_sets_counts_before_the_broker() -> None:
    config = topic_config(BROKER, {"retention.ms": " -1 "})
    assert config["retention.ms"] == -1
    assert config.overrides == {"retention.ms": " -1 "}


def test_one_setting_has_the_same_value_alone_and_among_all() -> None:
    broker = BrokerConfig.load(overrides=["log.segment.bytes=4096"])
    given = {"retention.ms": " -1 ", "unclean.leader.election.enable": "true"}
    config = topic_config(broker, given)
    together = {each for each in TOPIC_SETTINGS if each.startswith("message.timestamp.")}
    alone = {each: topic_setting(broker, given, each) for each in config if each not in together}
    assert alone == {each: config[each] for each in alone}
    assert topic_setting(broker, {"segment.bytes": "few"}, "segment.bytes") == 4096


def test_what_is_stored_and_cannot_be_used_does_not_count() -> None:
    given = {"retention.ms": "5", "of.tomorrow": "1", "segment.bytes": "few"}
    config = stored_topic_config(BROKER, given)
    assert (config["retention.ms"], config["segment.bytes"]) == (5, 1 << 30)
    assert config.overrides == {"retention.ms": "5"}
    assert len(config.problems) == 2
    assert config.problems[0] == "no topic settings that klog or Kafka knows: of.tomorrow"
    assert "segment.bytes=few is refused" in config.problems[1]
    assert stored_topic_config(BROKER, {"retention.ms": "5"}).problems == ()
    assert config.unused == {"of.tomorrow", "segment.bytes"}
    (problem,) = stored_topic_config(BROKER, {f"a{number}": "1" for number in range(12)}).problems
    assert problem.endswith("a8, a9 and 2 more")


def test_by_what_cannot_be_used_nothing_is_deleted() -> None:
    stored = {"cleanup.policy": "compact,shred", "retention.ms": "5", "retention.bytes": "6"}
    config = stored_topic_config(BROKER, stored)
    found = config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]
    assert found == (("delete",), -1, -1)
    for name in ("retention.ms", "retention.bytes"):
        assert stored_topic_config(BROKER, {name: "ages"})[name] == -1
    for name in ("min.compaction.lag.ms", "delete.retention.ms"):
        config = stored_topic_config(BROKER, {"cleanup.policy": "compact", name: "ages"})
        assert (config["cleanup.policy"], config[name]) == (("compact",), (1 << 63) - 1)


def test_the_old_timestamp_limit_counts_where_the_new_ones_are_not_set() -> None:
    config = topic_config(
        BROKER,
        {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"},
    )
    assert config["message.timestamp.before.max.ms"] == 7
    assert config["message.timestamp.after.max.ms"] == 9
    assert config.own_value("message.timestamp.before.max.ms") == 2**63 - 1


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"retention_ms": "-2"}, "retention.ms=-2 is refused: it must be at least -1"),
        ({"segment_bytes": "13"}, "segment.bytes=13 is refused: it must be at least 14"),
        (
            {"cleanup_policy": "delete,burn"},
            "cleanup.policy=delete,burn is refused: it must be one of compact, delete",
        ),
        (
            {"min_cleanable_dirty_ratio": "1.5"},
            "min.cleanable.dirty.ratio=1.5 is refused: it must be from 0 to 1",
        ),
        (
            {"retention_mss": "1"},
            "retention.mss is not a topic setting that klog or Kafka knows; did you mean"
            " retention.ms?",
        ),
        (
            {"remote_storage_enable": "true"},
            "remote.storage.enable=true is refused: klog has no tiered storage",
        ),
        (
            {"message_format_version": "new"},
            "message.format.version=new is refused: it must be a release of Kafka, as 2.8 or"
            " 3.0-IV1",
        ),
        (
            {"message_format_version": "5.0"},
            "message.format.version=5.0 is refused: it must be a release of Kafka, as 2.8 or"
            " 3.0-IV1",
        ),
        (
            {"leader_replication_throttled_replicas": "1-2"},
            "leader.replication.throttled.replicas=1-2 is refused: it must be * or"
            " partition:broker, comma-separated",
        ),
    ],
)
def test_refusals(settings: dict[str, str], expected: str) -> None:
    assert problem(**settings) == expected


@pytest.mark.parametrize("text", ["0.9.0.1", "0.8.2.X", "2.8.1", "3.0-IV1", "3.9", "4.0-IV0"])
def test_releases_of_kafka_are_accepted_as_kafka_writes_them(text: str) -> None:
    config = topic_config(BrokerConfig.load(), {"message.format.version": text})
    assert config["message.format.version"] == text


@pytest.mark.parametrize("text", ["0:1,", ",", "*", "0:1, 2:3", ""])
def test_empty_items_of_throttled_replicas_are_accepted_as_in_kafka(text: str) -> None:
    topic_config(BrokerConfig.load(), {"leader.replication.throttled.replicas": text})


def test_settings_without_effect_are_accepted_with_a_warning_each() -> None:
    config = topic_config(
        BROKER,
        {
            "message.format.version": "2.8",
            "leader.replication.throttled.replicas": "*",
            "follower.replication.throttled.replicas": "0:1,2:3",
            "cleanup.policy": "compact",
            "retention.ms": "1",
        },
    )
    assert len(config.warnings) == 3
    assert (
        "topic setting message.format.version has no effect here. New data is always stored in"
        " format 2, as in Kafka since 3.0."
    ) in config.warnings


def test_lags_of_compaction_that_do_not_fit_the_brokers() -> None:
    broker = BrokerConfig.load(overrides=["log.cleaner.max.compaction.lag.ms=4"])
    assert topic_config(broker, {})["max.compaction.lag.ms"] == 4
    text = (
        "min.compaction.lag.ms=5 is above max.compaction.lag.ms=4 (the broker's"
        " log.cleaner.max.compaction.lag.ms)"
    )
    assert topic_config_problem(broker, {"min.compaction.lag.ms": "5"}) == text
    both = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}
    assert topic_config_problem(broker, both) is None
    own = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    text = "min.compaction.lag.ms=5 is above max.compaction.lag.ms=4"
    assert topic_config_problem(BROKER, own) == text
    # A topic that was made under other settings of the broker is served.
    assert topic_config(broker, {"min.compaction.lag.ms": "5"})["min.compaction.lag.ms"] == 5


def test_the_settings_of_compaction_reach_the_log() -> None:
    broker = BrokerConfig.load(
        overrides=[
            "log.cleaner.min.cleanable.ratio=0.1",
            "log.cleaner.min.compaction.lag.ms=1",
            "log.cleaner.max.compaction.lag.ms=2",
            "log.cleaner.delete.retention.ms=3",
        ]
    )
    by_broker = LogConfig.from_topic_config(topic_config(broker, {}))
    assert by_broker == LogConfig(
        min_cleanable_dirty_ratio=0.1,
        min_compaction_lag_ms=1,
        max_compaction_lag_ms=2,
        delete_retention_ms=3,
    )
    own = {
        "min.cleanable.dirty.ratio": "0.9",
        "min.compaction.lag.ms": "7",
        "max.compaction.lag.ms": "8",
        "delete.retention.ms": "9",
    }
    config = topic_config(broker, own)
    assert config.warnings == ()
    assert LogConfig.from_topic_config(config) == LogConfig(
        min_cleanable_dirty_ratio=0.9,
        min_compaction_lag_ms=7,
        max_compaction_lag_ms=8,
        delete_retention_ms=9,
    )


@pytest.mark.parametrize(
    "compact, segment_ms, lag_ms, expected_ms", [(True, 9, 5, 5), (True, 4, 5, 4), (False, 9, 5, 9)]
)
def test_a_compacted_log_rolls_in_time_for_its_longest_lag(
    compact: bool, segment_ms: int, lag_ms: int, expected_ms: int
) -> None:
    config = LogConfig(compact=compact, segment_ms=segment_ms, max_compaction_lag_ms=lag_ms)
    assert config.max_segment_ms == expected_ms


def test_the_log_understands_every_topic_config() -> None:
    config = LogConfig.from_topic_config(
        topic_config(BROKER, {"compression.type": "zstd", "cleanup.policy": "compact,delete"})
    )
    assert config == LogConfig(
        segment_bytes=1 << 30,
        compression=config.compression,
        compression_level=3,
        compact=True,
        delete=True,
    )
    assert config.compression is not None
    assert config.compression.name == "ZSTD"
