"""Java's Long.parseLong, Double.parseDouble and String.trim in Python.

Python's int() and float() differ: they accept ``1_000`` and more kinds of blanks, and they refuse
Java's ``0.5d``.
"""

import re

_BLANKS = "".join(map(chr, range(0x21)))
_MOST_DIGITS = 40
"""Most digits that are passed to int(), which is slow for long texts and refuses very long ones."""
_LAST_OF_TWO_BYTES = "\uffff"
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?[fd]?", re.ASCII | re.IGNORECASE)
_HEXADECIMAL = re.compile(
    r"[+-]?0x(?:[\da-f]+\.?[\da-f]*|\.[\da-f]+)p[+-]?\d+[fd]?", re.ASCII | re.IGNORECASE
)
_WORDS = re.compile(r"[+-]?(?:NaN|Infinity)")


def trim(text: str) -> str:
    """Remove all characters from U+0000 to U+0020 at both ends, like Java's String.trim."""
    return text.strip(_BLANKS)


def parse_integer(text: str) -> int:
    """Parse a whole number like Long.parseLong: an optional sign and decimal digits of any script.

    The caller checks the range of the result.

    :raises ValueError: for any other text
    :raises OverflowError: for more than 40 digits, even if the first ones are zeros
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or max(digits) > _LAST_OF_TWO_BYTES:
        raise ValueError(f"{text!r} is no whole number")
    if len(digits) > _MOST_DIGITS:
        raise OverflowError(f"found {len(digits)} digits, expected at most 40")
    return int(text)


def parse_double(text: str) -> float:
    """Parse a number like Double.parseDouble, including ``NaN`` and ``Infinity``.

    :raises ValueError: for any other text
    """
    text = trim(text)
    if _WORDS.fullmatch(text):
        return float(text)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(text):
        # Strip Java's type suffix (f or d) only after the exponent: before the exponent these
        # letters are hexadecimal digits.
        digits, exponent = re.split("[pP]", text)
        try:
            return float.fromhex(f"{digits}p{exponent.rstrip('fFdD')}")
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    raise ValueError(f"{text!r} is no number")
