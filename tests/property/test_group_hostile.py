"""Any values in requests of groups: each is answered, none is a bug, and a group still works."""

from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
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
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, new_broker, topic_ids

TEXTS = st.sampled_from(["", "g", "g", "plain", "__consumer_offsets", "ü" * 40, "x" * 32_767])
NULLABLE = st.one_of(st.none(), TEXTS)
NUMBERS = st.sampled_from([-(2**31), -2, -1, -1, 0, 0, 1, 2**31 - 1])
OFFSETS = st.sampled_from([-(2**63), -1, 0, 2**63 - 1])
BYTES = st.sampled_from([b"", b"\0", b"\0\0\0\0\0\1\0\5plain", b"\xff" * 40, b"x" * 5_000])
PARTITIONS = st.lists(NUMBERS, max_size=3)
TIMES_MS = st.sampled_from([-(2**31), -1, 0, 10_000, 2**31 - 1])
NEWEST_COMMIT = 10


def topic_id_values() -> st.SearchStrategy[UUID]:
    known = topic_ids()["plain"]
    return st.sampled_from([UUID(int=0), UUID(int=1), known, known])


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=3)


def made(kind: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


def commit(version: int) -> st.SearchStrategy[Request]:
    by_id = version >= NEWEST_COMMIT
    where = {"topic_id": topic_id_values()} if by_id else {"name": TEXTS}
    rows = made(
        OffsetCommitRequestPartition,
        partition_index=NUMBERS,
        committed_offset=OFFSETS,
        committed_leader_epoch=NUMBERS,
        committed_metadata=NULLABLE,
    )
    return made(
        OffsetCommitRequest,
        group_id=TEXTS,
        generation_id_or_member_epoch=NUMBERS,
        member_id=TEXTS,
        group_instance_id=NULLABLE,
        topics=some(made(OffsetCommitRequestTopic, partitions=some(rows), **where)),
    )


def fetch(version: int) -> st.SearchStrategy[Request]:
    by_id = version >= NEWEST_COMMIT
    where = {"topic_id": topic_id_values()} if by_id else {"name": TEXTS}
    topics = some(made(OffsetFetchRequestTopics, partition_indexes=PARTITIONS, **where))
    group = made(
        OffsetFetchRequestGroup,
        group_id=TEXTS,
        member_id=NULLABLE,
        member_epoch=NUMBERS,
        topics=st.one_of(st.none(), topics),
    )
    return made(OffsetFetchRequest, groups=some(group), require_stable=st.booleans())


def requests() -> list[tuple[int, st.SearchStrategy[Request]]]:
    member = {"group_id": TEXTS, "generation_id": NUMBERS, "member_id": TEXTS}
    join = made(
        JoinGroupRequest,
        group_id=TEXTS,
        session_timeout_ms=TIMES_MS,
        rebalance_timeout_ms=TIMES_MS,
        member_id=TEXTS,
        group_instance_id=NULLABLE,
        protocol_type=st.sampled_from(["", "consumer", "connect"]),
        protocols=some(made(JoinGroupRequestProtocol, name=TEXTS, metadata=BYTES)),
        reason=NULLABLE,
    )
    sync = made(
        SyncGroupRequest,
        **member,
        group_instance_id=NULLABLE,
        protocol_type=NULLABLE,
        protocol_name=NULLABLE,
        assignments=some(made(SyncGroupRequestAssignment, member_id=TEXTS, assignment=BYTES)),
    )
    gone = made(MemberIdentity, member_id=TEXTS, group_instance_id=NULLABLE, reason=NULLABLE)
    rows = some(made(OffsetDeleteRequestPartition, partition_index=NUMBERS))
    deleted = some(made(OffsetDeleteRequestTopic, name=TEXTS, partitions=rows))
    return [
        (9, join),
        (5, sync),
        (4, made(HeartbeatRequest, **member, group_instance_id=NULLABLE)),
        (5, made(LeaveGroupRequest, group_id=TEXTS, members=some(gone))),
        (8, commit(8)),
        (9, commit(9)),
        (10, commit(10)),
        (8, fetch(8)),
        (10, fetch(10)),
        (2, made(DeleteGroupsRequest, groups_names=some(TEXTS))),
        (0, made(OffsetDeleteRequest, group_id=TEXTS, topics=deleted)),
        (5, made(ListGroupsRequest, states_filter=some(TEXTS), types_filter=some(TEXTS))),
        (
            6,
            made(
                DescribeGroupsRequest,
                groups=some(TEXTS),
                include_authorized_operations=st.booleans(),
            ),
        ),
        (
            6,
            made(
                FindCoordinatorRequest,
                key_type=st.sampled_from([-128, -1, 0, 2, 3, 127]),
                coordinator_keys=some(TEXTS),
            ),
        ),
    ]


ASKED = st.deferred(
    lambda: st.one_of(*(st.tuples(st.just(version), each) for version, each in requests()))
)


@cache
def broker() -> MemoryBroker:
    broker = new_broker(
        with_kernel=False, offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0
    )
    for _ in range(2):
        broker.call(FindCoordinatorRequest(key="g"), 3)
    return broker


def a_member_works(broker: MemoryBroker) -> None:
    """A member joins, commits and leaves; then its group is deleted."""
    commit_row = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(topic_id=topic_ids()["plain"], partitions=[commit_row])
    joined = broker.call(
        JoinGroupRequest(
            group_id="of-others",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        9,
    )
    name = {"group_id": "of-others", "member_id": joined.member_id}
    synced = broker.call(
        SyncGroupRequest(
            **name,
            generation_id=joined.generation_id,
            protocol_type="consumer",
            protocol_name="range",
        ),
        5,
    )
    committed = broker.call(
        OffsetCommitRequest(
            **name, generation_id_or_member_epoch=joined.generation_id, topics=[topic]
        ),
        10,
    )
    codes = [joined.error_code, synced.error_code, committed.topics[0].partitions[0].error_code]
    member = MemberIdentity(member_id=joined.member_id)
    left = broker.call(LeaveGroupRequest(group_id="of-others", members=[member]), 5)
    deleted = broker.call(DeleteGroupsRequest(groups_names=["of-others"]), 2)
    codes += [left.members[0].error_code, deleted.results[0].error_code]
    assert codes == [0] * 5


@settings(max_examples=200, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=8))
def test_each_is_answered_and_a_group_still_works(asked: list[tuple[int, Request]]) -> None:
    served = broker()
    for version, request in asked:
        stream = served.send(request, version)
        is_parked = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        assert stream.sent or is_parked
        assert not stream.is_closed
        stream.is_at_end = True
        served.turns()
    assert served.broker.services.requests.bugs.total == 0
    a_member_works(served)
