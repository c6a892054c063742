"""The output of `klog consume`: formats records as lines of bytes."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from klog_broker.cli.common.tables import shown
from klog_broker.cli.records.record_reader import Columns, Headers
from pyspark_klog.records.record import TimestampType

FIELDS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "key", "value")
"""The fields of a record that can be printed."""

_TYPES = {
    TimestampType.NO_TIMESTAMP: "none",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The format of printed records: some fields, or all as JSON."""

    fields: tuple[str, ...] = ("value",)
    as_json: bool = False
    separator: bytes = b"\t"
    null_value: bytes = b"null"
    for_terminal: bool = False
    """Whether terminal control characters are escaped."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The fields of records that have to be decoded for printing."""
        return FIELDS if self.as_json else self.fields

    def lines(self, columns: Columns) -> bytes:
        """Return the printed lines of the records, each with its line end."""
        if self.as_json:
            return _json_lines(columns)
        if self.fields == ("value",):
            lines = self._texts(columns.values)
        else:
            texts = [self._column(columns, name) for name in self.fields]
            lines = [self.separator.join(each) for each in zip(*texts, strict=True)]
        if self.for_terminal:
            return b"".join(_escape_controls(line) + b"\n" for line in lines)
        return b"\n".join([*lines, b""])

    def _texts(self, values: Sequence[bytes | None]) -> list[bytes]:
        null = self.null_value
        return [null if each is None else each for each in values]

    def _column(self, columns: Columns, name: str) -> list[bytes]:
        of_all: dict[str, object] = {
            "topic": columns.partition.topic,
            "partition": columns.partition.partition,
        }
        if name in of_all:
            return [str(of_all[name]).encode()] * len(columns.offsets)
        if name == "timestamp_type":
            return [_type_name(each).encode() for each in columns.timestamp_types]
        if name == "headers":
            return [self._headers(each) for each in columns.headers]
        if name in ("key", "value"):
            return self._texts(columns.keys if name == "key" else columns.values)
        numbers = columns.offsets if name == "offset" else columns.timestamps_ms
        return [str(each).encode() for each in numbers]

    def _headers(self, headers: Headers) -> bytes:
        null = self.null_value
        pairs = ((name.encode(), null if value is None else value) for name, value in headers)
        return b",".join(b"%b:%b" % pair for pair in pairs)


def _escape_controls(line: bytes) -> bytes:
    text = line.decode(errors="backslashreplace")
    # Leave tabs unescaped: they separate the fields, and do no harm in a terminal.
    return "\t".join(map(shown, text.split("\t"))).encode()


def _type_name(number: int) -> str:
    return _TYPES[TimestampType(number)]


def _json_lines(columns: Columns) -> bytes:
    topic, partition = columns.partition
    encode: Callable[[object], str] = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":")
    ).encode
    lines = []
    for place, offset in enumerate(columns.offsets):
        fields: dict[str, object] = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": columns.timestamps_ms[place],
            "timestamp_type": _type_name(columns.timestamp_types[place]),
        }
        if columns.timestamps_ms[place] < 0:
            fields["timestamp"] = None
        _add_bytes(fields, "key", columns.keys[place])
        _add_bytes(fields, "value", columns.values[place])
        fields["headers"] = [_header(*each) for each in columns.headers[place]]
        lines.append(encode(fields))
    return "\n".join([*lines, ""]).encode()


def _header(name: str, value: bytes | None) -> dict[str, object]:
    fields: dict[str, object] = {"key": name}
    _add_bytes(fields, "value", value)
    return fields


def _add_bytes(fields: dict[str, object], name: str, data: bytes | None) -> None:
    """Add the bytes under ``name`` as text if they are UTF-8, otherwise under ``name_base64`` in
    base 64."""
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        fields[f"{name}_base64"] = base64.b64encode(data).decode()
