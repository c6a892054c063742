"""Compares klog's responses with those of both Kafkas, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.oracle.row import Row
from tests.support.oracle.rows import ROWS
from tests.support.oracle.steps import Case

ABSENT = "(absent)"

Responses = Sequence[Any]
"""The plain responses to a case's request and to its probes."""


@dataclass(frozen=True)
class Found:
    """A field in which klog equals neither Kafka that serves the version."""

    case: Case
    api: str
    path: str
    kafka: object
    """The value of the newest Kafka that serves the version."""
    klog: object

    def __str__(self) -> str:
        return f"{self.api} {self.path}: Kafka has {self.kafka!r:.300}, klog {self.klog!r:.300}"


def differences(
    case: Case, oldest: Responses | None, newest: Responses | None, klog: Responses
) -> list[Found]:
    """Where each response differs from both Kafkas'; None for a Kafka without the version.

    A response that equals either Kafka's response as a whole has no difference. If there are
    differences, those to the newest Kafka are returned, or those to the other Kafka if fewer.
    """
    found: list[Found] = []
    for number, ours in enumerate(klog):
        name = case.api
        if number:
            name += " > " + type(case.probes[number - 1].request).__name__.removesuffix("Request")
        sides = [
            [Found(case, name, *each) for each in compare("", side[number], ours)]
            for side in (newest, oldest)
            if side is not None
        ]
        found += min(sides, key=len)
    return found


def compare(path: str, kafka: Any, klog: Any) -> Iterator[tuple[str, object, object]]:
    """Each field that differs, with both values."""
    if isinstance(klog, dict) and isinstance(kafka, dict):
        for name in klog:
            inner = f"{path}.{name}" if path else name
            yield from compare(inner, kafka.get(name, ABSENT), klog[name])
    elif isinstance(klog, list) and isinstance(kafka, list) and len(klog) == len(kafka):
        for theirs, ours in zip(kafka, klog, strict=True):
            yield from compare(path, theirs, ours)
    elif klog != kafka:
        yield path, kafka, klog


def row_for(found: Found) -> Row | None:
    """The row of docs/differences-from-kafka.md that allows a difference."""
    for row in ROWS:
        is_named = row.api in (found.api, "") and (
            not row.field or found.path == row.field or found.path.startswith(f"{row.field}.")
        )
        if is_named and row.allows(found.case, found.kafka, found.klog):
            return row
    return None
