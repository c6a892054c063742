"""Values of settings: types, bounds, precedence, sources, and refused values."""

import math
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog_broker.compaction.settings import CleanerSettings
from klog_broker.config import SETTINGS, BrokerConfig, ConfigError, Password, render
from klog_broker.config.refused_settings import REFUSED
from klog_broker.config.setting_rows import SECTIONS
from klog_broker.config.settings_without_effect import (
    REASONS,
    SINCE_4,
    WITHOUT_EFFECT,
    is_secret_name,
)
from klog_broker.config.topic_rows import TOPIC_SETTINGS
from klog_broker.config.types import Between, Setting, SettingType, parse_value
from klog_broker.lifecycle.component_settings import cleaner_settings


def load(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(overrides=overrides)


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    return str(caught.value)


def test_the_defaults_are_usable_and_kafkas() -> None:
    config = BrokerConfig.load()
    assert config["log.segment.bytes"] == 1 << 30
    assert config["log.retention.ms"] == 7 * 24 * 3600 * 1000
    assert config["log.roll.ms"] == 168 * 3600 * 1000
    assert config["log.flush.interval.ms"] == 2**63 - 1
    assert config["log.cleanup.policy"] == ("delete",)
    assert config["offsets.topic.num.partitions"] == 50
    assert config.warnings == ()
    assert str(config.source_of("log.segment.bytes")) == "default"


def test_every_default_is_within_its_own_bounds() -> None:
    for row in (*SETTINGS.values(), *TOPIC_SETTINGS.values()):
        text = render(row.default)
        if text is not None:
            assert row.parse(text) == row.default, row.name


def test_rows_say_what_they_do_in_a_sentence() -> None:
    for row in (*SETTINGS.values(), *TOPIC_SETTINGS.values()):
        assert row.doc.endswith("."), row.name
    assert sum(map(len, SECTIONS.values())) == len(SETTINGS)


def test_no_name_is_known_and_without_effect() -> None:
    without = {name for names in WITHOUT_EFFECT.values() for name in names}
    assert not without & set(SETTINGS)
    assert not set(REFUSED) & (set(SETTINGS) | set(REASONS))
    assert without >= SINCE_4


class TestPrecedence:
    def test_the_command_line_counts_before_the_file_and_the_file_before_the_default(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "broker.properties"
        file.write_text("# mine\nnum.partitions=2\nlog.segment.bytes=2000\n")
        config = BrokerConfig.load(file, ["num.partitions=3"])
        assert (config["num.partitions"], str(config.source_of("num.partitions"))) == (3, "--set")
        assert config["log.segment.bytes"] == 2000
        assert str(config.source_of("log.segment.bytes")) == f"{file}:3"
        assert config["message.max.bytes"] == 1048588

    def test_the_last_of_two_entries_counts(self) -> None:
        config = BrokerConfig.load(text="num.partitions=2\nnum.partitions=4\n")
        assert config["num.partitions"] == 4
        assert str(config.source_of("num.partitions")) == "properties:2"

    @pytest.mark.parametrize(
        "given, name, expected",
        [
            (["log.retention.hours=1"], "log.retention.ms", 3_600_000),
            (["log.retention.hours=1", "log.retention.minutes=2"], "log.retention.ms", 120_000),
            (
                ["log.retention.hours=1", "log.retention.minutes=2", "log.retention.ms=3"],
                "log.retention.ms",
                3,
            ),
            (["log.retention.hours=-1"], "log.retention.ms", -1),
            (["log.roll.hours=2"], "log.roll.ms", 7_200_000),
            (["log.roll.ms=5", "log.roll.hours=2"], "log.roll.ms", 5),
            (["log.roll.jitter.hours=1"], "log.roll.jitter.ms", 3_600_000),
            (["log.flush.scheduler.interval.ms=9"], "log.flush.interval.ms", 9),
            (
                ["log.flush.interval.ms=4", "log.flush.scheduler.interval.ms=9"],
                "log.flush.interval.ms",
                4,
            ),
            (["log.dir=a"], "log.dirs", "a"),
            (["log.dir=a", "log.dirs=b,c"], "log.dirs", "b,c"),
            (["node.id=7"], "broker.id", 7),
            (["broker.id=7"], "node.id", 7),
        ],
    )
    def test_the_finest_unit_that_is_set_counts(
        self, given: list[str], name: str, expected: object
    ) -> None:
        assert load(*given)[name] == expected

    def test_own_value_leaves_the_coarser_names_out(self) -> None:
        config = load("log.retention.hours=1")
        assert config.own_value("log.retention.ms") is None
        assert config.own_value("log.retention.hours") == 1

    def test_port_and_data_are_short_for_listeners_and_log_dirs(self) -> None:
        config = BrokerConfig.load(
            text="listeners=PLAINTEXT://:1,B://[::1]:2\nlog.dirs=x\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            port=0,
            data="/d/e",
        )
        assert [(each.host, each.port) for each in config.listeners] == [("", 0), ("::1", 2)]
        assert config.log_dirs == (Path("/d/e"),)
        assert str(config.source_of("listeners")) == "--port"
        assert str(config.source_of("log.dirs")) == "--data"


class TestRefusals:
    @pytest.mark.parametrize(
        "override, expected",
        [
            ("num.partitions=0", "--set: num.partitions=0 is refused: it must be at least 1"),
            ("num.partitions=x", "--set: num.partitions=x is refused: it must be a whole number"),
            ("num.partitions=", "--set: num.partitions= is refused: it must be a whole number"),
            (
                "num.partitions=1_0",
                "--set: num.partitions=1_0 is refused: it must be a whole number",
            ),
            (
                "num.partitions=2147483648",
                "--set: num.partitions=2147483648 is refused: it must lie between -2147483648 and"
                " 2147483647",
            ),
            (
                "auto.create.topics.enable=yes",
                "--set: auto.create.topics.enable=yes is refused: it must be true or false",
            ),
            (
                "compression.type=brotli",
                "--set: compression.type=brotli is refused: it must be one of uncompressed, zstd,"
                " lz4, snappy, gzip, producer",
            ),
            (
                "compression.gzip.level=0",
                "--set: compression.gzip.level=0 is refused: it must be from 1 to 9 or -1",
            ),
            (
                "log.segmnt.bytes=1",
                "--set: log.segmnt.bytes is not a setting that klog or Kafka knows; did you mean"
                " log.segment.bytes?",
            ),
            (
                "qqqq=1",
                "--set: qqqq is not a setting that klog or Kafka knows; docs/configuration.md lists"
                " all",
            ),
            ("port=1", "--set: port is a setting that Kafka dropped: use listeners"),
            (
                "num.partitions",
                "--set num.partitions: expected name=value, as --set log.segment.bytes=1048576",
            ),
            (
                "log.retention.ms=0",
                "log.retention.ms (or its minutes or hours) is 0: it must be -1 (for ever) or at"
                " least 1",
            ),
            ("log.dirs= , ", "log.dirs is empty: name at least one directory"),
            (
                "max.connections.per.ip=0",
                "max.connections.per.ip=0 lets nobody in: name the addresses that may connect in"
                " max.connections.per.ip.overrides",
            ),
            (
                "max.connections.per.ip.overrides=a",
                "max.connections.per.ip.overrides: 'a' is not host:number",
            ),
        ],
    )
    def test_one_sentence_says_what_and_where(self, override: str, expected: str) -> None:
        assert problem(override) == expected

    def test_a_very_long_number_is_refused_and_not_converted(self) -> None:
        text = problem("num.partitions=" + "9" * 100_000)
        assert "must lie between" in text
        assert len(text) < 200

    def test_two_settings_that_do_not_fit(self) -> None:
        assert "both name this broker" in problem("broker.id=1", "node.id=2")
        assert "leaves no room" in problem("queued.max.request.bytes=10")
        assert "is above" in problem(
            "group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"
        )
        assert "names " in problem("log.dirs=a,./a")

    def test_all_that_is_wrong_is_named_at_once(self) -> None:
        lines = problem("num.partitions=x", "qqqq=1", "super.users=User:a").splitlines()
        assert [line.split("=")[0].split(" is ")[0] for line in lines] == [
            "--set: num.partitions",
            "--set: qqqq",
            "--set: super.users",
        ]

    def test_the_file_and_line_are_named(self, tmp_path: Path) -> None:
        file = tmp_path / "broker.properties"
        file.write_text("\nnum.partitions=-3\n")
        with pytest.raises(ConfigError, match=re.escape(f"{file}:2: num.partitions=-3 is refused")):
            BrokerConfig.load(file)


class TestNamesWithoutEffect:
    def test_one_warning_each_with_the_reason(self) -> None:
        config = load("num.io.threads=4", "listener.name.x.ssl.keystore.type=JKS")
        assert config.warnings == (
            "--set: num.io.threads has no effect here. One event loop serves all connections;"
            " queued.max.request.bytes limits the memory of large requests.",
            "--set: listener.name.x.ssl.keystore.type has no effect here. TLS, SASL and access"
            " control come with a later release.",
        )
        assert config.without_effect() == {
            "num.io.threads": "4",
            "listener.name.x.ssl.keystore.type": "JKS",
        }

    def test_nobody_can_read_one_by_mistake(self) -> None:
        with pytest.raises(KeyError):
            load("num.io.threads=4")["num.io.threads"]

    def test_a_secret_is_never_shown(self) -> None:
        config = load("ssl.key.password=hush", "listener.name.a.ssl.keystore.password=hush")
        assert "hush" not in repr(config.warnings) + repr(config.without_effect())
        assert is_secret_name("sasl.jaas.config")

    def test_of_the_cleaner_only_the_size_of_its_buffers(self) -> None:
        config = load("log.cleanup.policy=compact,delete", "log.cleaner.io.buffer.size=1")
        assert config.warnings == (
            "--set: log.cleaner.io.buffer.size has no effect here. The log cleaner reads and writes"
            " in pieces of a fixed size.",
        )


class TestStrictConfigs:
    def test_names_without_effect_refuse_the_start(self, tmp_path: Path) -> None:
        file = tmp_path / "broker.properties"
        file.write_text("num.io.threads=4\nstrict.configs=true\nlog.roll.ms=5\n")
        with pytest.raises(ConfigError) as refused:
            BrokerConfig.load(file, ["ssl.key.password=hush"])
        assert str(refused.value).splitlines() == [
            f"{file}:1: num.io.threads has no effect here. One event loop serves all connections;"
            " queued.max.request.bytes limits the memory of large requests. strict.configs=true"
            " refuses such settings: take it out.",
            "--set: ssl.key.password has no effect here. TLS, SASL and access control come with a"
            " later release. strict.configs=true refuses such settings: take it out.",
        ]

    def test_all_other_settings_are_taken(self) -> None:
        assert load("strict.configs=true", "log.roll.ms=5")["log.roll.ms"] == 5
        assert load("strict.configs=false", "num.io.threads=4").warnings != ()


class TestCleaner:
    def test_its_defaults_are_kafkas(self) -> None:
        assert cleaner_settings(load()) == CleanerSettings()

    def test_what_is_set_reaches_it(self) -> None:
        config = load(
            "log.cleaner.enable=false",
            "log.cleaner.threads=2",
            "log.cleaner.dedupe.buffer.size=4194304",
            "log.cleaner.io.buffer.load.factor=0.5",
            "log.cleaner.io.max.bytes.per.second=1e6",
            "log.cleaner.backoff.ms=7",
        )
        assert config.warnings == ()
        assert cleaner_settings(config) == CleanerSettings(
            enabled=False,
            threads=2,
            dedupe_buffer_bytes=4 << 20,
            load_factor=0.5,
            max_bytes_per_second=1e6,
            backoff_ms=7,
        )

    @pytest.mark.parametrize("text", ["-1", "Infinity", "1.7976931348623157E308"])
    def test_rates_that_are_no_limit(self, text: str) -> None:
        config = load(f"log.cleaner.io.max.bytes.per.second={text}")
        assert cleaner_settings(config).max_bytes_per_second == math.inf

    @pytest.mark.parametrize(
        "overrides, expected",
        [
            (
                ["log.cleaner.dedupe.buffer.size=1048576"],
                "log.cleaner.dedupe.buffer.size=1048576 is refused: it must be at least 1048577,"
                " which is more than 1 MiB for each of log.cleaner.threads=1",
            ),
            (
                ["log.cleaner.dedupe.buffer.size=2097153", "log.cleaner.threads=2"],
                "log.cleaner.dedupe.buffer.size=2097153 is refused: it must be at least 2097154,"
                " which is more than 1 MiB for each of log.cleaner.threads=2",
            ),
            (
                ["log.cleaner.dedupe.buffer.size=-1", "log.cleaner.enable=false"],
                "log.cleaner.dedupe.buffer.size=-1 is refused: it must be at least 1048577,"
                " which is more than 1 MiB for each of log.cleaner.threads=1",
            ),
            (
                ["log.cleaner.threads=0"],
                "log.cleaner.threads=0 is refused: it must be at least 1; log.cleaner.enable=false"
                " turns the cleaner off",
            ),
            (
                ["log.cleaner.io.buffer.load.factor=1.5"],
                "log.cleaner.io.buffer.load.factor=1.5 is refused: it must be above 0 and at most"
                " 1",
            ),
            (
                ["log.cleaner.io.buffer.load.factor=0"],
                "log.cleaner.io.buffer.load.factor=0.0 is refused: it must be above 0 and at most"
                " 1",
            ),
            (
                ["log.cleaner.io.max.bytes.per.second=0"],
                "log.cleaner.io.max.bytes.per.second=0 is refused, since nothing would ever be"
                " compacted: it must be above 0, or -1 for no limit",
            ),
            (
                ["log.cleaner.min.compaction.lag.ms=5", "log.cleaner.max.compaction.lag.ms=4"],
                "log.cleaner.min.compaction.lag.ms=5 is above log.cleaner.max.compaction.lag.ms=4",
            ),
            (
                ["log.cleaner.min.cleanable.ratio=1.1"],
                "--set: log.cleaner.min.cleanable.ratio=1.1 is refused: it must be from 0 to 1",
            ),
        ],
    )
    def test_what_it_cannot_work_with_is_refused(self, overrides: list[str], expected: str) -> None:
        assert problem(*overrides) == expected

    def test_the_least_memory_is_enough(self) -> None:
        config = load("log.cleaner.dedupe.buffer.size=2097154", "log.cleaner.threads=2")
        assert config["log.cleaner.dedupe.buffer.size"] == 2 * (2**20 + 1)


def test_a_secrets_texts_are_stars() -> None:
    secret = parse_value("x", SettingType.PASSWORD, " hush ")
    assert isinstance(secret, Password)
    assert (repr(secret), str(secret), f"{secret}") == ("***", "***", "***")
    assert secret.reveal() == "hush"
    assert secret == Password("hush") != Password("other")
    assert hash(secret) == hash(Password("hush"))
    assert render(secret) == "***"
    assert Setting("x", SettingType.PASSWORD, None, "A secret.").is_secret


@pytest.mark.parametrize(
    "kind, text, expected",
    [
        (SettingType.BOOLEAN, " TRUE ", True),
        (SettingType.INT, "+5", 5),
        (SettingType.SHORT, "-32768", -32768),
        (SettingType.LONG, str(2**63 - 1), 2**63 - 1),
        (SettingType.DOUBLE, "1e3", 1000.0),
        (SettingType.LIST, " a, b ,c", ("a", "b", "c")),
        (SettingType.LIST, "  ", ()),
        (SettingType.STRING, " a b ", "a b"),
        (SettingType.CLASS, "a.B", "a.B"),
    ],
)
def test_texts_become_values(kind: SettingType, text: str, expected: object) -> None:
    assert parse_value("x", kind, text) == expected


@pytest.mark.parametrize(
    "kind, text",
    [
        (SettingType.SHORT, "32768"),
        (SettingType.LONG, str(2**63)),
        (SettingType.INT, "0x1"),
        (SettingType.INT, "1.0"),
        (SettingType.INT, "²"),
        (SettingType.DOUBLE, "one"),
        (SettingType.DOUBLE, "nan"),
        (SettingType.DOUBLE, "1_0"),
        (SettingType.DOUBLE, "\u0661"),
    ],
)
def test_texts_that_are_no_values(kind: SettingType, text: str) -> None:
    with pytest.raises(ConfigError):
        parse_value("x", kind, text)


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.9, "0.9"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (1e-5, "1.0E-5"),
        (123456.75, "123456.75"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-2.5e20, "-2.5E20"),
        (sys.float_info.max, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert render(value) == text
    assert parse_value("x", SettingType.DOUBLE, text) == value


@given(st.floats(allow_nan=False))
def test_doubles_survive_the_way_through_text(number: float) -> None:
    assert parse_value("x", SettingType.DOUBLE, str(render(number))) == number


@given(st.integers(-(2**70), 2**70))
def test_numbers_survive_the_way_through_text_if_they_fit(number: int) -> None:
    fits = -(2**63) <= number < 2**63
    try:
        assert parse_value("x", SettingType.LONG, str(number)) == number
        assert fits
    except ConfigError:
        assert not fits


def test_bounds_with_a_value_outside_the_range() -> None:
    bounds = Between(1, 9, also=(-1,))
    assert [value for value in range(-3, 12) if bounds.problem(value) is None] == [
        -1,
        *range(1, 10),
    ]
