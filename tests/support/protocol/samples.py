"""Messages made from their rows: random ones, and strategies that make and shrink them.

A message holds values other than the defaults only where its version has the fields, so that it
survives being encoded and decoded.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st

from pyspark_klog.protocol.message import Field, Message, Struct
from pyspark_klog.protocol.registry import API_KEYS, find_api

S = TypeVar("S", bound=Struct)

ALL_MESSAGES: list[type[Message]] = [
    cls for key in API_KEYS for cls in (find_api(key).request, find_api(key).response)
]
ALL_VERSIONS: list[tuple[type[Message], int]] = [
    (cls, version)
    for cls in ALL_MESSAGES
    for version in range(cls.min_version, cls.max_version + 1)
]

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_LETTERS = "abcXYZ019._- äß漢😀"


def known_tags(cls: type[Struct], version: int) -> set[int]:
    """The tags that the class itself uses in a version."""
    return {
        row.tag
        for row in cls.__fields__.values()
        if row.tag is not None and row.in_version(version)
    }


def sample(cls: type[S], version: int, flexible: bool, random: Random) -> S:
    """A random instance, with values at the edges of their types among others."""
    values: dict[str, Any] = {
        name: _sample_value(row, version, flexible, random)
        for name, row in cls.__fields__.items()
        if row.in_version(version)
    }
    if flexible and random.random() < 0.3:
        tags = {random.choice((7, 100, 127, 128, 70_000)) for _ in range(2)}
        values["unknown_tagged_fields"] = {
            tag: random.randbytes(random.choice((0, 1, 200)))
            for tag in tags - known_tags(cls, version)
        }
    return cls(**values)


def sample_message(cls: type[Message], version: int, random: Random) -> Message:
    """A random message."""
    return sample(cls, version, cls.is_flexible(version), random)


def _sample_value(row: Field, version: int, flexible: bool, random: Random) -> Any:
    if row.nullable_in(version) and random.random() < 0.25:
        return None
    if row.kind in _BITS:
        limit = 1 << (_BITS[row.kind] - 1)
        return random.choice((0, 1, -1, limit - 1, -limit, random.randrange(-limit, limit)))
    if row.kind == "array":
        assert row.element is not None
        count = random.choice((0, 1, 1, 2, 3))
        return [_sample_value(row.element, version, flexible, random) for _ in range(count)]
    if row.kind == "struct":
        assert row.struct is not None
        return sample(row.struct, version, flexible, random)
    length = random.choice((0, 1, 5, 30, 130))
    if row.kind == "string":
        return "".join(random.choice(_LETTERS) for _ in range(length))
    if row.kind in ("bytes", "records"):
        return random.randbytes(length)
    if row.kind == "uuid":
        return UUID(bytes=random.randbytes(16))
    return random.random() < 0.5 if row.kind == "bool" else random.uniform(-1e9, 1e9)


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Strategy: instances of a message that a version can carry."""
    return _structs(cls, version, cls.is_flexible(version))


def _structs(cls: type[S], version: int, flexible: bool) -> st.SearchStrategy[S]:
    fields = {
        name: _values(row, version, flexible)
        for name, row in cls.__fields__.items()
        if row.in_version(version)
    }
    if flexible:
        tags = st.integers(0, 2**32 - 1).filter(lambda tag: tag not in known_tags(cls, version))
        fields["unknown_tagged_fields"] = st.dictionaries(tags, st.binary(max_size=9), max_size=2)
    return st.builds(cls, **fields)


def _values(row: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any]
    if row.kind in _BITS:
        limit = 1 << (_BITS[row.kind] - 1)
        strategy = st.integers(-limit, limit - 1)
    elif row.kind == "array":
        assert row.element is not None
        strategy = st.lists(_values(row.element, version, flexible), max_size=3)
    elif row.kind == "struct":
        assert row.struct is not None
        strategy = _structs(row.struct, version, flexible)
    else:
        strategy = {
            "string": st.text(st.characters(codec="utf-8"), max_size=140),
            "bytes": st.binary(max_size=140),
            "records": st.binary(max_size=140),
            "uuid": st.uuids(),
            "bool": st.booleans(),
            "float64": st.floats(allow_nan=False),
        }[row.kind]
    return st.none() | strategy if row.nullable_in(version) else strategy


def reference_bytes(message: Struct, version: int, flexible: bool) -> bytes:
    """A message encoded row by row, in the plainest way: what every codec must write."""
    out = b""
    tagged: dict[int, bytes] = dict(message.unknown_tagged_fields)
    for name, row in type(message).__fields__.items():
        value = getattr(message, name)
        if not row.in_version(version):
            continue
        if row.tag is None:
            out += _reference_value(value, row, version, flexible)
        elif value != getattr(type(message)(), name):
            tagged[row.tag] = _reference_value(value, row, version, flexible)
    if flexible:
        out += _varint(len(tagged))
        for tag in sorted(tagged):
            out += _varint(tag) + _varint(len(tagged[tag])) + tagged[tag]
    return out


def _reference_value(value: Any, row: Field, version: int, flexible: bool) -> bytes:
    fixed = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d"}
    if row.kind in fixed:
        return struct.pack(">" + fixed[row.kind], value)
    if row.kind == "uuid":
        return bytes(value.bytes)
    if row.kind == "struct":
        if row.nullable_in(version):
            if value is None:
                return b"\xff"
            return b"\x01" + reference_bytes(value, version, flexible)
        return reference_bytes(value, version, flexible)
    count = -1 if value is None else len(value)
    body = b""
    if row.kind == "array":
        assert row.element is not None
        for item in value or ():
            body += _reference_value(item, row.element, version, flexible)
    elif row.kind == "string":
        body = b"" if value is None else value.encode()
        count = -1 if value is None else len(body)
    else:
        body = bytes(value or b"")
    if flexible:
        return _varint(count + 1) + body
    return struct.pack(">h" if row.kind == "string" else ">i", count) + body


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])
