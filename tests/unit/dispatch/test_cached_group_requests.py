"""Heartbeats and commits that a connection repeats are answered as if each was the first."""

from collections.abc import Callable
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
)
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker, topic_ids

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
Row = tuple[int, int, int, str | None]


class Repeating:
    """One connection that asks again and again."""

    def __init__(self, decoded: list[object]) -> None:
        self.decoded = decoded
        """Grows with each request that was decoded."""
        self.broker: MemoryBroker = new_broker(
            with_kernel=False, offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0
        )
        for _ in range(2):
            found = self.broker.call(FindCoordinatorRequest(key="g"), 3)
        assert found.error_code == 0
        self._stream = self.broker.connect()
        self._correlation_id = 70_000

    def send_request(self, request: Request, version: int, *, again: bool) -> Any:
        """``again`` is whether it is expected to be served as the one before."""
        self._correlation_id += 1
        header = RequestHeader(request.api_key, version, self._correlation_id, "cliént")
        self._stream.inbox += encode_request(header, request)
        before = len(self.decoded)
        self.broker.turns()
        assert (len(self.decoded) == before) == again
        answer = answer_of(self._stream, request, version)
        sent = bytes(self._stream.sent)
        assert len(sent) == 4 + int.from_bytes(sent[:4], "big")
        found = decode_response_header(sent[4:], request.api_key, version)
        assert found[0] == self._correlation_id
        self._stream.sent.clear()
        return answer

    def join(self, instance: str | None = None) -> dict[str, Any]:
        """A member alone in its group, stable."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            group_instance_id=instance,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = self.broker.call(request, 5 if instance else 3)
        assert joined.error_code == NONE
        name = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        synced = self.broker.call(
            SyncGroupRequest(group_id="g", group_instance_id=instance, **name), 3
        )
        assert synced.error_code == NONE
        return {**name, "group_instance_id": instance}

    def beat(self, name: dict[str, Any], version: int = 3, *, again: bool) -> int:
        request = HeartbeatRequest(group_id="g", **name)
        return int(self.send_request(request, version, again=again).error_code)

    def commit(
        self, *rows: Row, version: int = 7, again: bool, topic: str = "plain", **name: Any
    ) -> list[int]:
        found = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            for partition, offset, epoch, metadata in rows
        ]
        by = {"topic_id": topic_ids()[topic]} if version >= 10 else {"name": topic}
        topics = [OffsetCommitRequestTopic(partitions=found, **by)]  # type: ignore[arg-type]
        named = {"member_id": "", "generation_id_or_member_epoch": -1, **name}
        request = OffsetCommitRequest(group_id="g", topics=topics, **named)
        answer = self.send_request(request, version, again=again).topics
        assert [each.topic_id if version >= 10 else each.name for each in answer] == [*by.values()]
        told = answer[0].partitions
        assert [each.partition_index for each in told] == [row[0] for row in rows]
        return [each.error_code for each in told]

    def kept(self) -> dict[tuple[str, int], tuple[int, int, str]]:
        answer = self.broker.call(OffsetFetchRequest(group_id="g", topics=None), 7)
        return {
            (topic.name, each.partition_index): (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
            )
            for topic in answer.topics
            for each in topic.partitions
        }


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Repeating:
    decoded: list[object] = []
    decode: Callable[..., Any] = decode_request_header

    def counted(frame: memoryview) -> Any:
        decoded.append(frame)
        return decode(frame)

    monkeypatch.setattr("klog_broker.dispatch.dispatcher.decode_request_header", counted)
    return Repeating(decoded)


# --- Heartbeat -----------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_repeated_heartbeat_gets_the_present_state_of_the_group(
    group: Repeating, version: int
) -> None:
    name = group.join()
    assert group.beat(name, version, again=False) == NONE
    assert group.beat(name, version, again=True) == NONE
    other = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    group.broker.send(other, 3)
    assert group.beat(name, version, again=True) == REBALANCE
    leave = LeaveGroupRequest(group_id="g", member_id=name["member_id"])
    assert group.broker.call(leave, 1).error_code == NONE
    assert group.beat(name, version, again=True) == UNKNOWN
    stale = {**name, "generation_id": 9}
    assert group.beat(stale, version, again=False) == UNKNOWN


def test_a_repeated_heartbeat_keeps_its_member_alive(group: Repeating) -> None:
    name = group.join()
    assert group.beat(name, again=False) == NONE
    for _ in range(4):
        group.broker.clock.advance(9_000)
        group.broker.turns()
        assert group.beat(name, again=True) == NONE
    group.broker.clock.advance(11_000)
    group.broker.turns()
    assert group.beat(name, again=True) == UNKNOWN


def test_a_static_member_whose_place_was_taken_is_fenced(group: Repeating) -> None:
    name = group.join("one")
    assert group.beat(name, again=False) == NONE
    assert group.beat(name, again=True) == NONE
    assert group.join("one")["member_id"] != name["member_id"]
    assert group.beat(name, again=True) == ErrorCode.FENCED_INSTANCE_ID


def test_other_versions_and_members_are_distinguished(group: Repeating) -> None:
    name = group.join()
    assert group.beat(name, 1, again=False) == NONE
    assert group.beat(name, 2, again=False) == NONE
    assert group.beat({**name, "member_id": "x" * len(name["member_id"])}, 2, again=False) == (
        UNKNOWN
    )
    assert group.beat(name, 2, again=False) == NONE


# --- OffsetCommit --------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [2, 3, 5, 6, 7, 8, 9, 10])
def test_a_commit_of_the_same_partitions_is_recognized(group: Repeating, version: int) -> None:
    epochs = (1, 2, 3, 4) if version >= 6 else (-1, -1, -1, -1)
    first = [(0, 5, epochs[0], "née"), (2, 6, epochs[1], None)]
    assert group.commit(*first, version=version, again=False) == [NONE, NONE]
    newer = [(0, 1 << 40, epochs[2], "née"), (2, 8, epochs[3], None)]
    assert group.commit(*newer, version=version, again=True) == [NONE, NONE]
    assert group.kept() == {
        ("plain", 0): (1 << 40, epochs[2], "née"),
        ("plain", 2): (8, epochs[3], ""),
    }


@pytest.mark.parametrize(
    "row", [(1, 5, 1, "a"), (0, 5, 1, "b"), (0, 5, 1, ""), (0, 5, 1, None), (0, 5, 1, "longer")]
)
def test_another_partition_or_other_metadata_is_another_commit(group: Repeating, row: Row) -> None:
    assert group.commit((0, 4, 1, "a"), again=False) == [NONE]
    assert group.commit(row, again=False) == [NONE]
    assert group.kept()["plain", row[0]] == (5, 1, row[3] or "")


def test_a_member_that_may_not_commit_any_more_is_refused(group: Repeating) -> None:
    joined = group.join()
    name = {
        "member_id": joined["member_id"],
        "generation_id_or_member_epoch": joined["generation_id"],
    }
    assert group.commit((0, 4, 1, ""), (1, 4, 1, ""), again=False, **name) == [NONE, NONE]
    leave = LeaveGroupRequest(group_id="g", member_id=joined["member_id"])
    assert group.broker.call(leave, 1).error_code == NONE
    assert group.commit((0, 5, 1, ""), (1, 5, 1, ""), again=True, **name) == [UNKNOWN] * 2
    assert group.kept()["plain", 0] == (4, 1, "")


def test_a_commit_to_a_deleted_topic_is_checked_again(group: Repeating) -> None:
    assert group.commit((0, 4, 1, ""), again=False) == [NONE]
    assert group.commit((0, 4, 1, ""), again=True) == [NONE]
    gone = group.broker.call(DeleteTopicsRequest(topic_names=["plain"]), 3)
    assert gone.responses[0].error_code == NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert group.commit((0, 5, 1, ""), again=False) == [unknown]
    assert group.commit((0, 5, 1, ""), again=False) == [unknown]


def test_a_partition_named_twice_is_decoded_each_time(group: Repeating) -> None:
    for offset in (4, 5):
        rows = [(0, offset, 1, ""), (0, offset + 10, 1, "")]
        assert group.commit(*rows, again=False) == [NONE, NONE]
        assert group.kept()["plain", 0] == (offset + 10, 1, "")


def test_a_commit_with_an_expiry_of_its_own_is_decoded_each_time(group: Repeating) -> None:
    for _ in range(2):
        rows = [(0, 4, -1, "")]
        assert group.commit(*rows, version=3, again=False, retention_time_ms=1_000) == [NONE]


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_several_topics_and_long_texts_are_recognized(group: Repeating, version: int) -> None:
    """Lengths above 127 take two bytes as varints."""
    ids = topic_ids()
    metadata = "m" * 200
    # The response has the order of the request.
    names = ["small-segments", "plain", "compacted"]

    def commit_offset(offset: int, *, again: bool) -> list[tuple[Any, int]]:
        rows = [
            OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_metadata=metadata
            )
        ]
        topics = [
            OffsetCommitRequestTopic(topic_id=ids[name], partitions=rows)
            if version >= 10
            else OffsetCommitRequestTopic(name=name, partitions=rows)
            for name in names
        ]
        request = OffsetCommitRequest(group_id="g" * 130, topics=topics)
        answer = group.send_request(request, version, again=again).topics
        return [
            (each.topic_id if version >= 10 else each.name, each.partitions[0].error_code)
            for each in answer
        ]

    expected = [(ids[name] if version >= 10 else name, NONE) for name in names]
    assert commit_offset(5, again=False) == expected
    assert commit_offset(6, again=True) == expected
    answer = group.broker.call(OffsetFetchRequest(group_id="g" * 130, topics=None), 7)
    assert {each.name: each.partitions[0].committed_offset for each in answer.topics} == (
        dict.fromkeys(names, 6)
    )


def test_a_commit_to_a_recreated_topic_is_checked_again(group: Repeating) -> None:
    """The name is that of another topic now: its id tells."""
    topic_id = topic_ids()["plain"]
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=4)]
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=rows)
    request = OffsetCommitRequest(group_id="g", topics=[topic])

    def commit_offset(*, again: bool) -> int:
        (told,) = group.send_request(request, 10, again=again).topics
        assert told.topic_id == topic_id
        return int(told.partitions[0].error_code)

    assert (commit_offset(again=False), commit_offset(again=True)) == (NONE, NONE)
    gone = group.broker.call(DeleteTopicsRequest(topic_names=["plain"]), 3)
    assert gone.responses[0].error_code == NONE
    again = CreatableTopic(name="plain", num_partitions=3, replication_factor=1)
    made = group.broker.call(CreateTopicsRequest(topics=[again]), 7)
    assert made.topics[0].error_code == NONE
    assert commit_offset(again=False) == ErrorCode.UNKNOWN_TOPIC_ID
    assert commit_offset(again=False) == ErrorCode.UNKNOWN_TOPIC_ID
    assert group.kept() == {}


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a_member_of_an_unknown_group_is_refused_each_time(group: Repeating, version: int) -> None:
    name = {"member_id": "m", "generation_id_or_member_epoch": 1}
    gone = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    for again in (False, True):
        assert group.commit((0, 5, 1, ""), version=version, again=again, **name) == [gone]


def test_a_commit_with_tagged_fields_is_decoded_each_time(group: Repeating) -> None:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=4)]
    rows[0].unknown_tagged_fields = {7: b"new"}
    topic = OffsetCommitRequestTopic(name="plain", partitions=rows)
    for _ in range(2):
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        (told,) = group.send_request(request, 9, again=False).topics
        assert told.partitions[0].error_code == NONE
