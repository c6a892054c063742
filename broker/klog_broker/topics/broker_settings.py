"""Check the dynamic settings of brokers, and find the settings that apply to a broker.

Dynamic settings are those that clients change while the broker runs.
"""

from collections.abc import Mapping

from klog_broker.config import SETTINGS, BrokerConfig, ConfigError
from klog_broker.config.setting_changes import (
    EffectiveSettings,
    UnknownSetting,
    WithoutEffect,
    check_change,
    effective_settings,
)
from klog_broker.metadata.image import ALL_BROKERS
from klog_broker.topics.planning import list_setting
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId

MAX_SETTINGS_PER_BROKER = 1000
"""The largest number of dynamic settings under one name: a broker's id, or ALL_BROKERS. Kafka has
about 400 settings, but clients can invent names of listener settings without a limit."""

Given = Mapping[str, Mapping[str, str]]
"""The dynamic settings of brokers, as texts: those of MetadataImage.broker_configs."""


def given_to(start: BrokerConfig, given: Given, broker_id: BrokerId) -> EffectiveSettings:
    """Return the settings of a broker: those from its file and command line (``start``), overridden
    by the valid dynamic settings of all brokers, and these by the broker's own valid ones."""
    return effective_settings(start, given.get(ALL_BROKERS, {}), given.get(str(broker_id), {}))


def checked_broker_configs(
    config: BrokerConfig, broker_id: BrokerId, given: Given, name: str, texts: Mapping[str, str]
) -> Mapping[str, str]:
    """Return ``texts`` if they can replace the dynamic settings of ``name``, or raise BrokerError.

    ``name`` is a broker's id or ALL_BROKERS. ``texts`` has the text of each new setting. If a text
    is the same as that of the stored setting, it is accepted, even if it is invalid. ``texts`` is
    also accepted in spite of problems that the stored settings already have.
    """
    if len(texts) > MAX_SETTINGS_PER_BROKER:
        text = f"a broker takes at most {MAX_SETTINGS_PER_BROKER} settings while it runs"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    stored = given.get(name, {})
    for setting, text in texts.items():
        if stored.get(setting) == text:
            continue
        try:
            check_change(config, setting, text, all_brokers=name == ALL_BROKERS)
        except (UnknownSetting, WithoutEffect) as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
        except ConfigError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
    before = given_to(config, given, broker_id)
    after = given_to(config, {**given, name: texts}, broker_id)
    problems = [each for each in after.problems if each not in before.problems]
    if problems:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "\n".join(problems))
    _check_threads(before.config["log.cleaner.threads"], after.config["log.cleaner.threads"])
    return texts


def list_of_broker(
    config: BrokerConfig, broker_id: BrokerId, given: Given, name: str, setting: str
) -> tuple[str, ...]:
    """Return the present items of the list ``setting`` of ``name``, a broker's id or ALL_BROKERS.

    Clients can add items to this list, or remove some. The items are those of the dynamic setting
    of ``name``; if ``name`` has no such setting, they are those of the value that applies to
    ``name``. BrokerError if the setting is not a list.
    """
    list_setting(setting, SETTINGS)
    own = given.get(name, {}).get(setting)
    if own is not None:
        return list_items(own)
    above = given if name != ALL_BROKERS else {}
    rest = {key: texts for key, texts in above.items() if key != name}
    items: tuple[str, ...] = given_to(config, rest, broker_id).config[setting]
    return items


def list_items(text: str) -> tuple[str, ...]:
    """Return the items in the text of a list setting, without empty ones."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _check_threads(before: int, after: int) -> None:
    """Raise BrokerError if a change more than doubles the number of cleaner threads, or lowers it
    below half of the present number (rounded down).

    Kafka has the same limits.
    """
    if not before // 2 <= after <= before * 2:
        text = (
            f"log.cleaner.threads={after} is refused: there are {before} now, and while the broker"
            f" runs it must be from {max(before // 2, 1)} to {before * 2}"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
