"""DeleteGroups and OffsetDelete: each version, long requests, and open transactions.

The responses in each state of a group are in tests/simulation/transcripts/delete_group.txt and
delete_offsets.txt.
"""

from typing import Any

import pytest

from klog_broker.coordinator.group.offset_cleanup import TOMBSTONES_AT_ONCE
from klog_broker.coordinator.shard import RecordProducer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.list_groups import ListGroupsRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.message import Request
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker
from tests.support.cluster.server import know_topics
from tests.support.runtime.fake_network import FakeStream

NONE, NOT_FOUND = ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
MANY = 6 * TOMBSTONES_AT_ONCE


@pytest.fixture
def broker() -> MemoryBroker:
    broker = new_broker(
        with_kernel=False, offsets_topic_num_partitions=2, group_initial_rebalance_delay_ms=0
    )
    for _ in range(2):
        broker.call(FindCoordinatorRequest(key="g"), 3)
    return broker


def commit(broker: MemoryBroker, group: str, topic: str = "plain", *partitions: int) -> None:
    rows = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=5)
        for each in partitions or (0,)
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)]
    )
    told = broker.call(request, 2).topics[0].partitions
    assert {each.error_code for each in told} == {NONE}


def join_request(group: str, kind: str = "consumer") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def join(broker: MemoryBroker, group: str, kind: str = "consumer") -> None:
    assert broker.call(join_request(group, kind), 3).error_code == NONE


def groups(broker: MemoryBroker) -> set[str]:
    return {each.group_id for each in broker.call(ListGroupsRequest(), 3).groups}


def kept(broker: MemoryBroker, group: str = "g") -> set[tuple[str, int]]:
    answer = broker.call(OffsetFetchRequest(group_id=group, topics=None), 7)
    return {(t.name, p.partition_index) for t in answer.topics for p in t.partitions}


def delete(broker: MemoryBroker, *names: str, version: int = 2) -> list[tuple[str, int]]:
    answer = broker.call(DeleteGroupsRequest(groups_names=list(names)), version)
    return [(each.group_id, each.error_code) for each in answer.results]


def offset_delete(group: str, **topics: list[int]) -> OffsetDeleteRequest:
    listed = [
        OffsetDeleteRequestTopic(
            name=topic.replace("_", "-"),
            partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers],
        )
        for topic, numbers in topics.items()
    ]
    return OffsetDeleteRequest(group_id=group, topics=listed)


def codes(answer: Any) -> dict[tuple[str, int], int]:
    assert answer.error_code == NONE
    return {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


# --- DeleteGroups --------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_group_has_its_own_result(broker: MemoryBroker, version: int) -> None:
    for group in ("g", "other", "with-members", "stays"):
        commit(broker, group)
    join(broker, "with-members")
    wanted = ("g", "with-members", "gone", "", "other", "g")
    assert delete(broker, *wanted, version=version) == [
        ("g", NONE),
        ("with-members", ErrorCode.NON_EMPTY_GROUP),
        ("gone", NOT_FOUND),
        ("", NOT_FOUND),
        ("other", NONE),
    ]
    assert groups(broker) == {"with-members", "stays"}
    assert kept(broker) == set()


def test_nothing_is_asked_for(broker: MemoryBroker) -> None:
    assert delete(broker) == []


def test_while_there_is_no_coordinator(broker: MemoryBroker) -> None:
    alone = new_broker(with_kernel=False)
    assert delete(alone, "g") == [("g", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    answer = alone.call(offset_delete("g", plain=[0]), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


def test_offsets_of_open_transactions_go_too(broker: MemoryBroker) -> None:
    """The group is not there when their markers come, also after a restart."""
    commit(broker, "g")
    shard = broker.broker.services.groups.shard_of("g")
    assert shard is not None
    for topic in ("plain", "small-segments"):
        key = OffsetCommitKey(group="g", topic=topic, partition=0)
        value = OffsetCommitValue(offset=9, metadata="", commit_timestamp=1)
        shard.append([(key, value)], RecordProducer(7, 0))
    assert shard.state.groups["g"].pending_offsets
    assert delete(broker, "g") == [("g", NONE)]
    assert groups(broker) == set()
    shard.state.apply_marker(RecordProducer(7, 0), is_commit=True)
    assert (groups(broker), kept(broker)) == (set(), set())


def put(stream: FakeStream, request: Request, version: int) -> None:
    stream.inbox += encode_request(RequestHeader(request.api_key, version, 1, "c"), request)


def begin_deleting(broker: MemoryBroker) -> tuple[FakeStream, FakeStream]:
    """A group with very many offsets, which a request on one connection has begun to delete."""
    know_topics(broker.broker, ["wide"], partitions=MANY)
    commit(broker, "g", "wide", *range(MANY))
    stream, other = broker.connect(), broker.connect()
    put(stream, DeleteGroupsRequest(groups_names=["g"]), 2)
    shard = broker.broker.services.groups.shard_of("g")
    assert shard is not None
    while len(shard.state.groups["g"].offsets) == MANY:
        broker.broker.loop.run_turn(0)
    assert not stream.sent
    return stream, other


def deleted(stream: FakeStream) -> list[int]:
    answer: Any = answer_of(stream, DeleteGroupsRequest(), 2)
    return [each.error_code for each in answer.results]


def test_very_many_offsets_are_deleted_in_parts(broker: MemoryBroker) -> None:
    stream, other = begin_deleting(broker)
    put(other, ListGroupsRequest(), 3)
    while not other.sent:
        broker.broker.loop.run_turn(0)
    assert not stream.sent, "others are served meanwhile"
    broker.turns()
    assert (deleted(stream), groups(broker)) == ([NONE], set())


LONG = "g" * 4_000
"""A group id so long that TOMBSTONES_AT_ONCE tombstones exceed max.message.bytes."""


def test_the_offsets_of_a_long_group_id_are_deleted_in_smaller_parts(broker: MemoryBroker) -> None:
    know_topics(broker.broker, ["wide"], partitions=TOMBSTONES_AT_ONCE)
    commit(broker, LONG, "wide", *range(TOMBSTONES_AT_ONCE))
    asked = offset_delete(LONG, wide=list(range(TOMBSTONES_AT_ONCE - 1)))
    assert set(codes(broker.call(asked, 0)).values()) == {NONE}
    assert kept(broker, LONG) == {("wide", TOMBSTONES_AT_ONCE - 1)}
    commit(broker, LONG, "wide", *range(TOMBSTONES_AT_ONCE))
    assert delete(broker, LONG) == [(LONG, NONE)]
    assert kept(broker, LONG) == set()
    assert groups(broker) == set()


def test_a_deletion_finishes_though_its_client_has_disconnected(broker: MemoryBroker) -> None:
    stream, _ = begin_deleting(broker)
    stream.is_at_end = True
    broker.turns()
    assert groups(broker) == set()


def test_a_group_that_somebody_joins_meanwhile_stays(broker: MemoryBroker) -> None:
    stream, other = begin_deleting(broker)
    put(other, join_request("g"), 3)
    broker.turns()
    assert (deleted(stream), groups(broker)) == ([ErrorCode.NON_EMPTY_GROUP], {"g"})


# --- OffsetDelete --------------------------------------------------------------------------------
def test_offsets_are_deleted_where_there_is_a_partition(broker: MemoryBroker) -> None:
    commit(broker, "g", "plain", 0, 1, 2)
    answer = broker.call(offset_delete("g", plain=[0, 2, 9], gone=[0], small_segments=[0, 0]), 0)
    assert codes(answer) == {
        ("plain", 0): NONE,
        ("plain", 2): NONE,
        ("plain", 9): UNKNOWN,
        ("gone", 0): UNKNOWN,
        ("small-segments", 0): NONE,
    }
    assert kept(broker) == {("plain", 1)}


@pytest.mark.parametrize(
    ("group", "error"), [("gone", NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)]
)
def test_a_group_that_there_is_not(broker: MemoryBroker, group: str, error: ErrorCode) -> None:
    answer = broker.call(offset_delete(group, plain=[0]), 0)
    assert (answer.error_code, answer.topics) == (error, [])


def test_members_that_are_no_consumers_keep_all_offsets(broker: MemoryBroker) -> None:
    commit(broker, "g")
    join(broker, "g", "connect")
    answer = broker.call(offset_delete("g", plain=[0]), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert kept(broker) == {("plain", 0)}


def test_each_of_very_many_offsets_has_its_result(broker: MemoryBroker) -> None:
    know_topics(broker.broker, ["wide"], partitions=MANY)
    commit(broker, "g", "wide", *range(MANY))
    found = codes(broker.call(offset_delete("g", wide=list(range(1, MANY + 1))), 0))
    assert len(found) == MANY
    assert [where for where, code in found.items() if code != NONE] == [("wide", MANY)]
    assert kept(broker) == {("wide", 0)}


def test_an_offset_of_an_open_transaction_is_deleted(broker: MemoryBroker) -> None:
    commit(broker, "g")
    shard = broker.broker.services.groups.shard_of("g")
    assert shard is not None
    key = OffsetCommitKey(group="g", topic="plain", partition=1)
    shard.append(
        [(key, OffsetCommitValue(offset=9, metadata="", commit_timestamp=1))], RecordProducer(7, 0)
    )
    broker.call(offset_delete("g", plain=[1]), 0)
    assert TopicPartition("plain", 1) not in shard.state.groups["g"].pending_offsets
