"""Functions that declare the fields of messages: one row per field, for all versions.

A row gives the versions that have the field (``since`` to ``until``, both inclusive; by default all
later versions), the first version that allows null, the default, and the tag of a field in the
tagged section (KIP-482). A version without the field decodes to the default. Encoding another value
than the default in such a version is refused, unless the row is ``ignorable``.

For type checkers a row is the default value of a keyword argument: ``topic: str = string()``
declares an attribute ``topic: str`` and an optional argument of the constructor. In fact the call
returns a `Field`, which the metaclass in message.py removes from the class.
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
"""The value of a response's authorized operations (KIP-430) if the request did not ask for them."""


@dataclass(frozen=True, slots=True)
class FileRegion:
    """A record set that is sent directly from a file: ``size`` bytes from byte ``position`` on.

    ``file`` is a file descriptor or an object with ``fileno``, as the sender requires.
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
    """Declare a boolean of one byte: 0 is false, other values are true."""
    return cast(bool, _row("bool", False, locals()))


def int8(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Declare a signed integer of one byte."""
    return cast(int, _row("int8", 0, locals()))


def int16(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Declare a signed big-endian integer of two bytes."""
    return cast(int, _row("int16", 0, locals()))


def int32(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Declare a signed big-endian integer of four bytes."""
    return cast(int, _row("int32", 0, locals()))


def int64(
    *,
    since: int = 0,
    until: int | None = None,
    default: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> int:
    """Declare a signed big-endian integer of eight bytes."""
    return cast(int, _row("int64", 0, locals()))


def float64(
    *,
    since: int = 0,
    until: int | None = None,
    default: float = 0.0,
    tag: int | None = None,
    ignorable: bool = False,
) -> float:
    """Declare an IEEE 754 number of eight bytes."""
    return cast(float, _row("float64", 0.0, locals()))


def uuid(
    *,
    since: int = 0,
    until: int | None = None,
    default: UUID = NO_UUID,
    tag: int | None = None,
    ignorable: bool = False,
) -> UUID:
    """Declare a UUID of sixteen bytes; all zero means "none"."""
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
    """Declare a UTF-8 string of at most 32767 bytes, with a compact length in flexible versions."""
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
    """Declare a byte string (Kafka's type ``bytes``); encoders accept any buffer.

    A ``secret`` value is never shown: log lines and errors have ``***`` in its place.
    """
    return cast("bytes | None", _row("bytes", b"", locals()))


def record_set(
    *,
    since: int = 0,
    until: int | None = None,
    nullable_since: int = 0,
    ignorable: bool = False,
) -> Any:
    """Declare a record set, which decoders return as a view of the buffer that they read.

    Encoders accept any buffer, and into a `SegmentedBuffer` also a FileRegion: a part of a file,
    which is sent without a copy. Null is None.
    """
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
    """Declare an array. ``of`` declares the elements: the class of a struct, or a function of this
    module, such as int32."""
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
    """Declare an embedded struct. A nullable struct follows a byte that says whether it is null."""
    options = locals()
    options.pop("of")
    return cast("T | None", _row("struct", UNSET, options | {"struct": of}))
