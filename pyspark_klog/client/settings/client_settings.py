"""The settings of one client: Kafka's names, with checked and typed values."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.settings.partitioners import check_partitioner
from pyspark_klog.client.settings.setting_rows import SETTINGS, ClientSetting, Effect, Value
from pyspark_klog.java_text import parse_integer, trim
from pyspark_klog.security.secret import Secret

if TYPE_CHECKING:
    from pyspark_klog.security.config import SecurityConfig

_log = logging.getLogger(__name__)
_warned: set[str] = set()

NoteOnUnknown = Callable[[str], str | None]
"""Gets the name of a setting that Kafka's clients do not have. Returns advice on it, as a clause
for the warning that the setting has no effect, or None if there is no advice on this name."""


class ClientSettings:
    """Checked settings. Objects with equal values are equal and hash alike, so they can be keys of
    a cache; the prefix and settings without effect do not count.

    :raises SettingError: for a name that Kafka's clients don't have (but see ``note_on_unknown``),
        for a value out of bounds, and for a setting that klog does not support
    """

    def __init__(
        self,
        given: Mapping[str, Value],
        *,
        prefix: str = "",
        note_on_unknown: NoteOnUnknown | None = None,
    ) -> None:
        """``prefix`` is put before names in messages (``kafka.`` for Spark's options).

        With ``note_on_unknown`` a name that Kafka's clients lack counts as a setting without
        effect, as in Java, unless ignoring it would change security or which records are read:
        then SettingError is raised. The constructor logs nothing about settings without effect;
        `warn_of_ignored` does.
        """
        self.prefix = prefix
        self._given: dict[str, Value] = {}
        self._ignored: list[tuple[str, str]] = []
        for name, value in given.items():
            row = SETTINGS.get(name)
            if row is None:
                self._take_unknown(name, given, note_on_unknown)
                continue
            if row.effect is Effect.LATER and note_on_unknown is not None:
                self._ignored.append((prefix + name, "klog does not use it for transactions"))
                continue
            if row.effect is Effect.LATER:
                raise SettingError(f"{prefix}{name} is not supported yet: {row.without}")
            if row.effect is Effect.NONE:
                self._ignored.append((prefix + name, row.without))
                continue
            self._given[name] = read_value(row, value, prefix)
        self.security: SecurityConfig | None = self._security(prefix)
        self._check(prefix)

    def _take_unknown(
        self, name: str, given: Mapping[str, Value], note: NoteOnUnknown | None
    ) -> None:
        from pyspark_klog.client.settings.unknown_settings import (
            ignored_text,
            refusal,
            unknown_text,
        )

        if note is None:
            raise SettingError(unknown_text(name, self.prefix))
        protocol = str(given.get("security.protocol", "PLAINTEXT")).strip().upper()
        refused = refusal(name, given.keys(), protocol, self.prefix)
        if refused is not None:
            raise SettingError(refused)
        reason = ignored_text(name, given.keys(), self.prefix, note(name))
        self._ignored.append((self.prefix + name, reason))

    def _security(self, prefix: str) -> "SecurityConfig | None":
        """How connections are secured; None for plaintext. Settings of TLS or SASL that have no
        effect with security.protocol are removed from the given values."""
        protocol = self.text("security.protocol")
        if not any(name.startswith(("ssl.", "sasl.")) for name in self._given) and (
            protocol == "PLAINTEXT"
        ):
            return None
        from pyspark_klog.security.config import has_no_effect, read_security

        for name in [name for name in self._given if has_no_effect(name, protocol)]:
            del self._given[name]
            self._ignored.append((prefix + name, f"{prefix}security.protocol is {protocol}"))
        return None if protocol == "PLAINTEXT" else read_security(self, prefix)

    def _check(self, prefix: str) -> None:
        if self["acks"] == "-1":
            self._given["acks"] = "all"
        if self["acks"] != "all" or self.number("max.in.flight.requests.per.connection") > 5:
            if self._given.get("enable.idempotence"):
                raise SettingError(
                    f"{prefix}enable.idempotence=true needs {prefix}acks=all and at most 5 in "
                    f"{prefix}max.in.flight.requests.per.connection: set these two, or leave out "
                    "enable.idempotence"
                )
            self._given["enable.idempotence"] = False
        if self["partitioner.class"] is not None:
            check_partitioner(self.text("partitioner.class"), prefix)
        if self["compression.gzip.level"] == 0:
            raise SettingError(f"{prefix}compression.gzip.level is 0; expected -1, or 1 to 9")
        if self.number("request.timeout.ms") > self.number("delivery.timeout.ms"):
            if not self.is_given("delivery.timeout.ms"):
                # Raise the default of delivery.timeout.ms to request.timeout.ms, like Kafka's
                # producer. Readers do not use delivery.timeout.ms.
                self._given["delivery.timeout.ms"] = self["request.timeout.ms"]
                return
            raise SettingError(
                f"{prefix}delivery.timeout.ms is {self['delivery.timeout.ms']}; expected at least "
                f"{prefix}request.timeout.ms, {self['request.timeout.ms']}"
            )

    def __getitem__(self, name: str) -> Value:
        """The typed value of setting ``name``: the user's, else one that follows from the user's
        other settings, else the default. The value is a `Secret` if it must not be shown."""
        if name in self._given:
            return self._given[name]
        return SETTINGS[name].default

    def warn_of_ignored(self, *, once_in_process: bool = True) -> None:
        """Warn of each setting without effect: once in a process, or at each call."""
        for name, reason in self._ignored:
            if name not in _warned or not once_in_process:
                _warned.add(name)
                _log.warning("setting=%s is accepted without effect: %s", name, reason)

    @property
    def ignored_names(self) -> frozenset[str]:
        """The names of the settings that were given and have no effect, with the prefix (``kafka.``
        for Spark's options)."""
        return frozenset(name for name, _ in self._ignored)

    def is_given(self, name: str) -> bool:
        """Whether the user set the value, or it follows from the user's other settings; otherwise
        the default holds."""
        return name in self._given

    def number(self, name: str) -> int:
        """The value of a setting whose type is a whole number."""
        value = self[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        """The value of a setting whose type is text."""
        value = self[name]
        assert isinstance(value, str)
        return value

    def flag(self, name: str) -> bool:
        """The value of a setting that is true or false."""
        value = self[name]
        assert isinstance(value, bool)
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSettings) and self._given == other._given

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __repr__(self) -> str:
        return f"ClientSettings({self._given!r})"


def read_value(row: ClientSetting, value: Value, prefix: str = "") -> Value:
    """The typed value of a setting. Text is read as Kafka reads it, but the letters of a choice may
    have any case.

    :raises SettingError: naming the setting, what was given and what is expected
    """
    if row.kind is Secret:
        return value if isinstance(value, Secret) else Secret(trim(str(value)))
    text = trim(str(value))
    if row.kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise SettingError(f"{prefix}{row.name} is {value!r}; expected true or false")
    if row.kind is int:
        try:
            number = parse_integer(text)
        except (ValueError, OverflowError):
            number = row.high + 1
        if not row.low <= number <= row.high:
            raise SettingError(
                f"{prefix}{row.name} is {value!r}; expected a whole number, {row.low} to {row.high}"
            )
        return number
    if row.choices and text not in row.choices:
        wanted = next((c for c in row.choices if c.lower() == text.lower()), None)
        if wanted is None:
            instead = row.without or "expected one of " + ", ".join(row.choices)
            raise SettingError(f"{prefix}{row.name} is {value!r}; {instead}")
        return wanted
    return text
