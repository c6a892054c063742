"""Look up the values of settings, in the client's settings (`ClientSettings`) or in the options of
a login module of ``sasl.jaas.config``."""

from collections.abc import Mapping
from typing import Protocol

from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.setting_types import Value

_ROWS = {row.name: row for row in SECURITY}


class Lookup(Protocol):
    """Returns the values of settings by Kafka's names; a setting that the user did not give has the
    default in setting_rows.py."""

    def __getitem__(self, name: str) -> Value:
        """Return the value that the user gave for the setting ``name``, or else its default."""

    def is_given(self, name: str) -> bool:
        """Return whether the user gave a value for the setting ``name``."""


class LoginOptions:
    """A `Lookup` in the options of a login module instead of in the client's settings.

    The options may include ``ssl.`` settings for the connections to the token endpoint.
    """

    def __init__(self, options: Mapping[str, Secret]) -> None:
        self._options = options

    def __getitem__(self, name: str) -> Value:
        value, row = self._options.get(name), _ROWS[name]
        if value is None:
            return row.default
        return value if row.kind is Secret else value.reveal().strip()

    def is_given(self, name: str) -> bool:
        """Return whether the login module has the option ``name``."""
        return name in self._options


def text_of(lookup: Lookup, name: str) -> str | None:
    """Return the value of a text setting, or its default; None for an empty text or no default."""
    value = lookup[name]
    return value if isinstance(value, str) and value else None


def secret_of(lookup: Lookup, name: str) -> Secret | None:
    """Return the value of a secret setting; None if the user gave none, or an empty text."""
    value = lookup[name]
    return value if isinstance(value, Secret) and value else None


def number_of(lookup: Lookup, name: str) -> int:
    """Return the value of a number setting, or its default."""
    value = lookup[name]
    assert isinstance(value, int)
    return value
