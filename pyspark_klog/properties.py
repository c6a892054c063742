"""Java's .properties syntax, as java.util.Properties reads it, with the line of every entry.

Blank lines and lines that begin with ``#`` or ``!`` are left out; ``=``, ``:`` or blanks end a
name; a backslash at a line's end joins the next line without its leading blanks; ``\\t``, ``\\n``,
``\\r``, ``\\f`` and ``\\u`` with four hexadecimal digits are escapes, any other escaped character
is itself.
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
    """A file that cannot be read, or text that is no .properties."""


class Entry(NamedTuple):
    """One name and its text, and where it stood: the file's name and the entry's first line."""

    name: str
    text: str
    file: str
    line: int


def read_properties(path: Path) -> list[Entry]:
    """The entries of a file. UTF-8, or Latin-1 (Java's reading) where it is not valid UTF-8."""
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
    """The entries of `text` in their order; PropertiesError for an incomplete ``\\u`` escape."""
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
    """`text` so that `parse_properties` reads it back: for files that klog writes."""
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
    """(first line's number, joined text) of every entry; comments and blank lines left out."""
    joined = ""
    first = 0
    for number, line in enumerate(_LINE_END.split(text), start=1):
        line = line.lstrip(_BLANKS)
        if not joined:
            # A comment may follow a line that holds nothing but a joining backslash, as in Java.
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
    """Whether `line` ends with an odd number of backslashes."""
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
    # Two escapes may be the halves of one character (a surrogate pair).
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
