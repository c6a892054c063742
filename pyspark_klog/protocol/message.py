"""Base classes of messages: field declarations, slots, constructors, equality and versions.

The constructor of a class is generated at its first call. Most processes never construct most
message classes: decoders create messages without the constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, dataclass_transform

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.keys import ApiKey

NEWEST = 0x7FFF
"""The largest int16 version: a field with this ``until`` is in all later versions."""

NO_TAGS: Mapping[int, bytes] = MappingProxyType({})
"""The empty, read-only mapping of unknown tagged fields, which nearly all structs share."""

_IMMUTABLE = (bool, int, float, str, bytes, UUID, type(None))


class Unset:
    """The type of UNSET, which stands for a default value that the caller does not give."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
"""Stands for a default value or an argument that is not given: the field then has the zero value of
its kind, for arrays and structs a new list or struct. A default of None means null."""


@dataclass(frozen=True, slots=True)
class Field:
    """One row: the declaration of a field for all versions.

    ``element`` is the row of an array's elements, and ``struct`` the class of a struct. The value
    of a ``secret`` field is never shown: log lines and errors have ``***`` in its place.
    """

    kind: str
    since: int = 0
    until: int = NEWEST
    nullable_since: int | None = None
    default: Any = None
    tag: int | None = None
    ignorable: bool = False
    element: Field | None = None
    struct: type[Struct] | None = None
    secret: bool = False

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since

    @property
    def is_lazy(self) -> bool:
        """Whether the field is a tagged struct, not nullable, that is created at the first access.

        Most messages never contain the tagged struct, so it is not created with the message.
        """
        return self.kind == "struct" and self.tag is not None and self.nullable_since is None


class MessageMeta(type):
    """Metaclass of messages: turns the rows (field declarations) in a class body into slots.

    A field in the tagged section that is a struct and not nullable has a private slot, which is
    None at first, and a property that creates the struct at the first access (`Field.is_lazy`).
    """

    __fields__: dict[str, Field]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> MessageMeta:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in fields:
            del namespace[key]
        for base in bases:
            if getattr(base, "__fields__", None) and fields:
                raise TypeError(f"{name}: a class with the base {base.__name__} cannot add fields")
        # Remove the values of names in ``__slots__``: Python refuses a class that has such values,
        # and only type checkers need them. The constructor sets the slots.
        for slot in namespace.get("__slots__", ()):
            namespace.pop(slot, None)
        namespace.setdefault("__slots__", tuple(slot_name(key, row) for key, row in fields.items()))
        for key, row in fields.items():
            _check_row(f"{name}.{key}", row)
            if row.is_lazy:
                namespace[key] = _lazy_property(key, row)
        namespace["__fields__"] = fields
        created = super().__new__(cls, name, bases, namespace, **options)
        names = ("unknown_tagged_fields", *fields)
        # attrgetter returns a tuple only for two names or more, and a class may have no fields: so
        # repeat the first name.
        created._values = attrgetter(*names, names[0])  # type: ignore[attr-defined]
        return created


def slot_name(name: str, row: Field) -> str:
    """Return the name of a field's slot. Generated code uses slots, never properties."""
    return f"_{name}" if row.is_lazy else name


def _check_row(where: str, row: Field) -> None:
    if row.since > row.until:
        raise TypeError(f"{where}: since {row.since} is after until {row.until}")
    if row.default is None and row.nullable_since is None:
        raise TypeError(f"{where}: the default is null, and no version allows null")


def _lazy_property(name: str, row: Field) -> property:
    slot = f"_{name}"
    make = row.struct
    assert make is not None

    def get(self: Struct) -> Struct:
        value: Struct | None = getattr(self, slot)
        if value is None:
            value = make()
            setattr(self, slot, value)
        return value

    def put(self: Struct, value: Struct) -> None:
        setattr(self, slot, value)

    return property(get, put)


@dataclass_transform(kw_only_default=True, eq_default=True)
class _Declared(metaclass=MessageMeta):
    """Base class that makes annotated names of message classes constructor arguments for mypy."""

    __slots__ = ()


class Struct(_Declared):
    """A group of fields. Each field is an attribute with a default.

    ``unknown_tagged_fields`` has the tagged fields, by tag, that a newer client or broker sent and
    that klog does not know. In a flexible version these fields are encoded again.
    """

    __slots__ = ("unknown_tagged_fields",)
    __hash__ = None  # type: ignore[assignment]
    __fields__: ClassVar[dict[str, Field]]
    _values: ClassVar[attrgetter[tuple[Any, ...]]]

    unknown_tagged_fields: Mapping[int, bytes] = NO_TAGS

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _make_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        cls = type(self)
        return cls._values(self) == cls._values(other)

    def __reduce__(self) -> tuple[Any, ...]:
        cls = type(self)
        slots = [slot_name(name, row) for name, row in cls.__fields__.items()]
        state = [getattr(self, slot) for slot in slots]
        return _restore, (cls, slots, state, dict(self.unknown_tagged_fields))

    def __repr__(self) -> str:
        """Show only the fields that differ from their defaults; ``***`` replaces a secret value."""
        cls = type(self)
        shown = [
            f"{name}={'***' if row.secret else repr(value)}"
            for name, row in cls.__fields__.items()
            if (value := getattr(self, name)) != default_of(row)
        ]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={dict(self.unknown_tagged_fields)!r}")
        return f"{cls.__name__}({', '.join(shown)})"


def _restore(
    cls: type[Struct], slots: list[str], state: list[Any], unknown: dict[int, bytes]
) -> Struct:
    """Create the struct that ``__reduce__`` described, when a struct is copied or unpickled."""
    restored = object.__new__(cls)
    for slot, value in zip(slots, state, strict=True):
        setattr(restored, slot, value)
    restored.unknown_tagged_fields = unknown or NO_TAGS
    return restored


class Message(Struct):
    """A struct that has versions and is encoded on its own, not as a part of another struct.

    Later versions may be flexible: with compact lengths and tagged fields (KIP-482).
    """

    __slots__ = ()
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    first_flexible_version: ClassVar[int | None]

    def __init_subclass__(
        cls, *, versions: tuple[int, int] | None = None, flexible_since: int | None = None
    ) -> None:
        super().__init_subclass__()
        if versions is not None:
            cls.min_version, cls.max_version = versions
            cls.first_flexible_version = flexible_since

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        first = cls.first_flexible_version
        return first is not None and version >= first


class _ApiMessage(Message):
    """Base class of requests and responses: messages of an API."""

    __slots__ = ()
    api_key: ClassVar[ApiKey]

    def __init_subclass__(
        cls,
        *,
        api: ApiKey | None = None,
        versions: tuple[int, int] | None = None,
        flexible_since: int | None = None,
    ) -> None:
        super().__init_subclass__(versions=versions, flexible_since=flexible_since)
        if api is not None:
            cls.api_key = api


class Request(_ApiMessage):
    """The message that asks a broker for an operation of an API."""

    __slots__ = ()


class Response(_ApiMessage):
    """The message that answers a request."""

    __slots__ = ()


def default_of(row: Field) -> Any:
    """Return a field's default; each call creates a new list or struct."""
    if row.default is UNSET:
        assert row.struct is not None
        return row.struct()
    if row.kind == "array" and row.default is not None:
        return []
    return row.default


def _make_init(cls: type[Struct]) -> Any:
    """Generate the constructor: a keyword argument per field, and ``unknown_tagged_fields``."""
    arguments: list[str] = []
    lines: list[str] = []
    names: dict[str, Any] = {"UNSET": UNSET, "NO_TAGS": NO_TAGS}
    for name, row in cls.__fields__.items():
        slot = slot_name(name, row)
        if row.is_lazy:
            arguments.append(f"{name}=None")
            lines.append(f" self.{slot} = {name}")
        elif isinstance(row.default, _IMMUTABLE):
            names[f"d_{name}"] = row.default
            arguments.append(f"{name}=d_{name}")
            lines.append(f" self.{slot} = {name}")
        else:
            names[f"d_{name}"] = row.struct if row.kind == "struct" else list
            arguments.append(f"{name}=UNSET")
            lines.append(f" self.{slot} = d_{name}() if {name} is UNSET else {name}")
    star = "*, " if arguments else ""
    source = (
        f"def __init__(self, {star}{', '.join([*arguments, 'unknown_tagged_fields=NO_TAGS'])}):\n"
        + "\n".join([*lines, " self.unknown_tagged_fields = unknown_tagged_fields"])
    ).replace("(self, unknown", "(self, *, unknown")
    exec(source, names)
    return names["__init__"]
