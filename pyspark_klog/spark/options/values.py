"""The values of options: parses text, and refuses each wrong value with one sentence. Pure.

``name`` is written as users write it; the keys of ``options`` are in lower case, as Spark's are.
"""

import re
from collections.abc import Mapping, Sequence

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


def read_flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """The value of an option that is true or false.

    :raises OptionError: for anything else
    """
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}; expected true or false")
    return text.strip().lower() == "true"


def read_number(
    options: Mapping[str, str], name: str, low: int, high: int = LONG_MAX
) -> int | None:
    """A whole number between two inclusive bounds; None if the option is not given.

    :raises OptionError: for anything else
    """
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        number = parse_integer(text.strip())
    except (ValueError, OverflowError):
        number = low - 1
    if not low <= number <= high:
        upper = "on" if high == LONG_MAX else f"to {high}"
        raise OptionError(f"option {name} is {text!r}; expected a whole number from {low} {upper}")
    return number


def read_number_or(
    options: Mapping[str, str], name: str, default: int, low: int, high: int = INT_MAX
) -> int:
    """A whole number between two inclusive bounds; ``default`` if the option is not given."""
    number = read_number(options, name, low, high)
    return default if number is None else number


def read_choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    """A value among ``choices``, in any case; the first choice is the default.

    :raises OptionError: for any other word
    """
    text = options.get(name.lower())
    if text is None:
        return choices[0]
    word = text.strip().lower()
    if word not in choices:
        raise OptionError(f"option {name} is {text!r}; expected {' or '.join(choices)}")
    return word


def read_words(
    options: Mapping[str, str], name: str, known: Sequence[str]
) -> tuple[str, ...] | None:
    """A list of some of ``known``, written in any case, in the order of the option; None if the
    option is not given.

    :raises OptionError: for an empty list, an unknown word, or a repeated word
    """
    text = options.get(name.lower())
    if text is None:
        return None
    by_key = {word.lower(): word for word in known}
    given = [word.strip() for word in text.split(",")]
    words = tuple(by_key.get(word.lower(), "") for word in given)
    if not all(words) or len(set(words)) != len(words):
        raise OptionError(
            f"option {name} is {text!r}; expected some of {', '.join(known)}, each at most once"
        )
    return words


def read_duration_ms(options: Mapping[str, str], name: str, default_ms: int) -> int:
    """A duration in ms, written as in Spark's configuration (15m, 90s, 1h, 100ms).

    :raises OptionError: for anything else
    """
    text = options.get(name.lower())
    if text is None:
        return default_ms
    found = _DURATION.fullmatch(text.strip().lower())
    unit_us = _UNITS_US.get(found[2]) if found else None
    duration_ms = int(found[1]) * unit_us // 1_000 if found and unit_us is not None else -1
    if not 0 <= duration_ms <= LONG_MAX:
        raise OptionError(
            f"option {name} is {text!r}; expected a whole number and a unit, as in 15m, 90s or 1h "
            "(us, ms, s, m, min, h, d; a number alone is milliseconds)"
        )
    return duration_ms
