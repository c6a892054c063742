"""The kinds of values that options have. Pure.

Each kind has ``parse(name, text)``, which refuses a wrong value with one sentence, and ``str()``,
the values in words: error messages and docs/options.md share them. ``name`` is the option's name.
"""

import re
from typing import NamedTuple, Protocol

from pyspark_klog.java_text import parse_integer
from pyspark_klog.spark.errors import OptionError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

_DURATION = re.compile(r"([0-9]+)([a-z]*)")
_UNITS_US = {
    "us": 1,
    "": 1_000,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Spark's units of time, in microseconds; a bare number counts milliseconds."""


class Kind(Protocol):
    """The kind of an option's values."""

    def parse(self, name: str, text: str) -> object:
        """The value that ``text`` stands for.

        :raises OptionError: if ``text`` is not a value of this kind
        """


class Choice(NamedTuple):
    """A word out of ``words``, which are in lower case; users may write the word in any case."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"`{word}`" for word in self.words)

    def parse(self, name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in self.words:
            raise OptionError(f"option {name} is {text!r}; expected {' or '.join(self.words)}")
        return word


class Flag:
    """The value true or false; users may write it in upper or lower case."""

    _WORDS = Choice(("true", "false"))

    def __str__(self) -> str:
        return str(self._WORDS)

    def parse(self, name: str, text: str) -> bool:
        return self._WORDS.parse(name, text) == "true"


class WholeNumber(NamedTuple):
    """A whole number between two inclusive bounds."""

    low: int
    high: int = LONG_MAX

    def __str__(self) -> str:
        upper = "on" if self.high == LONG_MAX else f"to {self.high}"
        return f"a whole number from {self.low} {upper}"

    def parse(self, name: str, text: str) -> int:
        try:
            number = parse_integer(text.strip())
        except (ValueError, OverflowError):
            number = self.low - 1
        if not self.low <= number <= self.high:
            raise OptionError(f"option {name} is {text!r}; expected {self}")
        return number


class Words(NamedTuple):
    """Some words of ``known``, separated by commas, in any case; `parse` keeps the user's order."""

    known: tuple[str, ...]

    def __str__(self) -> str:
        return f"some of {', '.join(self.known)}, each at most once"

    def parse(self, name: str, text: str) -> tuple[str, ...]:
        by_key = {word.lower(): word for word in self.known}
        words = tuple(by_key.get(word.strip().lower(), "") for word in text.split(","))
        if not all(words) or len(set(words)) != len(words):
            raise OptionError(f"option {name} is {text!r}; expected {self}")
        return words


class Duration:
    """A duration in milliseconds, given as in Spark's configuration."""

    def __str__(self) -> str:
        units = ", ".join(filter(None, _UNITS_US))
        return (
            "a whole number and a unit, as in 15m, 90s or 1h "
            f"({units}; a number alone is milliseconds)"
        )

    def parse(self, name: str, text: str) -> int:
        found = _DURATION.fullmatch(text.strip().lower())
        unit_us = _UNITS_US.get(found[2]) if found else None
        duration_ms = int(found[1]) * unit_us // 1_000 if found and unit_us is not None else -1
        if not 0 <= duration_ms <= LONG_MAX:
            raise OptionError(f"option {name} is {text!r}; expected {self}")
        return duration_ms


class Timestamp:
    """A time in milliseconds since 1970."""

    def __str__(self) -> str:
        return "milliseconds since 1970, as in 1700000000000"

    def parse(self, name: str, text: str) -> int:
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit()) or int(digits) > LONG_MAX:
            raise OptionError(f"option {name} is {text!r}; expected {self}")
        return int(digits)


class Text(NamedTuple):
    """A text that is not empty; white space around it is removed."""

    meaning: str
    """The thing that the text names, such as ``the name of a topic``."""

    def __str__(self) -> str:
        return self.meaning

    def parse(self, name: str, text: str) -> str:
        if not text.strip():
            raise OptionError(f"option {name} is empty; expected {self}")
        return text.strip()


class IdPart(NamedTuple):
    """A text that becomes a part of transactional ids; white space around it is removed."""

    may_have_dots: bool = False

    def __str__(self) -> str:
        dot = ", '.'" if self.may_have_dots else ""
        return f"1 to 100 letters of a to z, A to Z, digits, '_' and '-'{dot}"

    def parse(self, name: str, text: str) -> str:
        dot = "." if self.may_have_dots else ""
        if re.fullmatch(f"[A-Za-z0-9{dot}_-]{{1,100}}", text.strip()) is None:
            raise OptionError(
                f"option {name} is {text!r}; expected {self}: it becomes a part of transactional "
                "ids"
            )
        return text.strip()
