"""Finds all error codes in a response, for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pyspark_klog.protocol.message import Struct

_CODE = "error_code"


def error_codes(answer: Struct) -> Iterator[int]:
    """Yield every error code of a response, including NONE."""
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
    """Find the error codes in a struct class.

    Returns whether the class itself has one, its struct fields with error codes inside, and its
    array fields with error codes inside. The cache holds at most all classes of the protocol.
    """
    parts: list[str] = []
    arrays: list[str] = []
    for name, row in cls.__fields__.items():
        of = row.struct if row.element is None else row.element.struct
        if of is not None and not row.is_lazy and any(_places(of)):
            (parts if row.element is None else arrays).append(name)
    return _CODE in cls.__fields__, tuple(parts), tuple(arrays)
