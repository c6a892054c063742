"""Make the golden frames between brokers: python -m tests.support.golden.protocol_java [FOLDER].

No Python package here has these messages, nor the versions that are new in Kafka 4.4. Kafka writes
them, with values made up by the fields of its own definitions; nothing of klog's codecs is used.
The files are like those of golden/protocol.py.
"""

import base64
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.support.golden.protocol import (
    CLIENT_ID,
    CORRELATION_ID,
    GOLDEN_DIR,
    Values,
    frame,
    plain,
)
from tests.support.peers import KAFKA_4_4, OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import definition_of, is_in, run_java

VERSIONS = {
    # Between brokers, at an inter.broker.protocol.version of 3.5 to 3.9.
    OLDEST_KAFKA: {4: 7, 5: 4, 6: 8, 7: 3, 56: 3, 67: 0},
    KAFKA_4_4: {18: 5, 28: 6, 42: 3},
}
"""The version of each API whose messages a release writes."""


def main(folder: Path) -> None:
    """Write a file for each release."""
    for release in VERSIONS:
        _write_frames(folder, release)


def _write_frames(folder: Path, release: str) -> None:
    frames, lines = [], []
    for key, version in VERSIONS[release].items():
        for kind in ("request", "response"):
            definition = definition_of(release, key, kind)
            common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
            given, values = _struct(definition["fields"], common, version, Values())
            words = (kind, key, version, CORRELATION_ID, CLIENT_ID, json.dumps(given))
            lines.append(" ".join(map(str, words)))
            frames.append((key, version, kind, values))
    written = run_java(release, "ProtocolFrames.java", "\n".join(lines))
    rows = [
        frame(key, version, kind, True, bytes.fromhex(data), values)
        for (key, version, kind, values), data in zip(frames, written, strict=True)
    ]
    text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    head = f'"written_by": "Apache Kafka {release}",\n"frames"'
    path = folder / f"kafka-{release}.json"
    path.write_text(f"{{{head}: [\n{text}\n]}}\n", encoding="utf-8")
    print(f"{len(rows)} frames by Apache Kafka {release}")


def _struct(
    fields: list[dict[str, Any]], common: dict[str, Any], version: int, made: Values
) -> tuple[dict[str, Any], list[Any]]:
    """The struct as Kafka's JSON has it, and its untagged values in order."""
    given, values = {}, []
    for each in fields:
        if not is_in(each["versions"], version):
            continue
        inner = each.get("fields") or common.get(each["type"].removeprefix("[]"))
        count = 2 if each["type"].startswith("[]") else 1
        pairs = [
            _struct(inner, common, version, made)
            if inner
            else _leaf(each["type"].removeprefix("[]"), made)
            for _ in range(count)
        ]
        is_array = each["type"].startswith("[]")
        name = each["name"][0].lower() + each["name"][1:]
        given[name] = [pair[0] for pair in pairs] if is_array else pairs[0][0]
        if "tag" not in each:
            values.append([pair[1] for pair in pairs] if is_array else pairs[0][1])
    return given, values


def _leaf(kind: str, made: Values) -> tuple[Any, Any]:
    value = made.next(kind)
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("="), plain(value)
    return value, plain(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN_DIR)
