"""The rows that messages are declared with: one call a field, for all versions at once.

A row says in which versions the field is there (``since`` to ``until``, both inclusive; open end
by default), from which version on it may be null, its default (also its value where a version lacks
it), and its tag if it travels in the tagged section (KIP-482). A message that carries another value
than the default to a version without the field is refused, unless the row says ``ignorable``.

To type checkers a row is the default value of a keyword argument: ``topic: str = string()``
declares an attribute ``topic: str`` and a constructor that may be called without it. The call
really returns a `Field`, which the metaclass in message.py takes out of the class again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.message import NEWEST, UNSET, Field, Unset

T = TypeVar("T")

NO_UUID = UUID(int=0)
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

UNKNOWN_OPERATIONS = -(2**31)
"""Authorized operations (KIP-430) that nobody asked for."""


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes that stay in a file until they are sent: ``size`` bytes from ``position`` on.

    ``file`` is whatever the sender can send from (a descriptor or an object with ``fileno``).
    """

    file: Any
    position: int
    size: int

    def __len__(self) -> int:
        return self.size


def _row(kind: str, zero: object, options: dict[str, Any]) -> Any:
    default = options.pop("default", UNSET)
    until = options.pop("until", None)
    return Field(
        kind,
        default=zero if default is UNSET else default,
        until=NEWEST if until is None else until,
        **options,
    )


def boolean(
    *,
    since: int = 0,
    until: int | None = None,
    default: bool = False,
    tag: int | None = None,
    ignorable: bool = False,
) -> bool:
    """One byte; 0 is false, anything else true."""
    return cast(bool, _row("bool", False, locals()))


def int8(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """A signed byte."""
    return cast(int, _row("int8", 0, locals()))


def int16(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Two bytes, big-endian, signed, as all integers here."""
    return cast(int, _row("int16", 0, locals()))


def int32(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Four bytes."""
    return cast(int, _row("int32", 0, locals()))


def int64(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Eight bytes."""
    return cast(int, _row("int64", 0, locals()))


def float64(
    *,
    since: int = 0,
    until: int | None = None,
    default: float = 0.0,
    tag: int | None = None,
    ignorable: bool = False,
) -> float:
    """IEEE 754, eight bytes."""
    return cast(float, _row("float64", 0.0, locals()))


def uuid(
    *,
    since: int = 0,
    until: int | None = None,
    default: UUID = NO_UUID,
    tag: int | None = None,
    ignorable: bool = False,
) -> UUID:
    """Sixteen bytes; all zero means "none"."""
    return cast(UUID, _row("uuid", NO_UUID, locals()))


@overload
def string(
    *,
    since: int = ...,
    until: int | None = ...,
    default: str = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> str: ...


@overload
def string(
    *,
    nullable_since: int,
    since: int = ...,
    until: int | None = ...,
    default: str | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> str | None: ...


def string(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str | None:
    """UTF-8 of at most 32767 bytes behind its length; compact in flexible versions."""
    return cast("str | None", _row("string", "", locals()))


@overload
def binary(
    *,
    since: int = ...,
    until: int | None = ...,
    default: bytes = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    secret: bool = ...,
) -> bytes: ...


@overload
def binary(
    *,
    nullable_since: int,
    since: int = ...,
    until: int | None = ...,
    default: bytes | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    secret: bool = ...,
) -> bytes | None: ...


def binary(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
    secret: bool = False,
) -> bytes | None:
    """Bytes behind their length (Kafka's type ``bytes``); any buffer is taken when encoding."""
    return cast("bytes | None", _row("bytes", b"", locals()))


def record_set(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int = 0,
    ignorable: bool = False,
) -> Any:
    """A record set: decoded as a view of the frame, encoded from any buffer or a FileRegion."""
    return _row("records", None, locals())


@overload
def array(
    of: Callable[..., T],
    *,
    since: int = ...,
    until: int | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> list[T]: ...


@overload
def array(
    of: Callable[..., T],
    *,
    nullable_since: int,
    since: int = ...,
    until: int | None = ...,
    default: Unset | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> list[T] | None: ...


def array(
    of: Callable[..., T],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: Unset | None = UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T] | None:
    """Elements behind their count; ``of`` is a struct's class or a row without arguments."""
    options = locals()
    options.pop("of")
    element = Field("struct", struct=cast(Any, of)) if isinstance(of, type) else cast(Field, of())
    return cast("list[T] | None", _row("array", [], options | {"element": element}))


@overload
def struct(
    of: type[T],
    *,
    since: int = ...,
    until: int | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> T: ...


@overload
def struct(
    of: type[T],
    *,
    nullable_since: int,
    since: int = ...,
    until: int | None = ...,
    default: Unset | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> T | None: ...


def struct(
    of: type[T],
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    default: Unset | None = UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> T | None:
    """One struct in place; where it may be null, a byte before it says whether it is there."""
    options = locals()
    options.pop("of")
    return cast("T | None", _row("struct", UNSET, options | {"struct": of}))
