"""The configuration of a topic: its own settings, with the broker's settings as defaults."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from klog_broker.config.broker_config import BrokerConfig, limit_by_difference, unknown_name
from klog_broker.config.topic_rows import TOPIC_SETTINGS
from klog_broker.config.types import LONG_MAX, ConfigError, Setting, Value

_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_SAFE_REPLACEMENTS = {
    "cleanup.policy": {"cleanup.policy": "delete", **_FOREVER},
    "retention.ms": {"retention.ms": "-1"},
    "retention.bytes": {"retention.bytes": "-1"},
    "min.compaction.lag.ms": {"min.compaction.lag.ms": str(LONG_MAX)},
    "delete.retention.ms": {"delete.retention.ms": str(LONG_MAX)},
}
"""Replacements for settings whose stored text is invalid: by name, the settings to apply instead.
These settings delete nothing, because the invalid text may have been meant to keep data."""

_NAMED, _SHOWN = 10, 100
"""Limits of the message about unknown settings: the number of names, and the characters of each."""


class TopicConfig(Mapping[str, Any]):
    """All settings of one topic, checked; immutable.

    ``topic["segment.ms"]`` is the effective value. A timestamp limit
    (message.timestamp.before.max.ms or after.max.ms) of 2^63-1, the default, is replaced by the
    value of message.timestamp.difference.max.ms, as in Kafka 3.9.
    """

    def __init__(
        self,
        broker: BrokerConfig,
        overrides: Mapping[str, str],
        unused: Iterable[str] = (),
        problems: Iterable[str] = (),
    ) -> None:
        self.unused = frozenset(unused)
        """The names of stored settings that are ignored, because they are unknown or invalid."""
        self.problems = tuple(problems)
        """The reasons for `unused`: one sentence for each invalid setting, and one sentence for all
        unknown names."""
        self._broker = broker
        self._overrides = dict(overrides)
        own: dict[str, Value] = {}
        for name, text in overrides.items():
            row = TOPIC_SETTINGS.get(name)
            if row is None:
                raise ConfigError(unknown_name(name, TOPIC_SETTINGS, "topic setting"))
            own[name] = row.parse(text)
        self._values: dict[str, Value] = {
            name: own[name] if name in own else self.default_of(name) for name in TOPIC_SETTINGS
        }
        limit_by_difference(self._values, "message.timestamp")
        self._own = own
        self._check()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def overrides(self) -> dict[str, str]:
        """The texts of the topic's own settings by name.

        Unknown settings are omitted. Invalid settings are omitted or replaced
        (`_SAFE_REPLACEMENTS`).
        """
        return dict(self._overrides)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One text for each of the topic's own settings that has no effect in klog."""
        return tuple(
            f"topic setting {name} has no effect here. {TOPIC_SETTINGS[name].effect}"
            for name in self._overrides
            if TOPIC_SETTINGS[name].effect
        )

    def own_value(self, name: str) -> Value:
        """Return the value of `name` for DescribeConfigs: the topic's own value or the default.

        For a timestamp limit of 2^63-1, the default, ``topic[name]`` may differ: it then is the
        value of message.timestamp.difference.max.ms.
        """
        return self._own[name] if name in self._own else self.default_of(name)

    def default_of(self, name: str) -> Value:
        """Return the default of the topic setting `name`: the value of the broker's setting that
        the declaration of `name` in TOPIC_SETTINGS has as `broker_name`, or else its `default`."""
        return _default(self._broker, TOPIC_SETTINGS[name])

    def check_together(self) -> None:
        """Raise ConfigError if two settings contradict each other.

        Call only when settings are changed, as Kafka does: an existing topic is served even if the
        broker's settings contradict the topic's settings after a restart.
        """
        if self["min.compaction.lag.ms"] > self["max.compaction.lag.ms"]:
            shortest = self._shown("min.compaction.lag.ms")
            raise ConfigError(f"{shortest} is above {self._shown('max.compaction.lag.ms')}")

    def _check(self) -> None:
        if self["remote.storage.enable"]:
            raise ConfigError("remote.storage.enable=true is refused: klog has no tiered storage")

    def _shown(self, name: str) -> str:
        """Return ``name=value``, followed by the name of the broker's setting if the value is the
        broker's."""
        broker_name = "" if name in self._own else TOPIC_SETTINGS[name].broker_name
        return f"{name}={self[name]}" + (f" (the broker's {broker_name})" if broker_name else "")


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the settings of a topic with these overrides.

    Raises ConfigError for an unknown or invalid override.
    """
    return TopicConfig(broker, overrides)


def stored_topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the settings of a topic with these stored overrides, without the invalid ones.

    An override can be unknown or invalid, because another release or a tool has stored it without a
    check by a broker. ``TopicConfig.problems`` lists these overrides. Until they are changed, the
    topic keeps all data that they may have been meant to keep.
    """
    try:
        return TopicConfig(broker, overrides)
    except ConfigError:
        problems = []
        # Do not suggest a known name that is similar to an unknown one, because there may be very
        # many unknown names, and the search takes long.
        unknown = [name for name in overrides if name not in TOPIC_SETTINGS]
        if unknown:
            shown = ", ".join(name[:_SHOWN] for name in unknown[:_NAMED])
            more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
            problems.append(f"no topic settings that klog or Kafka knows: {shown}{more}")
        unused = set(unknown)
        usable: dict[str, str] = {}
        instead: dict[str, str] = {}
        for name in (each for each in overrides if each in TOPIC_SETTINGS):
            try:
                TopicConfig(broker, {name: overrides[name]})
            except ConfigError as error:
                problems.append(str(error))
                unused.add(name)
                instead.update(_SAFE_REPLACEMENTS.get(name, {}))
            else:
                usable[name] = overrides[name]
        return TopicConfig(broker, {**usable, **instead}, unused, problems)


def topic_setting(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> Any:
    """Return the value of one setting of a topic: its override, or the default.

    Faster than ``stored_topic_config``, because no other setting is parsed: for callers that need
    the value for thousands of partitions. An invalid override is ignored. Do not call for
    message.timestamp.before.max.ms and message.timestamp.after.max.ms, because their values depend
    on another setting.
    """
    row = TOPIC_SETTINGS[name]
    text = overrides.get(name)
    if text is not None:
        try:
            return row.parse(text)
        except ConfigError:
            pass
    return _default(broker, row)


def _default(broker: BrokerConfig, row: Setting) -> Value:
    if row.broker_name is not None and row.broker_name in broker:
        value: Value = broker[row.broker_name]
        return value
    return row.default


def topic_config_problem(broker: BrokerConfig, overrides: Mapping[str, str]) -> str | None:
    """Return what is wrong with a topic's overrides, in one sentence; None for valid ones."""
    try:
        TopicConfig(broker, overrides).check_together()
    except ConfigError as error:
        return str(error)
    return None
