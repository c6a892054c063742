"""Numbers in texts as Java's Integer, Long and Double read them, and Java's trim.

Python's int() and float() also take ``1_000`` and other blanks, and Java's ``0.5d`` they do not.
"""

import re

_BLANKS = "".join(map(chr, range(0x21)))
_MOST_DIGITS = 40
"""int() of a very long text is slow, and limited by Python."""
_LAST_OF_TWO_BYTES = "\uffff"
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?[fd]?", re.ASCII | re.IGNORECASE)
_HEXADECIMAL = re.compile(
    r"[+-]?0x(?:[\da-f]+\.?[\da-f]*|\.[\da-f]+)p[+-]?\d+[fd]?", re.ASCII | re.IGNORECASE
)
_WORDS = re.compile(r"[+-]?(?:NaN|Infinity)")


def trim(text: str) -> str:
    """The text without the characters up to the blank at both ends, as String.trim gives it."""
    return text.strip(_BLANKS)


def parse_integer(text: str) -> int:
    """A whole number as Long.parseLong reads it: a sign, then decimal digits of any script.

    :raises ValueError: for any other text
    :raises OverflowError: for more than 40 digits, which fit into no type
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or max(digits) > _LAST_OF_TWO_BYTES:
        raise ValueError(f"{text!r} is no whole number")
    if len(digits) > _MOST_DIGITS:
        raise OverflowError(f"a number of {len(digits)} digits")
    return int(text)


def parse_double(text: str) -> float:
    """A number as Double.parseDouble reads it, NaN and infinite ones included.

    :raises ValueError: for any other text
    """
    text = trim(text)
    if _WORDS.fullmatch(text):
        return float(text)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(text):
        # In the digits before the exponent d and f are digits.
        digits, exponent = re.split("[pP]", text)
        try:
            return float.fromhex(f"{digits}p{exponent.rstrip('fFdD')}")
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    raise ValueError(f"{text!r} is no number")
