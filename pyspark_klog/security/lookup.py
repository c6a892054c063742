"""The values that settings are read from: `ClientSettings`, or a login module's options."""

from collections.abc import Mapping
from typing import Protocol

from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.setting_types import Value

_ROWS = {row.name: row for row in SECURITY}


class Lookup(Protocol):
    """Values by Kafka's names, with Kafka's defaults."""

    def __getitem__(self, name: str) -> Value:
        """The value that was given, or the default."""

    def is_given(self, name: str) -> bool:
        """Whether the user gave a value."""


class LoginOptions:
    """Options of a login module, read as settings: those of the token endpoint's TLS."""

    def __init__(self, options: Mapping[str, Secret]) -> None:
        self._options = options

    def __getitem__(self, name: str) -> Value:
        value, row = self._options.get(name), _ROWS[name]
        if value is None:
            return row.default
        return value if row.kind is Secret else value.reveal().strip()

    def is_given(self, name: str) -> bool:
        """Whether the option is there."""
        return name in self._options


def text_of(lookup: Lookup, name: str) -> str | None:
    """The value of a text's setting; None if it is not given, or empty."""
    value = lookup[name]
    return value if isinstance(value, str) and value else None


def secret_of(lookup: Lookup, name: str) -> Secret | None:
    """The value of a secret setting; None if it is not given, or empty."""
    value = lookup[name]
    return value if isinstance(value, Secret) and value else None


def number_of(lookup: Lookup, name: str) -> int:
    """The value of a number's setting."""
    value = lookup[name]
    assert isinstance(value, int)
    return value
