"""Kafka's definitions of its messages, from the jars of its clients, next to klog's definitions.

Both are expanded into the wire format of one version of one message: a list of `Shape`, in order.
Thus it does not matter how either side keeps all versions in one declaration.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pyspark_klog.protocol.message import UNSET, Field, Message, Struct
from tests.support.peers import java, kafka_jars

_PRIMITIVES = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": "zero",
    "string": "",
    "bytes": b"",
    "records": None,
}


@dataclass(frozen=True)
class Shape:
    """A field in one version. ``kind`` is "[]" + an element's for arrays; structs have members."""

    name: str
    kind: str
    nullable: bool
    default: object
    tag: int | None
    ignorable: bool
    members: tuple[Shape, ...] = field(default=())


@cache
def definitions(release: str) -> dict[str, dict[str, Any]]:
    """Every message definition of a release ("3.9.1", "4.3.1"), by the message's name."""
    jar = kafka_jars(release) / f"kafka-clients-{release}.jar"
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = archive.read(name).decode()
                definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                found[definition["name"]] = definition
    return found


def definition_of(release: str, api_key: int, kind: str) -> dict[str, Any]:
    """The "request" or "response" of an API."""
    (found,) = (
        definition
        for definition in definitions(release).values()
        if definition.get("apiKey") == api_key and definition["type"] == kind
    )
    return found


def version_range(text: str) -> tuple[int, int] | None:
    """Kafka's "3+", "0-4", "2" and "none", inclusive."""
    if text == "none":
        return None
    if text.endswith("+"):
        return int(text[:-1]), 0x7FFF
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def is_in(text: str | None, version: int) -> bool:
    """Whether a version is in one of Kafka's ranges."""
    limits = version_range(text or "none")
    return limits is not None and limits[0] <= version <= limits[1]


def python_name(name: str) -> str:
    """``PartitionMaxBytes`` and ``topicId`` as attributes are called here."""
    spaced = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", spaced).lower()


def kafkas_shape(definition: dict[str, Any], version: int) -> tuple[Shape, ...]:
    """Return the wire format of a version as Kafka defines it."""
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}

    def shapes(fields: list[dict[str, Any]]) -> tuple[Shape, ...]:
        return tuple(shape(each) for each in fields if is_in(each["versions"], version))

    def shape(each: dict[str, Any]) -> Shape:
        element = each["type"].removeprefix("[]")
        members: tuple[Shape, ...] = ()
        if element not in _PRIMITIVES:
            members = shapes(each.get("fields") or common[element])
        return Shape(
            name=python_name(each["name"]),
            kind=each["type"],
            nullable=is_in(each.get("nullableVersions"), version),
            default=_kafkas_default(each),
            tag=each["tag"] if is_in(each.get("taggedVersions"), version) else None,
            ignorable=each.get("ignorable", False),
            members=members,
        )

    return shapes(definition["fields"])


def _kafkas_default(each: dict[str, Any]) -> object:
    default, kind = each.get("default"), each["type"]
    if default == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind not in _PRIMITIVES:
        return "new"
    if default is None:
        return _PRIMITIVES[kind]
    if kind == "bool":
        return default in (True, "true")
    if kind.startswith("int"):
        return int(default, 0) if isinstance(default, str) else default
    return default


def our_shape(cls: type[Struct], version: int) -> tuple[Shape, ...]:
    """Return the wire format of a version as klog defines it."""
    return tuple(
        _our_field(name, row, version)
        for name, row in cls.__fields__.items()
        if row.in_version(version)
    )


def _our_field(name: str, row: Field, version: int) -> Shape:
    element = row.element if row.kind == "array" else row
    assert element is not None
    kind = element.struct.__name__ if element.struct else element.kind
    default = row.default
    if row.default is UNSET:
        default = "new"
    elif row.kind == "uuid":
        default = "zero" if row.default.int == 0 else str(row.default)
    return Shape(
        name=name,
        kind="[]" * (row.kind == "array") + kind,
        nullable=row.nullable_in(version),
        default=default,
        tag=row.tag,
        ignorable=row.ignorable,
        members=our_shape(element.struct, version) if element.struct else (),
    )


def differences(
    theirs: tuple[Shape, ...], ours: tuple[Shape, ...], where: str
) -> list[tuple[str, str]]:
    """Return differences as (field or field.property, sentence); names are joined by dots."""
    found = []
    if [shape.name for shape in theirs] != [shape.name for shape in ours]:
        names = [shape.name for shape in theirs], [shape.name for shape in ours]
        return [(where, f"Kafka has {names[0]}, klog {names[1]}")]
    for their, our in zip(theirs, ours, strict=True):
        place = f"{where}.{their.name}"
        for name in ("kind", "nullable", "default", "tag", "ignorable"):
            a, b = getattr(their, name), getattr(our, name)
            if a != b or type(a) is not type(b):
                found.append((f"{place}:{name}", f"Kafka has {a!r}, klog {b!r}"))
        found += differences(their.members, our.members, place)
    return found


def flexible_from(definition: dict[str, Any]) -> int | None:
    """The first version that Kafka marks as flexible, None for never."""
    limits = version_range(definition["flexibleVersions"])
    return limits[0] if limits else None


def newest_released(definition: dict[str, Any]) -> int:
    """The newest version that is not marked unstable."""
    limits = version_range(definition["validVersions"])
    assert limits is not None
    return limits[1] - bool(definition.get("latestVersionUnstable"))


def struct_classes(cls: type[Message]) -> set[type[Struct]]:
    """A message's class and all of its structs'."""
    found: set[type[Struct]] = set()

    def walk(each: type[Struct]) -> None:
        found.add(each)
        for row in each.__fields__.values():
            inner = row.struct or (row.element.struct if row.element else None)
            if inner is not None:
                walk(inner)

    walk(cls)
    return found


def run_java(
    release: str, source: str, stdin: str = "", arguments: Sequence[str] = ()
) -> list[str]:
    """The lines that a source file of tests/support/java prints, with a release's jars."""
    finished = subprocess.run(
        [
            java(),
            "-cp",
            f"{kafka_jars(release)}{os.sep}*",
            str(Path(__file__).parents[1] / "java" / source),
            *arguments,
        ],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()
