"""A znode's bytes as checked JSON: what every decoder and encoder of this package shares.

Python's parser is stricter than Kafka's where Kafka's own writers never go: nothing may follow the
value, and the text is UTF-8 without a byte order mark.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any, NoReturn, cast

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import UUID, BrokerId

MAX_ZNODE_BYTES = 1 << 20
"""ZooKeeper itself takes no more unless its `jute.maxbuffer` was raised."""

MAX_EPOCH = (1 << 31) - (1 << 20)
"""Of controllers and leaders. One above it was not counted, and there is no room for later ones."""

_INT16 = (1 << 15) - 1
_INT32 = (1 << 31) - 1
_INT64 = (1 << 63) - 1
_DECIMAL = re.compile("-?[0-9]{1,19}", re.ASCII)
_ID = re.compile("[A-Za-z0-9_-]{22}", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u00[01][0-9a-f]|.)|[\U00010000-\U0010ffff]")

_short = Repr()
_short.maxstring = _short.maxother = 100
_short.maxlevel = 2


class ZnodeError(KlogError):
    """A znode is not what Kafka writes there. The text names its path, what was found, what was
    expected; whoever reads decides whether to go on without it."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        self.path = path
        super().__init__(
            f"the znode {path} cannot be used: expected {expected}, found {found};"
            " look at it with zookeeper-shell"
        )


class JsonObject:
    """The fields of one JSON object, each checked when it is asked for.

    ``path`` is the znode's, ``where`` names the object in it (empty for the whole value). Kafka
    passes over fields that it does not know, and looks at the version of few znodes.
    """

    __slots__ = ("_where", "path", "values")

    def __init__(self, path: str, values: Mapping[str, Any], where: str = "") -> None:
        self.path = path
        self.values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def version(self, newest: int | None = None) -> int:
        """``version``, at least 1 and at most ``newest``."""
        found = self.int32("version", minimum=1)
        if newest is not None and found > newest:
            self.refuse("version", f"to be 1 to {newest}")
        return found

    def int32(self, name: str, minimum: int = -_INT32 - 1) -> int:
        """A number of 32 bits that is not below ``minimum``."""
        return self._integer(name, minimum, _INT32, f"to be {_a_number(minimum)}")

    def epoch(self, name: str) -> int:
        """The epoch of a controller or leader."""
        return self._integer(name, 0, MAX_EPOCH, f"to be a number from 0 to {MAX_EPOCH}")

    def int16(self, name: str, minimum: int) -> int:
        """A number of 16 bits that is not below ``minimum``."""
        return self._integer(name, minimum, _INT16, f"to be a number from {minimum} to {_INT16}")

    def text(self, name: str, most: int = MAX_ZNODE_BYTES) -> str:
        """A string of at most so many characters."""
        found = self.values.get(name)
        if not isinstance(found, str):
            self.refuse(name, "to be a string")
        if len(found) > most:
            self.refuse(name, f"to be a string of at most {most} characters")
        return found

    def int64_text(self, name: str) -> int:
        """A number of 64 bits, written as a string."""
        found = self.values.get(name)
        number = _int64(found) if isinstance(found, str) else None
        if number is None:
            self.refuse(name, "to be a number of 64 bits in quotes")
        return number

    def broker_ids(self, name: str) -> tuple[BrokerId, ...]:
        """An array of broker ids, none of them twice."""
        found = self.values.get(name)
        if (
            not isinstance(found, list)
            or not all(_is_int(each, 0, _INT32) for each in found)
            or len(set(found)) != len(found)
        ):
            self.refuse(name, "to be an array of broker ids, none of them twice")
        return tuple(found)

    def texts(self, name: str) -> list[str]:
        """An array of strings."""
        found = self.values.get(name)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            self.refuse(name, "to be an array of strings")
        return list(found)

    def text_map(self, name: str) -> dict[str, str]:
        """An object whose values are strings."""
        found = self.inner(name).values
        if not all(isinstance(each, str) for each in found.values()):
            self.refuse(name, "to be an object of strings")
        return dict(found)

    def inner(self, name: str) -> "JsonObject":
        """An object."""
        found = self.values.get(name)
        if not isinstance(found, dict):
            self.refuse(name, "to be an object")
        return JsonObject(self.path, found, self._named(name))

    def inner_objects(self, name: str) -> "Iterator[JsonObject]":
        """An array of objects, one after the other: there may be many."""
        found = self.values.get(name)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            self.refuse(name, "to be an array of objects")
        named = self._named(name)
        return (JsonObject(self.path, each, f"{named}[{i}]") for i, each in enumerate(found))

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raise ZnodeError for the field ``name``; ``expected`` begins with "to be"."""
        found = shown(self.values[name]) if name in self.values else "no such field"
        raise ZnodeError(self.path, f"{shown(self._named(name))} {expected}", found)

    def _integer(self, name: str, minimum: int, maximum: int, expected: str) -> int:
        found = self.values.get(name)
        if not _is_int(found, minimum, maximum):
            self.refuse(name, expected)
        return cast(int, found)

    def _named(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name


def shown(value: object) -> str:
    """A value in an error's text, cut short."""
    return _short.repr(value)


def read_object(path: str, data: bytes | None) -> JsonObject:
    """The JSON object that a znode holds.

    :raises ZnodeError: for anything else
    """
    expected = "a JSON object in UTF-8"
    if data is None or len(data) > MAX_ZNODE_BYTES:
        found = "no data" if data is None else f"{len(data)} bytes"
        raise ZnodeError(path, f"{expected} of at most {MAX_ZNODE_BYTES} bytes", found)
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:
            # An escape alone may be half a character, which no other program could read.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ZnodeError(path, expected, shown(data[:100])) from None
    if not isinstance(value, dict):
        raise ZnodeError(path, expected, shown(value))
    return JsonObject(path, value)


def read_epoch(path: str, data: bytes | None) -> int:
    """The epoch that is all of a znode's text.

    :raises ZnodeError: for anything else
    """
    epoch = read_number(path, data, minimum=0, bits=32)
    if epoch > MAX_EPOCH:
        raise ZnodeError(path, f"an epoch of at most {MAX_EPOCH}", str(epoch))
    return epoch


def read_number(path: str, data: bytes | None, minimum: int, bits: int) -> int:
    """A decimal number that is all of a znode's text.

    :raises ZnodeError: for anything else
    """
    text = (data or b"")[:100].decode("ascii", "replace")
    number = _int64(text)
    if number is None or not minimum <= number < 1 << (bits - 1):
        raise ZnodeError(path, _a_number(minimum, bits), "no data" if data is None else shown(text))
    return number


def write_json(value: object) -> bytes:
    """JSON as Kafka's Jackson writes it: no spaces, and UTF-8, with escapes (in capitals) for
    control characters and for what lies beyond the first 65,536 characters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(_kafkas_escape, text).encode()


def encode_uuid(value: UUID) -> str:
    """22 characters of base64, as Kafka prints ids."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID | None:
    """The inverse; None if it is none."""
    return UUID(bytes=urlsafe_b64decode(f"{text}==")) if _ID.fullmatch(text) else None


def _int64(text: str) -> int | None:
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 - 1 <= number <= _INT64 else None


def _is_int(value: object, minimum: int, maximum: int) -> bool:
    # A bool is an int for Python, and not for JSON.
    return type(value) is int and minimum <= value <= maximum


def _a_number(minimum: int, bits: int = 32) -> str:
    kind = f"a number of {bits} bits"
    return kind if minimum < -(1 << 30) else f"{kind}, at least {minimum}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _kafkas_escape(found: re.Match[str]) -> str:
    text = found.group()
    if text[0] != "\\":
        text = json.dumps(text)[1:-1]
        return rf"\u{text[2:6].upper()}\u{text[8:].upper()}"
    return text if text[1] != "u" else rf"\u{text[2:].upper()}"
