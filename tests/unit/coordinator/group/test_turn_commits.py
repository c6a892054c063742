"""Commits of several connections in one turn: one batch a shard, one response each."""

from typing import Any
from uuid import UUID

import pytest

from klog_broker.coordinator.group.commits import Commit, commit_value
from klog_broker.coordinator.shard import Shard
from klog_broker.log.errors import LogStorageError
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker
from tests.support.records.record_sets import iterate

OFFSETS = "__consumer_offsets"
NONE = ErrorCode.NONE


def start(**configs: str) -> MemoryBroker:
    broker = new_broker(
        with_kernel=False, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1
    )
    given = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    topic = CreatableTopic(name=OFFSETS, num_partitions=1, replication_factor=1, configs=given)
    assert broker.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    assert broker.call(FindCoordinatorRequest(key="g"), 3).error_code == 0
    return broker


def commit(
    offset: int, group: str = "g", partition: int = 0, *, metadata: str = "", **member: Any
) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    named = {"generation_id_or_member_epoch": -1, "member_id": "", **member}
    topic = OffsetCommitRequestTopic(name="plain", partitions=[row])
    return OffsetCommitRequest(group_id=group, topics=[topic], **named)


def in_one_turn(broker: MemoryBroker, *requests: tuple[Request, int]) -> list[Any]:
    """Send each request on its own connection; return the responses, None for a missing one."""
    streams = [broker.connect() for _ in requests]
    broker.turns()
    for number, (stream, (request, version)) in enumerate(zip(streams, requests, strict=True)):
        header = RequestHeader(request.api_key, version, number, "test")
        stream.inbox += encode_request(header, request)
    before = broker.broker.loop.turn
    broker.turns()
    assert broker.broker.loop.turn == before + 1
    return [
        answer_of(stream, request, version) if stream.sent else None
        for stream, (request, version) in zip(streams, requests, strict=True)
    ]


def commits(broker: MemoryBroker, *requests: OffsetCommitRequest) -> list[int]:
    answers = in_one_turn(broker, *((request, 7) for request in requests))
    return [answer.topics[0].partitions[0].error_code for answer in answers]


def batches(broker: MemoryBroker, from_offset: int) -> list[int]:
    """How many records each batch of the log has."""
    log = broker.log(OFFSETS)
    counts = []
    while from_offset < log.log_end_offset:
        region = log.read(from_offset, 1, min_one_batch=True).region
        data = region.file.pread(region.size, region.position)
        counts.append(len(list(iterate(data))))
        from_offset += counts[-1]
    return counts


def kept(broker: MemoryBroker, group: str = "g", partition: int = 0) -> int:
    topic = OffsetFetchRequestTopic(name="plain", partition_indexes=[partition])
    answer = broker.call(OffsetFetchRequest(group_id=group, topics=[topic]), 7)
    return int(answer.topics[0].partitions[0].committed_offset)


def member(broker: MemoryBroker) -> dict[str, Any]:
    """The only member of the group "g", which waits for its assignment."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = broker.call(request, 3)
    assert joined.error_code == 0
    return {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}


def test_they_are_one_batch_and_the_later_one_of_a_partition_counts() -> None:
    broker = start()
    assert commits(broker, commit(5), commit(1, "other"), commit(6), commit(7, partition=1)) == [
        *[NONE] * 4
    ]
    assert batches(broker, 0) == [4]
    found = [kept(broker), kept(broker, "other"), kept(broker, partition=1)]
    assert found == [6, 1, 7]


def test_each_has_its_own_error() -> None:
    broker = start()
    answers = commits(
        broker,
        commit(5),
        commit(6, generation_id_or_member_epoch=4, member_id="nobody"),
        commit(7, metadata="x" * 5_000),
        commit(8, "other"),
    )
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert answers == [NONE, ErrorCode.ILLEGAL_GENERATION, too_large, NONE]
    assert batches(broker, 0) == [2]
    assert (kept(broker), kept(broker, "other")) == (5, 8)


@pytest.mark.parametrize(("letter", "limit"), [("x", 4096), ("é", 4096), ("€", 4096), ("😀", 2048)])
def test_metadata_is_limited_in_characters_as_java_counts_them(letter: str, limit: int) -> None:
    broker = start()
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    stream = broker.connect()
    # For the second request there is a shortcut: it is like the one before on its connection.
    for count, code in ((limit, NONE), (limit, NONE), (limit + 1, too_large)):
        request = commit(5, metadata=letter * count)
        stream.inbox += encode_request(RequestHeader(request.api_key, 7, 1, "test"), request)
        broker.turns()
        assert answer_of(stream, request, 7).topics[0].partitions[0].error_code == code
        stream.sent.clear()


def test_a_member_that_is_fenced_before_the_append_commits_nothing() -> None:
    broker = start()
    name = member(broker)
    leave = LeaveGroupRequest(group_id="g", member_id=name["member_id"])
    committed, left = in_one_turn(broker, (commit(5, **name), 7), (leave, 1))
    assert left.error_code == NONE
    assert committed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert kept(broker) == -1


def test_what_is_more_than_a_batch_may_hold_becomes_several() -> None:
    broker = start(max_message_bytes="400")
    one = [commit(n, f"group-{n}") for n in range(9)]
    assert commits(broker, *one, commit(9, metadata="x" * 400), commit(10)) == [
        *[NONE] * 9,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        NONE,
    ]
    sizes = batches(broker, 0)
    assert sum(sizes) == 10
    assert 1 < len(sizes) < 10
    assert [kept(broker, f"group-{n}") for n in range(9)] == list(range(9))


def test_a_failed_append_fails_all_commits_of_the_turn(monkeypatch: Any) -> None:
    broker = start()
    log = broker.log(OFFSETS)
    with monkeypatch.context() as patched:

        def append(*_: Any, **__: Any) -> None:
            raise LogStorageError("no room")

        patched.setattr(log, "append_plain", append)
        answers = commits(broker, commit(5), commit(6, "other"))
    assert answers == [ErrorCode.NOT_COORDINATOR] * 2
    assert (kept(broker), log.log_end_offset) == (-1, 0)
    assert commits(broker, commit(5)) == [NONE]


def test_records_that_cannot_be_applied_fail_all_commits_of_the_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(
        "klog_broker.coordinator.group.shard_state.GroupShardState.store_offset", fail
    )
    assert commits(broker, commit(5), commit(6, "other")) == [ErrorCode.NOT_COORDINATOR] * 2
    assert "apply-failed" in caplog.text
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert broker.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR


def test_one_wait_is_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = start(flush_messages="1")
    broker.helpers.is_held = True
    waits = []
    when_visible = Shard.when_visible

    def count(shard: Any, callback: Any) -> None:
        waits.append(callback)
        when_visible(shard, callback)

    monkeypatch.setattr(Shard, "when_visible", count)
    streams = in_one_turn(broker, (commit(5), 7), (commit(6, "other"), 7))
    assert streams == [None, None]
    assert len(waits) == 1
    broker.helpers.release()
    broker.turns()
    assert (kept(broker), kept(broker, "other")) == (5, 6)


@pytest.mark.parametrize(
    ("length", "code"), [(4096, NONE), (4097, ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_metadata_may_be_as_long_as_the_limit(length: int, code: ErrorCode) -> None:
    broker = start()
    assert commits(broker, commit(5, metadata="m" * length)) == [code]


def test_the_first_generation_of_a_group_that_is_not_there_commits_nothing() -> None:
    broker = start()
    (code,) = commits(broker, commit(5, generation_id_or_member_epoch=0, member_id="m"))
    assert code == ErrorCode.ILLEGAL_GENERATION
    assert kept(broker) == -1


@pytest.mark.parametrize(("expire_ms", "keeps_id"), [(-1, True), (0, False), (7, False)])
def test_a_commit_with_an_expiry_names_no_topic_id(expire_ms: int, keeps_id: bool) -> None:
    """The version of the record that has an expiry cannot hold a topic id."""
    topic_id = TopicId(UUID(int=5))
    asked = Commit(
        partition=TopicPartition("plain", 0),
        offset=5,
        leader_epoch=-1,
        metadata="",
        topic_id=topic_id,
        expire_ms=expire_ms,
    )
    value = commit_value(asked, 1_000)
    assert value.topic_id == (topic_id if keeps_id else NO_TOPIC_ID)
