"""The input of `klog produce`: splits bytes into lines, and parses lines as records."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar

from pyspark_klog.errors import KlogError

T = TypeVar("T")
Headers = list[tuple[str, bytes | None]]

CHUNK_BYTES = 1 << 20
"""The most bytes of input that are read before the whole lines among them are parsed."""
_LATEST_MS = (2**63 - 1) // 1000
"""The latest timestamp in milliseconds whose microseconds fit into 64 bits."""
_FIELDS = frozenset(
    ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp")
)
_IGNORED = frozenset(("topic", "offset", "timestamp_type"))
"""Further fields in the output of `klog consume --json`; `klog produce --json` ignores them, so
that it can write this output to another topic."""


class BadLine(KlogError):
    """A line that is not a record, or whose record cannot be written to the topic, such as a record
    for a partition that does not exist."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")


def separator_bytes(text: str) -> bytes:
    r"""Return a separator's bytes, with ``\t`` for a tab."""
    return text.replace("\\t", "\t").encode()


@dataclass(slots=True)
class Rows:
    """Records of consecutive lines, as columns. Each column other than ``values`` is None if no
    record has its field."""

    first_line: int
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None
    partitions: Sequence[int | None] | None = None
    timestamps_ms: Sequence[int | None] | None = None
    bad_line: BadLine | None = None
    """The error of the line that follows these records; None if no line is invalid."""

    def up_to(self, count: int, bad_line: BadLine) -> "Rows":
        """Return the first ``count`` records, with ``bad_line`` as the error of the line after
        them."""
        return Rows(
            self.first_line,
            self.values[:count],
            None if self.keys is None else self.keys[:count],
            None if self.headers is None else self.headers[:count],
            None if self.partitions is None else self.partitions[:count],
            None if self.timestamps_ms is None else self.timestamps_ms[:count],
            bad_line,
        )


@dataclass(slots=True)
class Lines:
    """Whole lines without their ends (LF or CR LF)."""

    first_line: int
    lines: list[bytes]
    read_bytes: int
    pauses: bool
    """Whether no more input is available yet after these lines, because the stream's writer pauses.
    True, too, for a last line without a line end."""


def read_lines(
    stream: BinaryIO, most_bytes: int, has_more: Callable[[BinaryIO], bool]
) -> Iterator[Lines]:
    """Yield the lines as they arrive, a chunk at a time; the last line needs no line end.

    :raises BadLine: if more than ``most_bytes`` of a line have come without its line end, after all
        earlier lines were yielded
    """
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    first_line = 1
    begun: list[bytes] = []
    begun_bytes = 0
    while data := read(CHUNK_BYTES):
        parts, size = [data], len(data)
        pauses = not has_more(stream)
        while not pauses and size < CHUNK_BYTES and (data := read(CHUNK_BYTES - size)):
            parts.append(data)
            size += len(data)
            pauses = not has_more(stream)
        whole, end, rest = b"".join(parts).rpartition(b"\n")
        lines = _split(b"".join((*begun, whole))) if end else []
        if end:
            begun, begun_bytes = [], 0
        begun.append(rest)
        begun_bytes += len(rest)
        yield Lines(first_line, lines, size, pauses)
        first_line += len(lines)
        if begun_bytes > most_bytes:
            text = (
                f"it is longer than {most_bytes} bytes; raise max.request.size, or make it shorter"
            )
            raise BadLine(first_line, text)
    if begun_bytes:
        yield Lines(first_line, _split(b"".join(begun)), 0, pauses=True)


def _split(text: bytes) -> list[bytes]:
    if b"\r" in text:
        return [line.removesuffix(b"\r") for line in text.split(b"\n")]
    return text.split(b"\n")


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of an input line of `klog produce`."""

    as_json: bool = False
    has_headers: bool = False
    key_separator: bytes | None = None
    null_value: bytes | None = None
    """The text that stands for null as a key, a value or a header's value."""

    def rows(self, lines: Lines) -> Rows:
        """Return the records of the lines before the first invalid line; `Rows.bad_line` has the
        error of the invalid line."""
        if self.as_json:
            return _collect(lines, _of_json)
        if self.has_headers or self.key_separator is not None:
            return _collect(lines, self._of_fields)
        if self.null_value is None:
            return Rows(lines.first_line, lines.lines)
        return Rows(lines.first_line, [self._nullable(line) for line in lines.lines])

    def _of_fields(self, line: bytes) -> "_Record":
        found = _Record()
        if self.has_headers:
            text, tab, line = line.partition(b"\t")
            if not tab:
                raise ValueError(
                    "the line has no tab; expected headers (name:value,name:value) and a tab"
                )
            found.headers = self._headers(text)
        if self.key_separator is not None:
            key, separator, line = line.partition(self.key_separator)
            if not separator:
                shown = self.key_separator.decode(errors="backslashreplace")
                raise ValueError(f"the line has no {shown!r} after a key (--key-separator)")
            found.key = self._nullable(key)
        found.value = self._nullable(line)
        return found

    def _headers(self, text: bytes) -> Headers:
        if not text or text == self.null_value:
            return []
        found: Headers = []
        for pair in text.split(b","):
            name, colon, value = pair.partition(b":")
            if not colon:
                raise ValueError(f"header {pair!r} has no colon; expected name:value,name:value")
            try:
                found.append((name.decode(), self._nullable(value)))
            except UnicodeDecodeError:
                raise ValueError(f"a header's name is {name!r}; expected UTF-8") from None
        return found

    def _nullable(self, text: bytes) -> bytes | None:
        return None if text == self.null_value else text


@dataclass(slots=True)
class _Record:
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


def _collect(lines: Lines, read: Callable[[bytes], _Record]) -> Rows:
    records: list[_Record] = []
    bad_line: BadLine | None = None
    for line in lines.lines:
        try:
            records.append(read(line))
        except ValueError as error:
            bad_line = BadLine(lines.first_line + len(records), str(error))
            break
    return Rows(
        lines.first_line,
        [each.value for each in records],
        _unless_empty([each.key for each in records]),
        [each.headers for each in records] if any(each.headers for each in records) else None,
        _unless_empty([each.partition for each in records]),
        _unless_empty([each.timestamp_ms for each in records]),
        bad_line,
    )


def _unless_empty(column: list[T]) -> list[T] | None:
    return column if any(each is not None for each in column) else None


# --- lines in JSON (--json) ----------------------------------------------------------------------
def _of_json(line: bytes) -> _Record:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the line is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError('the line is no JSON object; expected {"key": "k", "value": "v"}')
    if unknown := found.keys() - _FIELDS - _IGNORED:
        known = ", ".join(sorted(_FIELDS))
        raise ValueError(f"the line has a field {min(unknown)!r}; expected some of {known}")
    return _Record(
        _bytes_of(found, "key"),
        _bytes_of(found, "value"),
        _json_headers(found.get("headers")),
        _number_of(found, "partition", 2**31 - 1),
        _number_of(found, "timestamp", _LATEST_MS),
    )


def _bytes_of(found: dict[str, Any], name: str) -> bytes | None:
    """Return the UTF-8 bytes of the field ``name``, or the decoded bytes of ``name_base64``."""
    text, coded = found.get(name), found.get(f"{name}_base64")
    if text is not None and coded is not None:
        raise ValueError(f"both {name} and {name}_base64 are given; expected one of them")
    if coded is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ValueError(f"{name}_base64 is no base 64: {error}") from None
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name} is {json.dumps(text)[:40]}; expected a text in quotes, or null")
    if not _is_encodable(text):
        raise ValueError(f"{name} has half a character (a lone surrogate)")
    return text.encode()


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json_headers(given: object) -> Headers:
    """Parse the field "headers": a list of {"key": name, "value": value}, or an object of names and
    values."""
    if given is None:
        return []
    rows: list[Any] = given if isinstance(given, list) else []
    if isinstance(given, dict):
        rows = [{"key": name, "value": value} for name, value in given.items()]
    elif not isinstance(given, list):
        raise ValueError(
            'headers: expected [{"key": "name", "value": "text"}], or {"name": "text"}'
        )
    found: Headers = []
    for row in rows:
        if not isinstance(row, dict) or not row.keys() <= {"key", "value", "value_base64"}:
            raise ValueError("headers: expected objects of key and value, or value_base64")
        name = row.get("key")
        if not isinstance(name, str):
            raise ValueError("headers: expected a text as the key of each header")
        if not _is_encodable(name):
            raise ValueError("a header's name has half a character (a lone surrogate)")
        found.append((name, _bytes_of(row, "value")))
    return found


def _number_of(found: dict[str, Any], name: str, most: int) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if type(number) is not int or not 0 <= number <= most:
        shown = json.dumps(number)[:40]
        raise ValueError(f"{name} is {shown}; expected a whole number, 0 to {most}")
    return number
