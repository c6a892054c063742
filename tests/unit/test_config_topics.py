"""The settings of a topic: where defaults come from, and what is refused."""

import pytest

from klog_broker.config import TOPIC_SETTINGS, BrokerConfig, ConfigError, topic_config
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
            {"min_compaction_lag_ms": "5", "max_compaction_lag_ms": "4"},
            "min.compaction.lag.ms=5 is above max.compaction.lag.ms=4",
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
            {"leader_replication_throttled_replicas": "1-2"},
            "leader.replication.throttled.replicas=1-2 is refused: it must be * or"
            " partition:broker, comma-separated",
        ),
    ],
)
def test_refusals(settings: dict[str, str], expected: str) -> None:
    assert problem(**settings) == expected


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
    assert len(config.warnings) == 4
    assert any("nothing is compacted yet" in warning for warning in config.warnings)
    assert (
        "topic setting message.format.version has no effect here. New data is always stored in"
        " format 2, as in Kafka since 3.0."
    ) in config.warnings


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
