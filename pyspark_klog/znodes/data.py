"""Reads and writes the JSON of znodes with checked fields, for all modules of this package.

Python's parser is stricter than Kafka's: nothing may follow the value, and the text must be UTF-8
without a byte order mark. All data that Kafka writes has this form.
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
"""Largest data of a znode; ZooKeeper's own limit, unless its `jute.maxbuffer` was raised."""

MAX_EPOCH = (1 << 31) - (1 << 20)
"""Largest accepted epoch of a controller or leader.

No cluster has so many elections that its epoch gets larger, so a znode with a larger epoch is
damaged. Each election raises the epoch, so an accepted damaged one could soon exceed 32 bits.
"""

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
    """The data of a znode is not in Kafka's format.

    The text names the path, the expected data and the data found. The caller decides whether to
    continue without the znode.
    """

    def __init__(self, path: str, expected: str, found: str) -> None:
        self.path = path
        super().__init__(
            f"the znode {path} cannot be used: expected {expected}, found {found};"
            " look at it with zookeeper-shell"
        )


class JsonObject:
    """The fields of one JSON object; most methods check and return the field ``name``.

    ``path`` is the path of the znode, and ``where`` the object's name in the znode (empty for the
    whole value). Like Kafka, callers skip unknown fields and check the version of few znodes. A
    missing or wrong field raises ZnodeError.
    """

    __slots__ = ("_where", "path", "values")

    def __init__(self, path: str, values: Mapping[str, Any], where: str = "") -> None:
        self.path = path
        self.values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def version(self, newest: int | None = None) -> int:
        """Return the field ``version``, which must be at least 1 and at most ``newest``."""
        found = self.int32("version", minimum=1)
        if newest is not None and found > newest:
            self.raise_error("version", f"to be 1 to {newest}")
        return found

    def int32(self, name: str, minimum: int = -_INT32 - 1) -> int:
        """Return the field, a JSON number of 32 bits that is at least ``minimum``."""
        return self._integer(name, minimum, _INT32, f"to be {_a_number(minimum)}")

    def epoch(self, name: str) -> int:
        """Return the field, the epoch of a controller or leader, 0 to MAX_EPOCH."""
        return self._integer(name, 0, MAX_EPOCH, f"to be a number from 0 to {MAX_EPOCH}")

    def int16(self, name: str, minimum: int) -> int:
        """Return the field, a JSON number of 16 bits that is at least ``minimum``."""
        return self._integer(name, minimum, _INT16, f"to be a number from {minimum} to {_INT16}")

    def text(self, name: str, most: int = MAX_ZNODE_BYTES) -> str:
        """Return the field, a string of at most ``most`` characters."""
        found = self.values.get(name)
        if not isinstance(found, str):
            self.raise_error(name, "to be a string")
        if len(found) > most:
            self.raise_error(name, f"to be a string of at most {most} characters")
        return found

    def int64_text(self, name: str) -> int:
        """Return the field, a number of 64 bits that the JSON contains as a string."""
        found = self.values.get(name)
        number = _int64(found) if isinstance(found, str) else None
        if number is None:
            self.raise_error(name, "to be a number of 64 bits in quotes")
        return number

    def broker_ids(self, name: str) -> tuple[BrokerId, ...]:
        """Return the field, an array of broker ids without repetitions."""
        found = self.values.get(name)
        if (
            not isinstance(found, list)
            or not all(_is_int(each, 0, _INT32) for each in found)
            or len(set(found)) != len(found)
        ):
            self.raise_error(name, "to be an array of broker ids, none of them twice")
        return tuple(found)

    def texts(self, name: str) -> list[str]:
        """Return the field, an array of strings."""
        found = self.values.get(name)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            self.raise_error(name, "to be an array of strings")
        return list(found)

    def text_map(self, name: str) -> dict[str, str]:
        """Return the field, a JSON object whose values are strings."""
        found = self.inner(name).values
        if not all(isinstance(each, str) for each in found.values()):
            self.raise_error(name, "to be an object of strings")
        return dict(found)

    def inner(self, name: str) -> "JsonObject":
        """Return the field, a JSON object, as a JsonObject."""
        found = self.values.get(name)
        if not isinstance(found, dict):
            self.raise_error(name, "to be an object")
        return JsonObject(self.path, found, self._named(name))

    def inner_objects(self, name: str) -> "Iterator[JsonObject]":
        """Iterate over the objects in the field, an array of JSON objects that may be long."""
        found = self.values.get(name)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            self.raise_error(name, "to be an array of objects")
        named = self._named(name)
        return (JsonObject(self.path, each, f"{named}[{i}]") for i, each in enumerate(found))

    def raise_error(self, name: str, expected: str) -> NoReturn:
        """Raise ZnodeError for the field ``name``; ``expected`` begins with "to"."""
        found = shorten_repr(self.values[name]) if name in self.values else "no such field"
        raise ZnodeError(self.path, f"{shorten_repr(self._named(name))} {expected}", found)

    def _integer(self, name: str, minimum: int, maximum: int, expected: str) -> int:
        found = self.values.get(name)
        if not _is_int(found, minimum, maximum):
            self.raise_error(name, expected)
        return cast(int, found)

    def _named(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name


def shorten_repr(value: object) -> str:
    """Return a shortened ``repr`` of a value for an error's text."""
    return _short.repr(value)


def read_object(path: str, data: bytes | None) -> JsonObject:
    """Parse the data of the znode ``path`` as a JSON object.

    :raises ZnodeError: if ``data`` is no JSON object, or is too large
    """
    expected = "a JSON object in UTF-8"
    if data is None or len(data) > MAX_ZNODE_BYTES:
        found = "no data" if data is None else f"{len(data)} bytes"
        raise ZnodeError(path, f"{expected} of at most {MAX_ZNODE_BYTES} bytes", found)
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:
            # A \u escape may be a lone half of a surrogate pair, which UTF-8 cannot encode:
            # encoding the value again then raises a ValueError.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ZnodeError(path, expected, shorten_repr(data[:100])) from None
    if not isinstance(value, dict):
        raise ZnodeError(path, expected, shorten_repr(value))
    return JsonObject(path, value)


def read_epoch(path: str, data: bytes | None) -> int:
    """Read an epoch, 0 to MAX_EPOCH, that is the whole text of the znode ``path``.

    :raises ZnodeError: if ``data`` is no such number
    """
    epoch = read_number(path, data, minimum=0, bits=32)
    if epoch > MAX_EPOCH:
        raise ZnodeError(path, f"an epoch of at most {MAX_EPOCH}", str(epoch))
    return epoch


def read_number(path: str, data: bytes | None, minimum: int, bits: int) -> int:
    """Read a decimal number that is the whole text of the znode ``path``.

    The number must be at least ``minimum`` and fit a signed number of ``bits`` bits.

    :raises ZnodeError: if ``data`` is no such number
    """
    text = (data or b"")[:100].decode("ascii", "replace")
    number = _int64(text)
    if number is None or not minimum <= number < 1 << (bits - 1):
        raise ZnodeError(
            path, _a_number(minimum, bits), "no data" if data is None else shorten_repr(text)
        )
    return number


def write_json(value: object) -> bytes:
    """Encode JSON like Kafka's Jackson: UTF-8 without spaces.

    Characters above U+FFFF, and control characters that JSON has no short escape for, are written
    as escapes with capital hexadecimal digits.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(_kafkas_escape, text).encode()


def encode_uuid(value: UUID) -> str:
    """Return Kafka's text of a UUID: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID | None:
    """Parse Kafka's text of a UUID, 22 characters of URL-safe base64; None for other texts."""
    return UUID(bytes=urlsafe_b64decode(f"{text}==")) if _ID.fullmatch(text) else None


def _int64(text: str) -> int | None:
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 - 1 <= number <= _INT64 else None


def _is_int(value: object, minimum: int, maximum: int) -> bool:
    # In Python a bool is an int too, so isinstance() would accept JSON's true.
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
