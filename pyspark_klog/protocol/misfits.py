"""Finds the misfit: the field whose value made an encoder fail, so that the error can name it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.message import Field, Message, Struct

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool, int),
    "float64": (float, int),
    "uuid": (UUID,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "records": (bytes, bytearray, memoryview, FileRegion),
}


def describe_misfit(message: Message, version: int) -> str | None:
    """Describe the first value that does not fit its field; None if no misfit is found."""
    where = f"{type(message).__name__} v{version}"
    return next(_in_struct(message, version, where), None)


def _in_struct(value: Struct, version: int, where: str) -> Iterator[str]:
    for name, row in type(value).__fields__.items():
        if row.in_version(version):
            yield from _in_value(getattr(value, name), row, version, f"{where}: {name}")


def _in_value(value: Any, row: Field, version: int, where: str) -> Iterator[str]:
    if value is None:
        if not row.nullable_in(version):
            yield f"{where} is None, which this version cannot carry; expected {row.kind}"
        return
    if row.kind in _BITS:
        limit = 1 << (_BITS[row.kind] - 1)
        if not isinstance(value, int) or not -limit <= value < limit:
            yield f"{where} is {value!r}; expected {row.kind}"
    elif row.kind == "struct":
        assert row.struct is not None
        if type(value) is row.struct:
            yield from _in_struct(value, version, where)
        else:
            yield f"{where} is {value!r}; expected {row.struct.__name__}"
    elif row.kind == "array":
        assert row.element is not None
        if not isinstance(value, (list, tuple)):
            yield f"{where} is {value!r}; expected a list"
            return
        for index, item in enumerate(value):
            yield from _in_value(item, row.element, version, f"{where}[{index}]")
    elif not isinstance(value, _TYPES[row.kind]):
        yield f"{where} is {'***' if row.secret else repr(value)}; expected {row.kind}"
