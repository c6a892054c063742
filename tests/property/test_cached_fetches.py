"""A Fetch that is recognised by its bytes gets the response of a decoded one, byte for byte."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.fetch.cached_fetch import CachedFetch
from klog_broker.fetch.changing_fields import find_changing_fields
from klog_broker.fetch.partition_read import ReadPartition
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_request_header,
    encode_request,
)
from tests.support.cluster.broker import ME, NOW_MS, MemoryBroker, new_broker, topic_ids
from tests.support.raw_requests import batch
from tests.support.runtime.fake_network import FakeStream

TOPICS = ("plain", "small-segments", "flushed")
PARTITIONS = [("plain", 0), ("plain", 1), ("plain", 2), ("small-segments", 0), ("flushed", 0)]
VERSIONS = range(4, 19)
FIRST_VERSION_WITH_REPLICA_STATE = 15
OTHER = BrokerId(7)

SESSION_ID_AT = 15
"""Position of the session id in a response of version 12 or newer."""


class Client:
    """A connection, and the session that it has."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.stream: FakeStream = broker.connect()
        self.session_id = 0
        self.epoch = 0
        self.requests = 0
        self._seen_bytes = 0
        self._asked_epoch = -1

    def send_fetch(self, frame: bytes, epoch: int) -> None:
        self.requests += 1
        self._asked_epoch = epoch
        self.stream.inbox += frame

    def see(self) -> None:
        """Process a response: note the session, if it began one, or its next epoch."""
        sent = bytes(self.stream.sent[self._seen_bytes :])
        self._seen_bytes += len(sent)
        if not sent or self._asked_epoch < 0:
            return
        if self._asked_epoch == 0:
            self.session_id = int.from_bytes(sent[SESSION_ID_AT : SESSION_ID_AT + 4], "big")
        self.epoch = self._asked_epoch + 1
        self._asked_epoch = -1


Step = Callable[[MemoryBroker, list[Client]], None]


def fetch_frame(
    version: int,
    correlation_id: int,
    offsets: dict[tuple[str, int], int],
    client_id: str | None = "c",
    last_fetched_epoch: int = -1,
    **options: Any,
) -> bytes:
    topics: dict[str, FetchTopic] = {}
    for (name, partition), offset in offsets.items():
        where: dict[str, Any] = {"topic": name}
        if version >= 13:
            where = {"topic_id": topic_ids(TOPICS).get(name, UUID(int=9))}
        topic = topics.setdefault(name, FetchTopic(**where))
        row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=300)
        if version >= 12:
            row.last_fetched_epoch = last_fetched_epoch
        topic.partitions.append(row)
    request = FetchRequest(max_bytes=500, topics=list(topics.values()), **options)
    return encode_request(RequestHeader(1, version, correlation_id, client_id), request)


@st.composite
def writes(draw: st.DrawFn) -> Step:
    topic, partition = draw(st.sampled_from(PARTITIONS))
    value = b"v" * draw(st.sampled_from((1, 250, 400)))

    def run(broker: MemoryBroker, _: list[Client]) -> None:
        leader = broker.broker.services.replicas.led.get((topic, partition))
        if leader is None:
            return  # The topic was deleted.
        log = leader.log
        log.append_as_leader(batch(value), leader_epoch=log.leader_epoch, now_ms=NOW_MS)
        broker.broker.loop.run_turn(0)

    return run


@st.composite
def fetches(draw: st.DrawFn) -> Step:
    """One shape several times, with other offsets, and a write in between."""
    shape = draw(st.integers(0, 3))
    number = draw(st.integers(0, 1))
    version = (12, 18, 4, draw(st.sampled_from(VERSIONS)))[shape]
    places = (PARTITIONS[:1], PARTITIONS[:3], PARTITIONS, [("unknown", 0), *PARTITIONS[3:]])[shape]
    rounds = draw(
        st.lists(st.lists(st.integers(-1, 6), min_size=5, max_size=5), min_size=1, max_size=6)
    )
    kind = draw(st.sampled_from(("whole", "begin", "next", "next", "next", "wrong")))
    write = draw(writes())
    wait_ms = draw(st.sampled_from((0, 0, 100)))
    last_epoch = draw(st.sampled_from((-1, -1, -1, 0, 7)))

    def run(broker: MemoryBroker, clients: list[Client]) -> None:
        client = clients[number]
        for offsets in rounds:
            options: dict[str, Any] = {}
            epoch = -1
            if shape < 2:
                epoch = {"whole": -1, "begin": 0, "next": client.epoch, "wrong": 9}[kind]
                options = {"session_epoch": epoch, "session_id": client.session_id}
            frame = fetch_frame(
                version,
                client.requests,
                dict(zip(places, offsets, strict=False)),
                last_fetched_epoch=last_epoch,
                max_wait_ms=wait_ms,
                min_bytes=1,
                isolation_level=shape % 2,
                **options,
            )
            client.send_fetch(frame, epoch)
            broker.turns()
            client.see()
            if offsets[0] == 0:
                write(broker, clients)

    return run


def trim(broker: MemoryBroker, _: list[Client]) -> None:
    log = broker.log("plain")
    log.delete_records_before(min(1, log.high_watermark))
    broker.broker.loop.run_turn(0)


def wait(broker: MemoryBroker, _: list[Client]) -> None:
    broker.clock.advance(100)
    broker.broker.loop.run_turn(0)


def retain(broker: MemoryBroker, _: list[Client]) -> None:
    """Segments before the newest record go."""
    leader = broker.broker.services.replicas.led.get(("small-segments", 0))
    if leader is None:
        return
    leader.log.delete_records_before(max(leader.log.high_watermark - 1, 0))
    leader.log.apply_retention(NOW_MS)
    broker.broker.loop.run_turn(0)


def roll(broker: MemoryBroker, _: list[Client]) -> None:
    broker.log("plain").roll(NOW_MS)


def resign(broker: MemoryBroker, _: list[Client]) -> None:
    """Another broker leads the partition until ``lead``."""
    broker.assign("plain", leader=OTHER, replicas=(ME, OTHER))


def cut_and_lead(broker: MemoryBroker, _: list[Client]) -> None:
    """As a follower the broker loses its newest record; it leads again later, in a new epoch."""
    resign(broker, _)
    log = broker.log("plain")
    log.truncate_async(max(log.log_end_offset - 1, log.log_start_offset), lambda _: None)
    broker.turns()
    lead(broker, _)


def lead(broker: MemoryBroker, _: list[Client]) -> None:
    hosted = broker.broker.services.replicas.partition("plain", 0)
    assert hosted is not None
    epoch = hosted.epochs.leader_epoch + 1
    broker.assign("plain", leader_epoch=epoch)


def delete(broker: MemoryBroker, _: list[Client]) -> None:
    broker.call(DeleteTopicsRequest(topic_names=["small-segments"], timeout_ms=1000), 5)


def run(steps: list[Step]) -> list[bytes]:
    """Return the bytes that each connection received."""
    broker = new_broker(with_kernel=False, topics=TOPICS)
    clients = [Client(broker), Client(broker)]
    for step in steps:
        step(broker, clients)
        broker.turns()
        for client in clients:
            client.see()
    broker.clock.advance(1000)
    broker.turns()
    sent = [bytes(client.stream.sent) for client in clients]
    broker.close()
    return sent


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            fetches(),
            fetches(),
            fetches(),
            writes(),
            st.sampled_from((trim, wait, wait)),
            st.sampled_from((retain, roll, resign, lead, cut_and_lead)),
        ),
        max_size=12,
    )
)
def test_cached_fetches_get_the_same_responses_as_others(steps: list[Step]) -> None:
    with_kept = run([*steps, delete, *steps[:3]])
    with mock.patch.object(CachedFetch, "serve", lambda *_: False):
        without = run([*steps, delete, *steps[:3]])
    assert with_kept == without


@pytest.mark.parametrize("is_of_follower", [False, True])
def test_the_same_fetch_is_recognised(
    is_of_follower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    serve = CachedFetch.serve

    def counted(kept: CachedFetch, frame: memoryview, slot: Any) -> bool:
        nonlocal taken
        is_served = serve(kept, frame, slot)
        taken += is_served
        return is_served

    monkeypatch.setattr(CachedFetch, "serve", counted)
    broker = new_broker(with_kernel=False, topics=TOPICS)
    for version in VERSIONS:
        taken = 0
        stream = broker.connect()
        for number in range(5):
            options: dict[str, Any] = {}
            if is_of_follower and version >= FIRST_VERSION_WITH_REPLICA_STATE:
                options["replica_state"] = ReplicaState(replica_id=OTHER, replica_epoch=1)
            elif is_of_follower:
                options["replica_id"] = OTHER
            offsets = dict.fromkeys(PARTITIONS, number)
            stream.inbox += fetch_frame(version, number, offsets, **options)
            broker.turns()
        assert taken == 4, version


@pytest.mark.parametrize("version", VERSIONS)
def test_the_holes_are_where_the_fields_are(version: int) -> None:
    offsets = {place: 1000 + number for number, place in enumerate(PARTITIONS)}
    options = {"session_epoch": 77} if version >= 7 else {}
    frame = fetch_frame(version, 5, offsets, **options)[4:]
    _, position = decode_request_header(frame)
    holes = find_changing_fields(frame, version, position)
    assert holes is not None
    assert [int.from_bytes(frame[at : at + 8], "big") for at in holes.offsets_at] == list(
        offsets.values()
    )
    if version >= 7:
        assert int.from_bytes(frame[holes.epoch_at : holes.epoch_at + 4], "big") == 77
    pieces = dict(holes.pieces(frame))
    assert sum(map(len, pieces.values())) == len(frame) - 4 - 4 * (version >= 7) - 8 * len(offsets)
    assert all(frame.startswith(piece, at) for at, piece in pieces.items())


@given(st.sampled_from(VERSIONS), st.data())
def test_a_damaged_request_has_no_holes_or_decodes(version: int, data: st.DataObject) -> None:
    frame = bytearray(fetch_frame(version, 5, dict.fromkeys(PARTITIONS, 3))[4:])
    _, position = decode_request_header(frame)
    at = data.draw(st.integers(position, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    holes = find_changing_fields(bytes(frame), version, position)
    if holes is not None:
        try:
            _, request = decode_request(frame)
        except MalformedRequest:
            return  # The request is not cached then.
        assert isinstance(request, FetchRequest)
        found = [each.fetch_offset for topic in request.topics for each in topic.partitions]
        read = [int.from_bytes(frame[at : at + 8], "big", signed=True) for at in holes.offsets_at]
        assert found == read


def test_a_cached_fetch_does_not_hold_a_deleted_log() -> None:
    broker = new_broker(with_kernel=False, topics=TOPICS)
    stream = broker.connect()
    for number in range(3):
        stream.inbox += fetch_frame(12, number, {("flushed", 0): 0}, session_epoch=0)
        broker.turns()
    log = weakref.ref(broker.log("flushed"))
    broker.call(DeleteTopicsRequest(topic_names=["flushed"], timeout_ms=1000), 5)
    gc.collect()
    assert log() is None


def test_a_failure_behind_the_answer_does_not_answer_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = new_broker(with_kernel=False, topics=TOPICS)
    stream = broker.connect()
    frames = [fetch_frame(12, number, {("plain", 0): 0}) for number in range(3)]
    for frame in frames[:2]:
        stream.inbox += frame
        broker.turns()
    one_answer = len(stream.sent) // 2

    def fail(_: ReadPartition) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(ReadPartition, "release_records", fail)
        stream.inbox += frames[2]
        broker.turns()
    assert len(stream.sent) == 3 * one_answer
    assert broker.broker.services.requests.bugs.total == 1
    stream.inbox += frames[0]
    broker.turns()
    assert len(stream.sent) == 4 * one_answer
