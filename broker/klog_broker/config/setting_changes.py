"""Changes of a running broker's settings: which are allowed, and the values that result.

A setting can be changed for one broker, or for all brokers (Kafka's cluster-wide default). A change
for one broker overrides a change for all brokers, and both override the configuration file. A
setting that exists in several units can be changed only in the finest unit, as in Kafka 4.3.1. A
setting without effect in klog can be changed wherever Kafka allows its change, unless the setting
is a secret or strict.configs is true.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klog_broker.config.broker_config import STRICT, BrokerConfig, Origin, unknown_name
from klog_broker.config.changes_without_effect import (
    CHANGEABLE_FOR_ALL,
    CHANGEABLE_FOR_ONE,
    CHANGEABLE_LISTENER_SETTINGS,
)
from klog_broker.config.refused_settings import REFUSED, REFUSED_UNLESS
from klog_broker.config.setting_rows import SETTINGS
from klog_broker.config.settings_without_effect import (
    REMOVED,
    is_secret_name,
    reason_without_effect,
)
from klog_broker.config.types import ConfigError, Setting, SettingType


class UnknownSetting(ConfigError):
    """Neither Kafka nor klog has a broker setting of that name."""


class WithoutEffect(ConfigError):
    """The setting has no effect in klog, and strict.configs=true refuses such settings."""


_LISTENER = "listener.name."


def row_of(name: str) -> Setting | None:
    """Return the declaration of a setting; None for an unknown name, and for a setting that klog
    refuses with any value or that Kafka dropped.

    Kafka's settings without effect in klog are not declared; for such a name, this function makes a
    declaration.
    """
    if name in SETTINGS:
        return SETTINGS[name]
    reason = reason_without_effect(name)
    if reason is None:
        return None
    return Setting(
        name,
        SettingType.PASSWORD if is_secret_name(name) else SettingType.UNKNOWN,
        None,
        "A setting of Kafka's.",
        dynamic=name in CHANGEABLE_FOR_ALL
        or name in CHANGEABLE_FOR_ONE
        or name.startswith(_LISTENER),
        effect=reason,
    )


def check_change(start: BrokerConfig, name: str, text: str, *, all_brokers: bool) -> None:
    """Raise ConfigError unless the setting can be changed to this text while the broker runs."""
    row = row_of(name)
    if row is None and name not in REFUSED and name not in REFUSED_UNLESS and name not in REMOVED:
        raise UnknownSetting(unknown_name(name))
    if row is None or not row.dynamic:
        raise ConfigError(
            f"{name} cannot be changed while the broker runs: if klog supports this setting, change"
            " the broker's configuration file and restart the broker"
        )
    if all_brokers and _is_for_one(name):
        raise ConfigError(f"{name} can be changed only for one broker: name the broker's id")
    if row.is_secret:
        # A stored secret could be read in the metadata file, and in the output of tools that print
        # the file.
        raise ConfigError(f"{name} is a secret that klog does not use, so klog does not store it")
    if row.effect and start["strict.configs"]:
        raise WithoutEffect(f"{name} has no effect here. {row.effect} {STRICT}")
    row.parse(text)


def _is_for_one(name: str) -> bool:
    if name.startswith(_LISTENER):
        _, _, rest = name.removeprefix(_LISTENER).partition(".")
        return rest not in CHANGEABLE_LISTENER_SETTINGS
    return name in CHANGEABLE_FOR_ONE


class EffectiveSettings(NamedTuple):
    """The settings after the changes; ``problems`` has a sentence for each change that is ignored,
    because it is invalid."""

    config: BrokerConfig
    problems: tuple[str, ...]


def effective_settings(
    start: BrokerConfig, all_brokers: Mapping[str, str], this_broker: Mapping[str, str]
) -> EffectiveSettings:
    """Return the broker's settings: `start`, changed by the valid changes of the two mappings.
    Invalid changes are ignored, and the result has a sentence about each.

    `all_brokers` and `this_broker` map the name of each changed setting to its new text.
    """
    problems: list[str] = []
    usable: list[_Text] = []
    for each in _texts(all_brokers, this_broker):
        try:
            check_change(start, each.name, each.text, all_brokers=each.for_all)
        except ConfigError as error:
            problems.append(each.problem(error))
        else:
            usable.append(each)
    try:
        return EffectiveSettings(_apply_changes(start, usable), tuple(problems))
    except ConfigError:
        config, apart = _one_by_one(start, usable)
        return EffectiveSettings(config, (*problems, *apart))


class _Text(NamedTuple):
    name: str
    text: str
    for_all: bool

    def problem(self, error: ConfigError) -> str:
        origin = Origin.ALL_BROKERS if self.for_all else Origin.THIS_BROKER
        return f"{self.name}, {origin.value}: {error}"


def _texts(all_brokers: Mapping[str, str], this_broker: Mapping[str, str]) -> Iterator[_Text]:
    for texts, for_all in ((all_brokers, True), (this_broker, False)):
        for name, text in sorted(texts.items()):
            yield _Text(name, text, for_all)


def _apply_changes(start: BrokerConfig, texts: list[_Text]) -> BrokerConfig:
    return start.with_changes(
        {each.name: each.text for each in texts if each.for_all},
        {each.name: each.text for each in texts if not each.for_all},
    )


def _one_by_one(start: BrokerConfig, left: list[_Text]) -> tuple[BrokerConfig, list[str]]:
    """Apply the changes `left` one after the other, each only if the settings stay valid.

    Returns the settings, and a sentence for each change that was not applied. A change may be valid
    only after another one. So the refused changes are tried again in rounds, until a round applies
    none.
    """
    config, taken = _apply_changes(start, []), list[_Text]()
    while True:
        refused: list[_Text] = []
        problems: list[str] = []
        for each in left:
            try:
                config = _apply_changes(start, [*taken, each])
            except ConfigError as error:
                refused.append(each)
                problems.append(each.problem(error))
            else:
                taken.append(each)
        if len(refused) == len(left):
            return config, problems
        left = refused
