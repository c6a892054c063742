"""Settings as DescribeConfigs and CreateTopics return them: value, source and synonyms."""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple

from klog_broker.config import (
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Origin,
    Setting,
    TopicConfig,
    render,
)
from klog_broker.config.setting_changes import row_of
from klog_broker.config.types import Value

# Settings for which Kafka lists no synonyms, although broker.id and node.id, and log.dirs and
# log.dir, stand for each other.
_WITHOUT_SYNONYMS = ("broker.id", "node.id", "log.dirs")


class ResourceType(IntEnum):
    """The kind of resource that has a setting; the numbers are those of Kafka's protocol."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """The source of a setting's value; the numbers are those of Kafka's protocol."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


# The source that a response names, by the layer that sets a broker's value.
_SOURCES = {
    Origin.THIS_BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    Origin.ALL_BROKERS: ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Origin.FILE: ConfigSource.STATIC_BROKER_CONFIG,
    Origin.COMMAND_LINE: ConfigSource.STATIC_BROKER_CONFIG,
}


class ConfigSynonym(NamedTuple):
    """One name and source of a setting's value, which applies if no earlier synonym is set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting of one resource (a topic or a broker). `synonyms` begins with the setting's own
    name (for a topic's setting without a value of the topic, with the broker's name for it). The
    list is empty, as in Kafka, if that name is not set and the broker's settings have no default
    for it."""

    setting: Setting
    value: str | None
    source: ConfigSource
    synonyms: list[ConfigSynonym]
    read_only: bool

    @property
    def documentation(self) -> str:
        """The setting's description, and the reason if the setting has no effect."""
        row = self.setting
        return f"{row.doc} No effect here: {row.effect}" if row.effect else row.doc


def topic_entries(config: TopicConfig, broker: BrokerConfig) -> list[ConfigEntry]:
    """Return all settings of a topic, sorted by name."""
    overrides = config.overrides
    entries = []
    for name, row in sorted(TOPIC_SETTINGS.items()):
        value = _shown(row, config.own_value(name))
        synonyms = []
        if name in overrides:
            synonyms.append(ConfigSynonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        if row.broker_name in SETTINGS:
            synonyms += _broker_synonyms(broker, SETTINGS[row.broker_name])
        entries.append(_entry(row, value, synonyms, read_only=False))
    return entries


def broker_entries(broker: BrokerConfig, asked: Collection[str] = ()) -> list[ConfigEntry]:
    """Return the settings of a broker, sorted by name.

    Settings without effect in klog are in the result only if they are set, or named in `asked`.
    """
    entries = []
    for name, row in SETTINGS.items():
        value = broker[name] if name in ("broker.id", "node.id") else broker.own_value(name)
        synonyms = _broker_synonyms(broker, row)
        entries.append(_entry(row, _shown(row, value), synonyms, read_only=not row.dynamic))
    unused = broker.without_effect()
    for name in {**unused, **dict.fromkeys(asked)}.keys() - SETTINGS.keys():
        unused_row = row_of(name)
        if unused_row is None:
            continue
        synonyms = []
        if name in unused:
            source = _SOURCES[broker.source_of(name).origin]
            synonyms.append(ConfigSynonym(name, _text(unused_row, unused[name]), source))
        value = synonyms[0].value if synonyms else None
        entries.append(_entry(unused_row, value, synonyms, read_only=not unused_row.dynamic))
    return sorted(entries, key=lambda entry: entry.setting.name)


def all_brokers_entries(given: Mapping[str, str]) -> list[ConfigEntry]:
    """Return the dynamic settings that all brokers share, sorted by name. `given` has the text of
    each setting's value; settings unknown to klog are left out."""
    entries = []
    for name, text in sorted(given.items()):
        row = row_of(name)
        if row is not None:
            value = _text(row, text)
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            entries.append(
                _entry(row, value, [ConfigSynonym(name, value, source)], read_only=False)
            )
    return entries


def _entry(
    row: Setting, value: str | None, synonyms: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(row, value, source, synonyms, read_only)


def _broker_synonyms(broker: BrokerConfig, row: Setting) -> list[ConfigSynonym]:
    """Return the synonyms of a broker's setting: the values that the setting's own name and its
    fallback names have, such as log.retention.hours for log.retention.ms.

    A name has one synonym for each source that sets it (such as the properties file), and one for
    its default. Synonyms of set values come first, sorted by source, and under the same source by
    unit (ms before hours); synonyms of defaults follow. The list begins with the first synonym of
    the setting's own name, as in Kafka; synonyms of fallback names before that one are left out. So
    the list is empty if the own name is not set and has no default, even if a fallback name is set.
    """
    names = [row.name]
    if row.name not in _WITHOUT_SYNONYMS:
        names += [name for name, _ in row.fallbacks]
    given = [
        ConfigSynonym(name, _shown(SETTINGS[name], value), _SOURCES[origin])
        for name in names
        for origin, value in broker.given_values(name)
    ]
    found = sorted(given, key=lambda synonym: synonym.source)
    found += [
        ConfigSynonym(
            name, _shown(SETTINGS[name], SETTINGS[name].default), ConfigSource.DEFAULT_CONFIG
        )
        for name in names
        if SETTINGS[name].default is not None
    ]
    own = next((index for index, each in enumerate(found) if each.name == row.name), len(found))
    return found[own:]


def _text(row: Setting, text: str) -> str | None:
    return None if row.is_secret else text.strip()


def _shown(row: Setting, value: Value) -> str | None:
    return None if row.is_secret else render(value)
