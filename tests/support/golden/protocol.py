"""Make the golden protocol frames again: python -m tests.support.golden.protocol [FOLDER].

kafka-python, aiokafka and kio each fill all of their own message classes with made-up values and
write them. No code of klog is used. A line of a file is one message: API key, version, request or
response, whether the header is in the bytes, the bytes in hex, and the written values, in the order
of the wire without names (structs and arrays are lists; bytes are {"hex": ...}; tagged fields are
in the bytes but not among the values).
"""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import sys
import uuid
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

GOLDEN_DIR = Path(__file__).parents[2] / "golden" / "protocol"
KEYS = {*range(4), *range(8, 52), 57, 60, 61, 64, 65, 66, 68, 69, 71, 72, 74, 75}
CORRELATION_ID, CLIENT_ID = 0x01020304, "golden-ä"

# InitProducerId 6 is unstable.
_UNRELEASED = {(22, 6)}
# Messages that aiokafka declares wrongly and never sends: requests of ListOffsets 4 and 5 (declared
# with an epoch of 8 bytes; Kafka's has 4), and DescribeAcls 2 (flexible; declared as version 1).
_AIOKAFKA_UNUSED = {(2, 4, "request"), (2, 5, "request"), (29, 2, "request"), (29, 2, "response")}


class Values:
    """Made-up values: each kind has its own run, so that mixed-up fields show."""

    def __init__(self) -> None:
        self.count = 0

    def next(self, kind: str) -> Any:
        self.count += 1
        number = self.count
        if kind == "bool":
            return number % 2 == 1
        if kind == "int8":
            return number % 100 + 1
        if kind in ("int16", "int32", "int64"):
            return number * {"int16": 7, "int32": 70_001, "int64": 7_000_000_001}[kind]
        if kind == "float64":
            return number / 8
        if kind == "string":
            return f"s{number}" if number % 5 else f"längerer Text Nummer {number}" * 6
        if kind == "bytes":
            return bytes([number & 0xFF]) * (number % 40)
        assert kind == "uuid", kind
        return uuid.UUID(int=(number << 64) + 5)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in (
        ("kafka-python", kafka_python_frames),
        ("aiokafka", aiokafka_frames),
        ("kio", kio_frames),
    ):
        frames = sorted(make(), key=lambda frame: (frame["key"], frame["kind"], frame["version"]))
        lines = ",\n".join(json.dumps(frame, ensure_ascii=False) for frame in frames)
        head = f'"written_by": "{name} {package_version(name)}",\n"frames"'
        (folder / f"{name}.json").write_text(f"{{{head}: [\n{lines}\n]}}\n", encoding="utf-8")
        print(f"{len(frames)} frames by {name}")


def frame(
    key: int, version: int, kind: str, has_header: bool, data: bytes, values: Any
) -> dict[str, Any]:
    return {
        "key": key,
        "version": version,
        "kind": kind,
        "has_header": has_header,
        "hex": data.hex(),
        "values": values,
    }


def plain(value: Any) -> Any:
    """A leaf as JSON can hold it."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return str(value) if isinstance(value, uuid.UUID) else value


# --- kafka-python ------------------------------------------------------------------------------


def kafka_python_frames() -> Iterator[dict[str, Any]]:
    from kafka.protocol.api_message import ApiMessage

    _import_all("kafka.protocol")
    for cls in sorted(_children(ApiMessage), key=lambda each: each.__name__):
        if getattr(cls, "_json", None) is None or cls.API_KEY not in KEYS:
            continue
        for version in range(cls.max_version + 1):
            if (cls.API_KEY, version) in _UNRELEASED or cls._class_version is not None:
                continue
            made = Values()
            arguments, values = _kafka_python_struct(cls._struct, version, made)
            message = cls(version=version, **arguments)
            if cls.is_request():
                message.with_header(correlation_id=CORRELATION_ID, client_id=CLIENT_ID)
            else:
                message.with_header(correlation_id=CORRELATION_ID)
            data = bytes(message.encode(header=True))
            kind = "request" if cls.is_request() else "response"
            yield frame(cls.API_KEY, version, kind, True, data, values)


def _kafka_python_struct(struct: Any, version: int, made: Values) -> tuple[dict[str, Any], Any]:
    arguments, values = {}, []
    for field in struct.fields.values():
        if not field.for_version_q(version):
            continue
        argument, value = _kafka_python_value(field, version, made)
        arguments[field.name] = argument
        if field.tag is None or not field.tagged_field_q(version):
            values.append(value)
    return arguments, values


def _kafka_python_value(field: Any, version: int, made: Values) -> tuple[Any, Any]:
    if field.is_struct_array():
        pairs = [_kafka_python_struct(field.array_of, version, made) for _ in range(2)]
        objects = [field.data_class(version=version, **arguments) for arguments, _ in pairs]
        return objects, [values for _, values in pairs]
    if field.is_array():
        leaves = [_kafka_python_leaf(field.array_of, made) for _ in range(2)]
        return [argument for argument, _ in leaves], [value for _, value in leaves]
    if field.is_struct():
        arguments, values = _kafka_python_struct(field, version, made)
        return field.data_class(version=version, **arguments), values
    return _kafka_python_leaf(field, made)


def _kafka_python_leaf(field: Any, made: Values) -> tuple[Any, Any]:
    if field.type_str == "bitfield":
        return {1, 4, 9}, (1 << 1) | (1 << 4) | (1 << 9)
    kind = "bytes" if field.type_str == "records" else field.type_str
    value = made.next(kind)
    return value, plain(value)


# --- aiokafka ----------------------------------------------------------------------------------


def aiokafka_frames() -> Iterator[dict[str, Any]]:
    from aiokafka.protocol.api import RequestStruct, Response

    _import_all("aiokafka.protocol")
    for base, kind in ((RequestStruct, "request"), (Response, "response")):
        for cls in sorted(_children(base), key=lambda each: each.__name__):
            if not isinstance(cls.API_KEY, int) or cls.API_KEY not in KEYS:
                continue
            if (cls.API_KEY, cls.API_VERSION, kind) in _AIOKAFKA_UNUSED:
                continue
            made = Values()
            pairs = [_aiokafka_value(each, made) for each in cls.SCHEMA.fields]
            arguments = [argument for argument, _ in pairs]
            values = [value for _, value in pairs]
            message = cls(*arguments)
            data = message.encode()
            if kind == "request":
                header = message.build_request_header(CORRELATION_ID, CLIENT_ID)
                data = header.encode() + data
            kept = [value for value in values if value is not _TAGS]
            yield frame(cls.API_KEY, cls.API_VERSION, kind, kind == "request", data, kept)


_TAGS = object()


def _aiokafka_value(kind: Any, made: Values) -> tuple[Any, Any]:
    from aiokafka.protocol import types

    if isinstance(kind, types.Array):
        pairs = [_aiokafka_value(kind.array_of, made) for _ in range(2)]
        return [argument for argument, _ in pairs], [value for _, value in pairs]
    if isinstance(kind, types.Schema):
        pairs = [_aiokafka_value(each, made) for each in kind.fields]
        values = [value for _, value in pairs if value is not _TAGS]
        return [argument for argument, _ in pairs], values
    if kind is types.TaggedFields:
        return {}, _TAGS
    names: dict[Any, str] = {
        types.Int8: "int8",
        types.Int16: "int16",
        types.Int32: "int32",
        types.Int64: "int64",
        types.Float64: "float64",
        types.Boolean: "bool",
        types.Bytes: "bytes",
        types.CompactBytes: "bytes",
    }
    value = made.next("string" if isinstance(kind, types.String) else names[kind])
    return value, plain(value)


# --- kio ---------------------------------------------------------------------------------------


def kio_frames() -> Iterator[dict[str, Any]]:
    from kio.schema.index import api_key_map
    from kio.serial import entity_writer

    for key, name in api_key_map.items():
        if key not in KEYS:
            continue
        package = importlib.import_module(f"kio.schema.{name}")
        for info in pkgutil.iter_modules(package.__path__):
            version = int(info.name.removeprefix("v"))
            if (key, version) in _UNRELEASED:
                continue
            for kind in ("request", "response"):
                module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
                title = "".join(word.title() for word in name.split("_")) + kind.title()
                cls: Any = next(
                    each
                    for found, each in vars(module).items()
                    if found.lower() == title.lower() and is_dataclass(each)
                )
                message, values = _kio_struct(cls, Values())
                header_cls: Any = cls.__header_schema__
                words: dict[str, Any] = {"correlation_id": CORRELATION_ID}
                if kind == "request":
                    words |= {
                        "request_api_key": key,
                        "request_api_version": version,
                        "client_id": CLIENT_ID,
                    }
                buffer = io.BytesIO()
                entity_writer(header_cls)(buffer, header_cls(**words))
                entity_writer(cls)(buffer, message)
                yield frame(key, version, kind, True, buffer.getvalue(), values)


def _kio_struct(cls: Any, made: Values) -> tuple[Any, Any]:
    arguments, values = {}, []
    for field in dataclass_fields(cls):
        argument, value = _kio_value(field, made)
        arguments[field.name] = argument
        if "tag" not in field.metadata:
            values.append(value)
    return cls(**arguments), values


def _kio_value(field: Any, made: Values) -> tuple[Any, Any]:
    from kio.serial._introspect import classify_field

    shape = classify_field(field)
    name = type(shape).__name__
    if name == "EntityField":
        return _kio_struct(shape.type_, made)
    if name == "EntityTupleField":
        pairs = [_kio_struct(shape.type_, made) for _ in range(2)]
        return tuple(argument for argument, _ in pairs), [value for _, value in pairs]
    kind = field.metadata["kafka_type"]
    if name == "PrimitiveTupleField":
        leaves = [_kio_leaf(kind, made) for _ in range(2)]
        return tuple(argument for argument, _ in leaves), [value for _, value in leaves]
    return _kio_leaf(kind, made)


def _kio_leaf(kind: str, made: Values) -> tuple[Any, Any]:
    from kio.schema.errors import ErrorCode

    if kind == "error_code":
        number = made.next("int8")
        return ErrorCode(number), number
    if kind in ("timedelta_i32", "timedelta_i64"):
        number = made.next("int32")
        return timedelta(milliseconds=number), number
    if kind == "datetime_i64":
        number = made.next("int64")
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=number), number
    value = made.next("bytes" if kind == "records" else kind)
    return value, plain(value)


# --- looking into packages ---------------------------------------------------------------------


def _import_all(name: str) -> None:
    package = importlib.import_module(name)
    for info in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not info.name.endswith("generate_stubs"):
            importlib.import_module(info.name)


def _children(cls: type) -> set[Any]:
    found: set[Any] = set(cls.__subclasses__())
    return found.union(*(_children(each) for each in found))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN_DIR)
