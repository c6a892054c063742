"""The error codes in a response, wherever they stand: for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pyspark_klog.protocol.message import Struct

_CODE = "error_code"


def error_codes(answer: Struct) -> Iterator[int]:
    """Every error code of an answer, also those that say NONE."""
    has_code, parts, arrays = _places(type(answer))
    if has_code:
        yield answer.error_code  # type: ignore[attr-defined]
    for name in parts:
        part: Any = getattr(answer, name)
        if part is not None:
            yield from error_codes(part)
    for name in arrays:
        for each in getattr(answer, name) or ():
            yield from error_codes(each)


@lru_cache(None)
def _places(cls: type[Struct]) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
    """Whether structs of this class have a code of their own; their fields, and their arrays, whose
    structs have some. There are as many classes as the protocol has."""
    parts: list[str] = []
    arrays: list[str] = []
    for name, row in cls.__fields__.items():
        of = row.struct if row.element is None else row.element.struct
        if of is not None and not row.is_lazy and any(_places(of)):
            (parts if row.element is None else arrays).append(name)
    return _CODE in cls.__fields__, tuple(parts), tuple(arrays)
