"""Frames that kafka-python, aiokafka, kio and Kafka wrote: read as meant, written back the same."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.protocol.codec import decode_message, encode_message
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    decode_response_header,
    encode_request,
    encode_response,
)
from pyspark_klog.protocol.message import Message, Struct
from pyspark_klog.protocol.registry import find_api, is_known
from tests.support.protocol.kafka_before_api_versions import MAX_VERSIONS

FOLDER = Path(__file__).parent / "protocol"
WRITERS = ("kafka-python", "aiokafka", "kio", "kafka-3.9.1", "kafka-4.4.0")
HEADER = (0x01020304, "golden-ä")


@cache
def frames(writer: str) -> list[dict[str, Any]]:
    content: dict[str, Any] = json.loads((FOLDER / f"{writer}.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = content["frames"]
    return found


def values_of(message: Struct, version: int) -> list[Any]:
    """The untagged values of a version in the order of the wire, as the files have them."""

    def plain(value: Any) -> Any:
        if isinstance(value, Struct):
            return values_of(value, version)
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, bytes | memoryview):
            return {"hex": value.hex()}
        return value if value is None or isinstance(value, bool | int | float | str) else str(value)

    return [
        plain(getattr(message, name))
        for name, row in type(message).__fields__.items()
        if row.in_version(version) and row.tag is None
    ]


def flat(values: Any) -> list[Any]:
    """The leaves alone."""
    if isinstance(values, list):
        return [leaf for each in values for leaf in flat(each)]
    return [values]


def read(frame: dict[str, Any]) -> tuple[Message, bytes]:
    """The message of a frame, and what klog makes of it again."""
    key, version, data = frame["key"], frame["version"], bytes.fromhex(frame["hex"])
    if not frame["has_header"]:
        decoded, end = decode_message(find_api(key).response, version, data)
        assert end == len(data)
        return decoded, encode_message(decoded, version)
    if frame["kind"] == "request":
        header, request = decode_request(data)
        assert header == RequestHeader(key, version, *HEADER)
        return request, encode_request(header, request)[4:]
    correlation_id, tags, _ = decode_response_header(data, key, version)
    assert (correlation_id, dict(tags)) == (HEADER[0], {})
    response = decode_response(data, key, version)
    return response, encode_response(correlation_id, response, version)[4:]


@pytest.mark.parametrize("writer", WRITERS)
def test_frames_are_read_as_meant_and_written_back_the_same(writer: str) -> None:
    wrong = []
    for frame in frames(writer):
        name = f"{frame['kind']} {find_api(frame['key']).name} v{frame['version']}"
        try:
            message, again = read(frame)
        except Exception as error:
            wrong.append(f"{name}: {error}")
            continue
        # aiokafka groups some values otherwise; the bytes, written again, prove the groups.
        if flat(values_of(message, frame["version"])) != flat(frame["values"]):
            wrong.append(f"{name}: {message}")
        elif again.hex() != frame["hex"]:
            wrong.append(f"{name}: written back as {again.hex()}")
    assert not wrong


def test_the_files_cover_most_of_the_protocol() -> None:
    covered = {
        (frame["key"], frame["version"], frame["kind"])
        for writer in WRITERS
        for frame in frames(writer)
    }
    assert len(covered) > 400


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_old_releases_are_those_of_kafka_python() -> None:
    from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

    for release, versions in MAX_VERSIONS.items():
        theirs = BROKER_API_VERSIONS[tuple(map(int, release.split(".")))]
        # Their table has old versions of APIs between brokers, which no client sends.
        known = {
            key: limits
            for key, limits in theirs.items()
            if is_known(key) and find_api(key).min_version <= limits[1]
        }
        assert known == {int(key): (0, newest) for key, newest in versions.items()}
