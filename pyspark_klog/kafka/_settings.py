"""Read the settings of a client: what a program passes to Producer, Consumer or AdminClient."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.security.tls import make_context
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.settings.unknown_settings import find_similar_setting
from pyspark_klog.kafka._client_values import client_values
from pyspark_klog.kafka._security_rows import SECURITY
from pyspark_klog.kafka._security_settings import SecuritySettings
from pyspark_klog.kafka._setting_checks import adjust
from pyspark_klog.kafka._setting_rows import BY_NAME, TOPIC_SETTINGS
from pyspark_klog.kafka._setting_types import Kind, Row
from pyspark_klog.kafka._setting_values import invalid_argument, read_value
from pyspark_klog.security.setting_types import Value

ClientKind = Literal["producer", "consumer", "admin"]

_log = logging.getLogger(__name__)

_TOPIC_CONFIG = "default.topic.config"
_TOPIC_PREFIX = "topic."
_DIFFERING = {
    "partitioner": "partitioner is murmur2_random (consistent_random there)",
    "enable.idempotence": "enable.idempotence is true (false there)",
}
"""The defaults that differ from librdkafka's on purpose."""


@dataclass(frozen=True, eq=False)
class KafkaSettings:
    """The settings of one client, checked and typed; any name of a setting finds its value."""

    kind: ClientKind
    values: Mapping[str, object]
    """The values that the program gave, or that follow from them, by the names in the table."""
    callbacks: Mapping[str, Callable[..., Any]]
    """The callables that the program gave: error_cb, stats_cb, throttle_cb, oauth_cb, on_commit,
    on_delivery; and partitioner, if it is one."""
    client: Mapping[str, Value]
    """The values of `client_settings`, by Java's names."""
    client_settings: ClientSettings
    """The settings of connections, security, fetching and producing."""
    ignored: Mapping[str, str]
    """The settings without effect, by the name that the program used, with the reason."""

    def __getitem__(self, name: str) -> object:
        """Return the value of a setting, or its default."""
        row = BY_NAME[name]
        return self.values.get(row.name, row.default)

    def is_given(self, name: str) -> bool:
        """Whether the program gave the value, or it follows from values that the program gave."""
        return BY_NAME[name].name in self.values

    def number(self, name: str) -> int:
        """Return the value of a setting that is a whole number."""
        value = self[name]
        assert isinstance(value, int)
        return value

    def fraction(self, name: str) -> float:
        """Return the value of a setting that is a number with a fraction, such as linger.ms."""
        value = self[name]
        assert isinstance(value, float)
        return value

    def flag(self, name: str) -> bool:
        """Return the value of a setting that is true or false."""
        value = self[name]
        assert isinstance(value, bool)
        return value

    def text(self, name: str) -> str | None:
        """Return the value of a setting that is text; None for an empty text or no default."""
        value = self[name]
        assert isinstance(value, str | None)
        return value or None

    def warn(self) -> None:
        """Log a warning for each setting without effect."""
        for name, reason in self.ignored.items():
            _log.warning("setting=%s is accepted without effect: %s", name, reason)

    def log_differing_defaults(self) -> None:
        """Log one line that names the defaults in force that differ from librdkafka's."""
        differing = [text for name, text in _DIFFERING.items() if not self.is_given(name)]
        if self.kind == "producer" and differing:
            _log.info("defaults that differ from librdkafka's: %s", ", ".join(differing))


def read_settings(
    kind: ClientKind, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> KafkaSettings:
    """Return the settings that the constructor of a client got: a dict, keywords, or both, where
    the keywords count.

    :raises KafkaException: _INVALID_ARG for an unknown setting, a wrong value, a contradiction, or
        a certificate or key that cannot be used
    :raises TypeError, ValueError: where confluent_kafka raises them, for arguments that are no
        dict, for callbacks that cannot be called, and for a consumer without group.id
    """
    given = _merge(args, kwargs)
    if kind == "consumer" and "group.id" not in given:
        raise ValueError("Failed to create consumer: group.id must be set")
    values, names = _read_all(kind, given)
    ignored = {names[name]: reason for name, reason in _without_effect(kind, values)}
    _refuse_unsupported(kind, values, names)
    adjust(kind, values, names)
    security = SecuritySettings(values, names)
    ignored |= {names[name]: reason for name, reason in security.ignored.items()}
    client = client_values(kind, values) | security.client
    return KafkaSettings(
        kind,
        values,
        {
            name: value
            for name, value in values.items()
            if callable(value) and (BY_NAME[name].kind is Kind.CALLBACK or name == "partitioner")
        },
        client,
        _client_settings(client, names),
        ignored,
    )


def _merge(args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
    if len(args) > 1:
        raise TypeError("expected tuple containing single dict")
    if not args and not kwargs:
        raise TypeError("expected configuration dict")
    given: dict[object, object] = {}
    if args:
        if not isinstance(args[0], dict):
            raise TypeError("expected configuration dict")
        given.update(args[0])
    given.update(kwargs)
    of_topics = given.pop(_TOPIC_CONFIG, {})
    if not isinstance(of_topics, Mapping):
        raise invalid_argument(f"{_TOPIC_CONFIG} is {of_topics!r}; expected a dict")
    given.update(of_topics)
    return {str(name): value for name, value in given.items()}


def _read_all(
    kind: ClientKind, given: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, str]]:
    """Return the typed values by the names in the table, and the names that the program used."""
    values: dict[str, object] = {}
    names: dict[str, str] = {}
    for name, value in given.items():
        plain = _without_prefix(name)
        row = BY_NAME.get(plain)
        if row is None or _belongs_to_another(row, kind):
            raise _unknown(name)
        if plain != name and value == "inherit" and row.name == "compression.type":
            continue
        if kind == "producer" and row.name == "delivery.report.only.error":
            _check_bool(name, value)
        found = read_value(row, name, value)
        if found is None:
            continue
        if row.name in values and values[row.name] != found:
            raise invalid_argument(
                f"{names[row.name]} and {name} are names of one setting, and have different values;"
                " leave one of them out"
            )
        values[row.name] = found
        names.setdefault(row.name, name)
    return values, names


def _without_prefix(name: str) -> str:
    plain = name.removeprefix(_TOPIC_PREFIX)
    return plain if plain in TOPIC_SETTINGS else name


def _belongs_to_another(row: Row, kind: ClientKind) -> bool:
    """Whether the setting is a callback that a client of this kind does not have."""
    return row.kind is Kind.CALLBACK and kind not in row.clients


def _check_bool(name: str, value: object) -> None:
    # confluent_kafka reads this setting itself, and refuses the words that librdkafka takes.
    if not isinstance(value, bool):
        raise TypeError(f"Expected {name} to be bool type, not {type(value).__name__}")


def _unknown(name: str) -> Exception:
    meant = find_similar_setting(name, BY_NAME)
    hint = f"; did you mean {meant}?" if meant is not None and meant != name else ""
    return invalid_argument(f'No such configuration property: "{name}"{hint}')


def _without_effect(kind: ClientKind, values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name in values:
        row = BY_NAME[name]
        if kind not in row.clients:
            yield name, f"it is a setting of a {' or a '.join(row.clients)}"
        elif row.without and not row.is_refused and row not in SECURITY:
            yield name, row.without


def _refuse_unsupported(
    kind: ClientKind, values: Mapping[str, object], names: Mapping[str, str]
) -> None:
    for name, value in values.items():
        row = BY_NAME[name]
        # SecuritySettings refuses settings of TLS and SASL, if the protocol uses them.
        is_checked = row.is_refused and kind in row.clients and row not in SECURITY
        if is_checked and value != row.default:
            raise invalid_argument(f"{names[name]}={value} is not supported: {row.without}")


def _client_settings(client: Mapping[str, Value], names: Mapping[str, str]) -> ClientSettings:
    """Return the settings of the client, with TLS files that have been read once.

    :raises KafkaException: _INVALID_ARG, with the names that the program used
    """
    try:
        found = ClientSettings(client)
        if found.security and found.security.tls and found.security.tls.engine is None:
            make_context(found.security.tls)
    except SettingError as error:
        text = str(error)
        for name, used in names.items():
            text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", used, text)
        raise invalid_argument(text) from None
    return found
