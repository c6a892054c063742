"""Sets of ASCII characters by the names that Java's regular expressions have for them. Pure."""

import unicodedata
from collections.abc import Callable

ASCII = frozenset(map(chr, range(128)))
WORD = frozenset(c for c in ASCII if c.isalnum()) | {"_"}
_PUNCTUATION = frozenset(c for c in ASCII if c.isprintable() and not c.isalnum()) - {" "}

POSIX: dict[str, frozenset[str]] = {
    "Lower": frozenset(filter(str.islower, ASCII)),
    "Upper": frozenset(filter(str.isupper, ASCII)),
    "ASCII": ASCII,
    "Alpha": frozenset(filter(str.isalpha, ASCII)),
    "Digit": frozenset("0123456789"),
    "Alnum": WORD - {"_"},
    "Punct": _PUNCTUATION,
    "Graph": _PUNCTUATION | (WORD - {"_"}),
    "Print": _PUNCTUATION | WORD | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": frozenset(map(chr, [*range(32), 127])),
    "XDigit": frozenset("0123456789abcdefABCDEF"),
    "Space": frozenset(" \t\n\x0b\f\r"),
}
_PROPERTIES: dict[str, frozenset[str]] = {
    "ALPHABETIC": POSIX["Alpha"],
    "LETTER": POSIX["Alpha"],
    "LOWERCASE": POSIX["Lower"],
    "UPPERCASE": POSIX["Upper"],
    "DIGIT": POSIX["Digit"],
    "ALNUM": POSIX["Alnum"],
    "WHITESPACE": POSIX["Space"],
    "WHITE_SPACE": POSIX["Space"],
    "HEXDIGIT": POSIX["XDigit"],
    "HEX_DIGIT": POSIX["XDigit"],
    "PUNCTUATION": frozenset(c for c in ASCII if unicodedata.category(c).startswith("P")),
    "CONTROL": POSIX["Cntrl"],
    "ASSIGNED": ASCII,
    "LATIN": POSIX["Alpha"],
    "COMMON": ASCII - POSIX["Alpha"],
}
_JAVA: dict[str, Callable[[str], bool]] = {
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
    "javaAlphabetic": str.isalpha,
    "javaLetter": str.isalpha,
    "javaDigit": str.isdigit,
    "javaLetterOrDigit": str.isalnum,
    "javaWhitespace": "\t\n\x0b\f\r\x1c\x1d\x1e\x1f ".__contains__,
    "javaISOControl": POSIX["Cntrl"].__contains__,
}
_CATEGORIES = {
    "L": "ultmo",
    "M": "nec",
    "N": "dlo",
    "Z": "slp",
    "C": "cfosn",
    "P": "dsecoif",
    "S": "mcko",
}
"""Unicode's general categories: each first letter, with the second letters it has (Lu, Ll ...)."""


def property_set(name: str) -> frozenset[str] | None:
    """The ASCII characters of a property with Java's name; None for a property that klog does not
    know, such as most scripts and blocks."""
    if name in POSIX:
        return POSIX[name]
    if name in _JAVA:
        return frozenset(filter(_JAVA[name], ASCII))
    kind, equals, value = name.partition("=")
    if equals:
        kind = kind.lower()
        if kind in ("general_category", "gc"):
            return _category(value)
        if kind in ("script", "sc"):
            return _PROPERTIES.get(value.upper()) if value.upper() in ("LATIN", "COMMON") else None
        return _block(value) if kind in ("block", "blk") else None
    if name.startswith("Is"):
        found = _category(name[2:])
        return _PROPERTIES.get(name[2:].upper()) if found is None else found
    return _block(name[2:]) if name.startswith("In") else _category(name)


def _category(name: str) -> frozenset[str] | None:
    if name[:1] not in _CATEGORIES or name[1:] not in ("", *_CATEGORIES[name[:1]]):
        return None
    return frozenset(c for c in ASCII if unicodedata.category(c).startswith(name))


def _block(name: str) -> frozenset[str] | None:
    plain = name.upper().replace(" ", "").replace("_", "")
    return ASCII if plain == "BASICLATIN" else None
