"""Settings: their declarations (rows), types and bounds, and parsing of their values.

A row (`Setting`) is declared once. Parsing, checks, DescribeConfigs and the printed documentation
use it. Types and their numbers are those of Kafka's DescribeConfigs response (KIP-569).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from enum import IntEnum

from pyspark_klog.errors import KlogError
from pyspark_klog.java_text import parse_double, parse_integer, trim

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigError(KlogError):
    """A setting is unknown or invalid, or a configuration file cannot be read. The message says
    what is wrong."""


class Password:
    """A secret text: its repr and str are ``***``, so that no log or traceback shows the secret."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text, for the code that needs the secret."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Password, self._text))


Value = bool | int | float | str | tuple[str, ...] | Password | None


class SettingType(IntEnum):
    """The types of settings, with their numbers in DescribeConfigs responses.

    A setting of Kafka that klog does not declare, because it has no effect, has type UNKNOWN, or
    PASSWORD if its value is a secret.
    """

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BLANKS_OF_LISTS = " \t\n\v\f\r"
_INTEGER_BITS = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}


@dataclass(frozen=True)
class AtLeast:
    """Bounds of a number that must be at least `minimum`."""

    minimum: int

    def problem(self, value: Value) -> str | None:
        """Return the rule that `value` breaks ("must be ..."); None for a valid value."""
        if isinstance(value, int | float) and value >= self.minimum:
            return None
        return f"must be at least {self.minimum}"

    def __str__(self) -> str:
        return f"at least {self.minimum}"


@dataclass(frozen=True)
class Between:
    """Bounds of a number from `minimum` to `maximum`, both inclusive, or one of `also`."""

    minimum: float
    maximum: float
    also: tuple[int, ...] = ()

    def problem(self, value: Value) -> str | None:
        """Return the rule that `value` breaks ("must be ..."); None for a valid value."""
        if isinstance(value, int | float) and (
            self.minimum <= value <= self.maximum or value in self.also
        ):
            return None
        return f"must be {self}"

    def __str__(self) -> str:
        text = f"from {self.minimum} to {self.maximum}"
        return text + "".join(f" or {value}" for value in self.also)


@dataclass(frozen=True)
class OneOf:
    """Bounds of a text, or of each item of a list: the text or item must be in `allowed`."""

    allowed: tuple[str, ...]

    def problem(self, value: Value) -> str | None:
        """Return the rule that `value` breaks ("must be ..."); None for a valid value."""
        items = value if isinstance(value, tuple) else (value,)
        if all(item in self.allowed for item in items):
            return None
        return f"must be {self}"

    def __str__(self) -> str:
        return "one of " + ", ".join(self.allowed)


@dataclass(frozen=True)
class Checked:
    """Bounds that the function `check` checks: it returns the rule that a value breaks, or None.

    `form` describes valid values.
    """

    form: str
    check: Callable[[Value], str | None]

    def problem(self, value: Value) -> str | None:
        """Return the rule that `value` breaks ("must be ..."); None for a valid value."""
        return self.check(value)

    def __str__(self) -> str:
        return self.form


Bounds = AtLeast | Between | OneOf | Checked


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting. `default` is a typed value; None is Kafka's null (not set).

    `fallbacks` are the settings that give the value if this one is not set, such as the same time
    in a coarser unit, each with the factor that converts its unit. `effect` says why the setting
    has no effect in klog; an empty text means that the setting has an effect. `broker_name`, for a
    topic's setting, names the broker's setting that gives the default. `dynamic` says whether the
    setting can be changed while the broker runs.
    """

    name: str
    type: SettingType
    default: Value
    doc: str
    bounds: Bounds | None = None
    dynamic: bool = False
    effect: str = ""
    broker_name: str | None = None
    fallbacks: tuple[tuple[str, int], ...] = ()

    @property
    def is_secret(self) -> bool:
        """Whether the value is a secret that must never be shown."""
        return self.type is SettingType.PASSWORD

    def parse(self, text: str) -> Value:
        """Return the typed value of `text`; raise ConfigError if the value is invalid."""
        value = parse_value(self.name, self.type, text)
        problem = self.bounds.problem(value) if self.bounds is not None else None
        if problem is not None:
            raise ConfigError(f"{self.name}={text.strip()} is refused: it {problem}")
        return value


def parse_value(name: str, kind: SettingType, text: str) -> Value:
    """Parse a text as a value of `kind`, like Kafka: blanks around the text do not count."""
    text = trim(text)
    match kind:
        case SettingType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{name}={text} is refused: it must be true or false")
            return text.lower() == "true"
        case SettingType.INT | SettingType.SHORT | SettingType.LONG:
            return _parse_integer(name, kind, text)
        case SettingType.DOUBLE:
            return _parse_double(name, text)
        case SettingType.LIST:
            return _parse_list(text)
        case SettingType.PASSWORD:
            return Password(text)
        case _:
            return text


def _parse_list(text: str) -> tuple[str, ...]:
    """Return the items between commas, including empty items; an empty text has no items."""
    return tuple(item.strip(_BLANKS_OF_LISTS) for item in text.split(",")) if text else ()


def _parse_integer(name: str, kind: SettingType, text: str) -> int:
    limit = 1 << (_INTEGER_BITS[kind] - 1)
    try:
        value = parse_integer(text)
    except ValueError:
        raise ConfigError(f"{name}={text} is refused: it must be a whole number") from None
    except OverflowError:
        value = limit
    if not -limit <= value < limit:
        raise ConfigError(
            f"{name}={text[:40]} is refused: it must lie between {-limit} and {limit - 1}"
        )
    return value


def _parse_double(name: str, text: str) -> float:
    try:
        value = parse_double(text)
    except ValueError:
        value = math.nan
    # klog refuses NaN. Kafka accepts NaN for min.cleanable.dirty.ratio, and then its log cleaner
    # never cleans.
    if math.isnan(value):
        raise ConfigError(f"{name}={text} is refused: it must be a number")
    return value


def render(value: Value) -> str | None:
    """Return a value as Kafka prints it (DescribeConfigs, properties files); None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _render_double(value)
    return str(value)


def _render_double(value: float) -> str:
    """Return a number in the format of Java's Double.toString."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    power = exponent + len(others)
    return f"{'-' * sign}{first}.{''.join(others) or '0'}E{power}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name in `names` that is most similar to `name`; None if none is similar."""
    found = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None
