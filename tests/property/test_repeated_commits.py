"""Commits that a connection repeats leave the same bytes and state as if each was decoded."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from tests.support.cluster.broker import MemoryBroker, new_broker, topic_ids
from tests.support.runtime.fake_network import FakeStream

TOPICS = ("plain",)
GROUPS = ["g", "another"]
FORMS: list[list[tuple[int, str | None]]] = [
    [(0, "")],
    [(1, "née")],
    [(0, None), (2, "m" * 300)],
    [(0, "m" * 5_000)],
]
"""Partitions, each with its metadata; of the last one too much."""


class Commit(NamedTuple):
    connection: int
    group: str
    form: int
    offset: int
    epoch: int


commits = st.builds(
    Commit,
    st.integers(0, 3),
    st.sampled_from(GROUPS),
    st.integers(0, len(FORMS) - 1),
    st.integers(0, 1 << 40),
    st.integers(-1, 5),
)
turns = st.lists(st.lists(commits, max_size=4, unique_by=lambda each: each.connection), max_size=8)


def start(**configs: Any) -> MemoryBroker:
    broker = new_broker(with_kernel=False, topics=TOPICS, offsets_topic_num_partitions=2, **configs)
    for _ in range(2):
        found = broker.call(FindCoordinatorRequest(key="g"), 3)
    assert found.error_code == 0
    return broker


def decode_each(broker: MemoryBroker) -> None:
    """Make the broker decode each request: no request is cached."""
    server = broker.broker.server
    serve = server.handle_frame

    def handle(frame: memoryview, slot: Any, connection: Any) -> bool:
        connection.forget_cached_requests()
        return serve(frame, slot, connection)

    server.handle_frame = handle


def send_commit(stream: FakeStream, commit: Commit, version: int) -> None:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=commit.offset + partition,
            committed_leader_epoch=commit.epoch if version >= 6 else -1,
            committed_metadata=metadata,
        )
        for partition, metadata in FORMS[commit.form]
    ]
    topic = OffsetCommitRequestTopic(name="plain", partitions=rows)
    if version >= 10:
        topic = OffsetCommitRequestTopic(topic_id=topic_ids(TOPICS)["plain"], partitions=rows)
    request = OffsetCommitRequest(
        group_id=commit.group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    header = RequestHeader(request.api_key, version, commit.offset % 1000, "c")
    stream.inbox += encode_request(header, request)


def kept(broker: MemoryBroker) -> list[Any]:
    return [broker.call(OffsetFetchRequest(group_id=each, topics=None), 7) for each in GROUPS]


def run(broker: MemoryBroker, rounds: list[list[Commit]], version: int) -> dict[str, Any]:
    streams = [broker.connect() for _ in range(4)]
    for number, asked in enumerate(rounds):
        broker.clock.advance(number)
        for each in asked:
            send_commit(streams[each.connection], each, version)
        broker.turns()
    return {**broker.state(), "kept": kept(broker)}


@settings(max_examples=60, deadline=None)
@given(turns, st.sampled_from([2, 5, 6, 7, 8, 10]), st.sampled_from([0, 1]))
def test_they_are_as_if_each_was_decoded(
    rounds: list[list[Commit]], version: int, codec: int
) -> None:
    # Each round twice: the second time it is known.
    rounds = [each for asked in rounds for each in (asked, asked)]
    configs = {"offsets_topic_compression_codec": codec}
    again, decoded = start(**configs), start(**configs)
    decode_each(decoded)
    assert run(again, rounds, version) == run(decoded, rounds, version)


@settings(max_examples=20, deadline=None)
@given(turns)
def test_a_restart_finds_the_committed_offsets(rounds: list[list[Commit]]) -> None:
    rounds = [each for asked in rounds for each in (asked, asked)]
    broker = start()
    before = run(broker, rounds, 7)["kept"]
    broker.close()
    after = MemoryBroker(broker.files, with_kernel=False, offsets_topic_num_partitions=2)
    assert kept(after) == before


def test_many_are_one_batch() -> None:
    """More than have an offset delta of one byte."""
    broker = start()
    streams = [broker.connect() for _ in range(150)]
    for offset in (1, 2):
        for number, stream in enumerate(streams):
            send_commit(stream, Commit(number, "g", 1, offset * 1000 + number, 0), 7)
        broker.turns()
    ends = [broker.log("__consumer_offsets", each).log_end_offset for each in range(2)]
    assert sum(ends) == 2 * len(streams)
    (topic,) = kept(broker)[0].topics
    assert [each.committed_offset for each in topic.partitions] == [2000 + 149 + 1]


def test_commits_that_come_at_once_have_each_its_own_answer() -> None:
    broker = start()
    stream = broker.connect()
    for offset in (1, 2):
        send_commit(stream, Commit(0, "g", 0, offset, 0), 7)
        broker.turns()
    for offset in (3, 4, 5):
        send_commit(stream, Commit(0, "g", 0, offset, 0), 7)
    broker.turns()
    numbers = []
    sent = bytes(stream.sent)
    while sent:
        size = int.from_bytes(sent[:4], "big")
        numbers.append(int.from_bytes(sent[4:8], "big"))
        sent = sent[4 + size :]
    assert numbers == [1, 2, 3, 4, 5]
