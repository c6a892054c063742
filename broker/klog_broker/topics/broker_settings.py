"""Checks settings that are given to brokers while they run, and tells which of them count."""

from collections.abc import Mapping

from klog_broker.config import SETTINGS, BrokerConfig, ConfigError
from klog_broker.config.changing import (
    InForce,
    UnknownSetting,
    WithoutEffect,
    check_change,
    in_force,
)
from klog_broker.metadata.image import ALL_BROKERS
from klog_broker.topics.planning import list_setting
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId

MAX_SETTINGS_PER_BROKER = 1000
"""How many settings one broker, or all of them, can be given: Kafka has some 400, but for those of
listeners anybody can make up names."""

Given = Mapping[str, Mapping[str, str]]
"""The texts that are given to brokers, as MetadataImage.broker_configs has them."""


def given_to(start: BrokerConfig, given: Given, broker_id: BrokerId) -> InForce:
    """The settings of a broker to which these texts are given, above those of its start."""
    return in_force(start, given.get(ALL_BROKERS, {}), given.get(str(broker_id), {}))


def checked_broker_configs(
    config: BrokerConfig, broker_id: BrokerId, given: Given, name: str, texts: Mapping[str, str]
) -> Mapping[str, str]:
    """``texts``, if they can replace those of ``name``: a broker's id, or ALL_BROKERS. BrokerError
    says why not. What is stored already and does not count, or does not change, is let pass."""
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
    """The items of a setting to which ``name`` adds, or from which it takes: its own, or else what
    it would have without. BrokerError if it is no list."""
    list_setting(setting, SETTINGS)
    own = given.get(name, {}).get(setting)
    if own is not None:
        return list_items(own)
    above = given if name != ALL_BROKERS else {}
    rest = {key: texts for key, texts in above.items() if key != name}
    items: tuple[str, ...] = given_to(config, rest, broker_id).config[setting]
    return items


def list_items(text: str) -> tuple[str, ...]:
    """The items of a list's text."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _check_threads(before: int, after: int) -> None:
    """As in Kafka the number of threads does not change much at once."""
    if not before / 2 <= after <= before * 2:
        text = (
            f"log.cleaner.threads={after} is refused: there are {before} now, and while the broker"
            f" runs it must be from {(before + 1) // 2} to {before * 2}"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
