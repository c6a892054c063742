"""The printed pages are complete and current, and the code reads each setting on them."""

import re
from pathlib import Path

import klog_broker
from klog_broker.config import SETTINGS, TOPIC_SETTINGS, BrokerConfig
from klog_broker.config.refused_settings import REFUSED, REFUSED_UNLESS
from klog_broker.config.settings_without_effect import REASONS
from tools.docs import configuration as config_docs
from tools.docs.kafka4_settings import BROKER_CHANGES, TOPIC_CHANGES


def test_the_page_names_every_setting() -> None:
    page = config_docs.configuration_page()
    for name in (*SETTINGS, *TOPIC_SETTINGS, *REASONS, *REFUSED, *REFUSED_UNLESS):
        assert f"`{name}`" in page, name


def test_the_changes_of_kafka_4_are_about_settings_that_exist() -> None:
    assert set(BROKER_CHANGES) <= set(SETTINGS)
    assert set(TOPIC_CHANGES) <= set(TOPIC_SETTINGS)


def test_server_properties_changes_nothing() -> None:
    assert dict(BrokerConfig.load(text=config_docs.server_properties())) == dict(
        BrokerConfig.load()
    )


def test_server_properties_with_all_lines_taken_in_is_the_defaults() -> None:
    lines = config_docs.server_properties().splitlines()
    settings = [line[1:] for line in lines if line[1:].partition("=")[0] in SETTINGS]
    assert len(settings) == len(SETTINGS)
    given = [line for line in settings if not line.endswith("=")]
    config = BrokerConfig.load(text="\n".join(given))
    assert dict(config) == dict(BrokerConfig.load())
    assert all(str(config.source_of(line.partition("=")[0])) != "default" for line in given)


def _names_in_use() -> set[str]:
    """Return the settings that the broker's code reads by name, outside of the settings' tables."""
    package = Path(klog_broker.__file__).parent
    tables = {
        package / "config" / f"{name}.py"
        for name in (
            *("rows", "cleaner_rows", "transaction_rows", "topic_rows"),
            *("ignored", "ignored_changes"),
        )
    }
    sources = [path.read_text() for path in package.rglob("*.py") if path not in tables]
    return set(re.findall(r'"([a-z]+(?:\.[a-z0-9]+)*)"', "\n".join(sources)))


# Read through names that are put together.
_BY_PATTERN = {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")} | {
    f"message.timestamp.{side}.max.ms" for side in ("before", "after", "difference")
}


def test_a_setting_without_a_note_is_one_that_the_broker_reads() -> None:
    used = _names_in_use() | _BY_PATTERN
    topics = {name for name, row in TOPIC_SETTINGS.items() if not row.effect}
    assert topics <= used
    used |= {str(TOPIC_SETTINGS[name].broker_name) for name in topics}
    used |= {name for row in SETTINGS.values() if row.name in used for name, _ in row.fallbacks}
    assert set(SETTINGS) <= used


def test_a_topic_setting_with_a_note_is_one_that_nobody_reads() -> None:
    noted = {name for name, row in TOPIC_SETTINGS.items() if row.effect}
    assert not (noted - {"remote.storage.enable"}) & _names_in_use()
