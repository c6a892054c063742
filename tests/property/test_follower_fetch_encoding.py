"""A follower's Fetch of one partition is encoded by hand: byte for byte as the rows would have it,
and with their errors."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from pyspark_klog.protocol.codec import (
    MessageCodec,
    codec_of,
    decode_message,
    encode_message,
    generated_codec,
    handwritten_codec,
)
from pyspark_klog.protocol.errors import ProtocolError

VERSIONS = (15, 16, 17)


def number(random: Random, bits: int) -> int:
    limit = 1 << (bits - 1)
    return random.choice((0, 1, -1, limit - 1, -limit, random.randrange(-limit, limit)))


def request_of_follower(random: Random) -> FetchRequest:
    partition = FetchPartition(
        partition=number(random, 32),
        current_leader_epoch=number(random, 32),
        fetch_offset=number(random, 64),
        last_fetched_epoch=number(random, 32),
        log_start_offset=number(random, 64),
        partition_max_bytes=number(random, 32),
    )
    return FetchRequest(
        replica_state=ReplicaState(
            replica_id=random.randrange(1 << 31), replica_epoch=number(random, 64)
        ),
        max_wait_ms=number(random, 32),
        min_bytes=number(random, 32),
        max_bytes=number(random, 32),
        isolation_level=number(random, 8),
        session_id=number(random, 32),
        session_epoch=number(random, 32),
        topics=[FetchTopic(topic_id=UUID(bytes=random.randbytes(16)), partitions=[partition])],
    )


def generated(request: FetchRequest, version: int) -> bytes:
    out = bytearray()
    generated_codec(FetchRequest, version).encode(request, out)
    return bytes(out)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_usual_request_is_written_as_the_rows_say_and_without_them(version: int) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("left to the generated encoder")

    random = Random(7)
    rows = generated_codec(FetchRequest, version)
    alone = handwritten_codec(FetchRequest, version, MessageCodec(rows.decode, fail))
    for _ in range(300):
        request = request_of_follower(random)
        out = bytearray(b"before")
        alone.encode(request, out)
        assert out == b"before" + generated(request, version)
        assert decode_message(FetchRequest, version, out, 6) == (request, len(out))


def both(request: Any) -> None:
    request.topics.append(FetchTopic(topic_id=UUID(int=1)))


UNUSUAL: dict[str, Callable[[Any], object]] = {
    "no topic": lambda request: request.topics.clear(),
    "two topics": both,
    "no partition": lambda request: request.topics[0].partitions.clear(),
    "two partitions": lambda request: request.topics[0].partitions.append(FetchPartition()),
    "forgotten": lambda request: request.forgotten_topics_data.append(
        ForgottenTopic(topic_id=UUID(int=1), partitions=[1])
    ),
    "rack": lambda request: setattr(request, "rack_id", "r"),
    "cluster": lambda request: setattr(request, "cluster_id", ""),
    "a consumer": lambda request: setattr(request, "replica_state", ReplicaState()),
    "an epoch without a number": lambda request: setattr(request.replica_state, "replica_id", -1),
    "directory": lambda request: setattr(
        request.topics[0].partitions[0], "replica_directory_id", UUID(int=5)
    ),
    "no state": lambda request: setattr(request, "replica_state", None),
    "a name": lambda request: setattr(request.topics[0], "topic", "name"),
}
TAGGED: dict[str, Callable[[Any], Any]] = {
    "request": lambda request: request,
    "topic": lambda request: request.topics[0],
    "partition": lambda request: request.topics[0].partitions[0],
    "state": lambda request: request.replica_state,
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", UNUSUAL)
def test_unusual_requests_are_written_as_the_rows_say(change: str, version: int) -> None:
    request = request_of_follower(Random(1))
    UNUSUAL[change](request)
    assert encode_message(request, version) == generated(request, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("where", TAGGED)
def test_unknown_tags_are_written(where: str, version: int) -> None:
    request = request_of_follower(Random(1))
    TAGGED[where](request).unknown_tagged_fields = {77: b"x"}
    encoded = encode_message(request, version)
    assert encoded == generated(request, version)
    assert b"\x4d\x01x" in encoded


WRONG: dict[str, Callable[[Any], object]] = {
    "an old replica id": lambda request: setattr(request, "replica_id", 1),
    "too large": lambda request: setattr(request, "session_epoch", 1 << 31),
    "an offset too large": lambda request: setattr(
        request.topics[0].partitions[0], "fetch_offset", 1 << 63
    ),
    "no number": lambda request: setattr(request, "max_bytes", "1"),
    "no list": lambda request: setattr(request, "topics", None),
    "no forgotten list": lambda request: setattr(request, "forgotten_topics_data", None),
    "no id": lambda request: setattr(request.topics[0], "topic_id", "x"),
    "no rack": lambda request: setattr(request, "rack_id", None),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", WRONG)
def test_what_the_rows_refuse_is_refused(change: str, version: int) -> None:
    request = request_of_follower(Random(1))
    WRONG[change](request)
    with pytest.raises(ProtocolError):
        encode_message(request, version)
    out = bytearray()
    with pytest.raises(Exception) as ours:
        codec_of(FetchRequest, version).encode(request, out)
    with pytest.raises(type(ours.value)):
        generated(request, version)
