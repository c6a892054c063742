"""Parses Java's .properties syntax like java.util.Properties, and keeps each entry's line number.

Blank lines and lines that begin with ``#`` or ``!`` are skipped. ``=``, ``:`` or blanks end a
name. A backslash at the end of a line joins the next line without its leading blanks. Escapes are
``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\u`` with four hexadecimal digits; a backslash before any
other character stands for that character.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyspark_klog.errors import KlogError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile("\r\n|\n|\r")


class PropertiesError(KlogError):
    """A properties file is unreadable, or a text breaks the .properties syntax."""


class Entry(NamedTuple):
    """An entry of a .properties file: its name, its value ``text``, and where it stands.

    ``file`` is the file's path, or "" for a text that is from no file; ``line`` is the number of
    the entry's first line, from 1.
    """

    name: str
    text: str
    file: str
    line: int


def read_properties(path: Path) -> list[Entry]:
    """Return the entries of a file, decoded as UTF-8, or as Latin-1 if it is not valid UTF-8.

    Java reads every .properties file as Latin-1. Raises PropertiesError for an unreadable file, or
    for an incomplete ``\\u`` escape.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PropertiesError(
            f"cannot read the configuration file {path}: {error.strerror}"
        ) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, file=str(path))


def parse_properties(text: str, *, file: str = "") -> list[Entry]:
    """Return the entries of `text` in file order, repeated names included.

    Raises PropertiesError for an incomplete ``\\u`` escape.
    """
    entries = []
    for number, line in _logical_lines(text):
        name_end = _name_end(line)
        value_start = name_end
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
            while value_start < len(line) and line[value_start] in _BLANKS:
                value_start += 1
        where = f"{file or 'properties'}:{number}"
        name = _unescape(line[:name_end], where)
        entries.append(Entry(name, _unescape(line[value_start:], where), file, number))
    return entries


def escape(text: str, *, is_name: bool = False) -> str:
    """Escape `text` for a .properties file, so that `parse_properties` returns the same text."""
    out = []
    for index, char in enumerate(text):
        if char == "\\" or (char == " " and index == 0) or (is_name and char in " #!=:"):
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append("\\" + {v: k for k, v in _ESCAPES.items()}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return "".join(out)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, joined text) of every entry, without comments and blank
    lines."""
    joined = ""
    first = 0
    for number, line in enumerate(_LINE_END.split(text), start=1):
        line = line.lstrip(_BLANKS)
        if not joined:
            # Java skips a comment even after a line that is only a backslash, which joins lines.
            if not line or line[0] in "#!":
                continue
            first = number
        joined += line
        if _ends_with_joint(joined):
            joined = joined[:-1]
            continue
        yield first, joined
        joined = ""
    if joined:
        yield first, joined


def _ends_with_joint(line: str) -> bool:
    """Whether `line` ends with an odd number of backslashes, so that the next line continues it."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _name_end(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 1
        elif line[position] in "=:" + _BLANKS:
            break
        position += 1
    return min(position, len(line))


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise PropertiesError(f"{where}: \\u must be followed by four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Two \u escapes may be a surrogate pair: join them into one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
