"""The newest versions of the group APIs; test_group_apis_oracle.py of the peers asks Kafka, too."""

from typing import Any

import pytest

from klog_broker.coordinator.group.coordinator import MemberName
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
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
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyspark_klog.protocol.fields import UNKNOWN_OPERATIONS
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker, topic_ids
from tests.support.cluster.server import know_topics

NONE = ErrorCode.NONE
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
UNKNOWN_ID = UUID(int=77)
NO_ID = UUID(int=0)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = new_broker(
        with_kernel=False, offsets_topic_num_partitions=2, group_initial_rebalance_delay_ms=0
    )
    for _ in range(2):
        broker.call(FindCoordinatorRequest(key="g"), 3)
    return broker


def join(broker: MemoryBroker, version: int, member_id: str = "", **options: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return broker.call(JoinGroupRequest(**(fields | options)), version)


@pytest.mark.parametrize("letter", ["i", "\N{EURO SIGN}"])
def test_a_member_with_the_longest_name_has_an_id_that_can_be_encoded(
    broker: MemoryBroker, letter: str
) -> None:
    longest = letter * (32_767 // len(letter.encode()))
    joined = join(broker, 9, group_instance_id=longest)
    assert joined.error_code == NONE
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith(longest[:1_000])
    assert sync(broker, 4, joined, group_instance_id=longest).error_code == NONE
    assert broker.broker.services.requests.bugs.total == 0


def sync(broker: MemoryBroker, version: int, joined: Any, **options: Any) -> Any:
    given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    fields: dict[str, Any] = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": given,
    }
    return broker.call(SyncGroupRequest(**(fields | options)), version)


def commit(
    broker: MemoryBroker, version: int, topic: str | UUID, *partitions: int, **options: Any
) -> list[int]:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=each, committed_offset=40 + each, committed_metadata="m"
        )
        for each in partitions
    ]
    name = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    row = OffsetCommitRequestTopic(partitions=rows, **name)  # type: ignore[arg-type]
    answer = broker.call(OffsetCommitRequest(group_id="g", topics=[row], **options), version)
    (told,) = answer.topics
    assert topic == (told.name if isinstance(topic, str) else told.topic_id)
    return [each.error_code for each in told.partitions]


def fetch(broker: MemoryBroker, version: int, *groups: OffsetFetchRequestGroup) -> Any:
    return broker.call(OffsetFetchRequest(groups=list(groups)), version).groups


def offsets_in(group: Any) -> dict[tuple[Any, int], tuple[int, int]]:
    return {
        (topic.name or topic.topic_id, each.partition_index): (
            each.committed_offset,
            each.error_code,
        )
        for topic in group.topics
        for each in topic.partitions
    }


# --- members -------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [4, 5, 6, 7, 8, 9])
def test_a_member_joins_in_each_version(broker: MemoryBroker, version: int) -> None:
    given = join(broker, version)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert given.protocol_name == (None if version >= 7 else "")
    reason = {"reason": "why not"} if version >= 8 else {}
    joined = join(broker, version, given.member_id, **reason)
    assert (joined.error_code, joined.protocol_name) == (NONE, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert not joined.skip_assignment


@pytest.mark.parametrize("version", [8, 9])
def test_a_leader_that_was_replaced_leaves_the_assignment_as_it_is(
    broker: MemoryBroker, version: int
) -> None:
    old = join(broker, version, group_instance_id="i")
    follows = {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": "i"}
    assert sync(broker, 5, old, **follows).error_code == NONE
    new = join(broker, version, group_instance_id="i")
    assert (new.error_code, new.generation_id) == (NONE, old.generation_id)
    assert new.member_id != old.member_id
    if version == 9:
        assert (new.leader, new.skip_assignment) == (new.member_id, True)
        assert [each.member_id for each in new.members] == [new.member_id]
    else:
        assert (new.leader, new.skip_assignment) == (old.member_id, False)
        assert new.members == []
    assert sync(broker, 5, new, **follows).assignment == b"all"


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_syncing_member_gets_the_protocol(broker: MemoryBroker, version: int) -> None:
    joined = join(broker, 3)
    follows = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    told = sync(broker, version, joined, **follows)
    assert (told.error_code, told.assignment) == (NONE, b"all")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (told.protocol_type, told.protocol_name) == expected


@pytest.mark.parametrize(
    ("kind", "name"),
    [(None, None), ("consumer", None), (None, "range"), ("connect", "range"), ("consumer", "x")],
)
def test_a_member_that_syncs_another_protocol_is_refused(
    broker: MemoryBroker, kind: str | None, name: str | None
) -> None:
    joined = join(broker, 3)
    refused = sync(broker, 5, joined, protocol_type=kind, protocol_name=name)
    assert refused.error_code == INCONSISTENT
    assert sync(broker, 4, joined).error_code == NONE
    refused = sync(broker, 5, joined, protocol_type=kind, protocol_name=name)
    assert (refused.error_code, refused.assignment) == (INCONSISTENT, b"")


@pytest.mark.parametrize("version", [3, 4])
def test_heartbeats(broker: MemoryBroker, version: int) -> None:
    joined = join(broker, 3)
    request = HeartbeatRequest(
        group_id="g", member_id=joined.member_id, generation_id=joined.generation_id
    )
    assert broker.call(request, version).error_code == NONE
    request.generation_id += 1
    assert broker.call(request, version).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", [3, 4, 5])
def test_members_leave_together(broker: MemoryBroker, version: int) -> None:
    joined = join(broker, 3)
    members = [
        MemberIdentity(member_id=joined.member_id, reason="done" if version >= 5 else None),
        MemberIdentity(member_id="unknown"),
    ]
    told = broker.call(LeaveGroupRequest(group_id="g", members=members), version)
    codes = [each.error_code for each in told.members]
    assert (told.error_code, codes) == (NONE, [NONE, ErrorCode.UNKNOWN_MEMBER_ID])


def test_members_that_have_left_are_named_if_the_coordinator_then_moves(
    broker: MemoryBroker,
) -> None:
    joined = join(broker, 3)
    listed = [joined.member_id, *(f"gone-{number}" for number in range(2_000))]
    request = LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(member_id=each) for each in listed]
    )
    groups, stream = broker.broker.services.groups, broker.connect()
    partition = groups.partition_for("g")
    assert partition is not None
    stream.inbox += encode_request(RequestHeader(request.api_key, 3, 1, "me"), request)
    member = MemberName(joined.member_id)
    while groups.heartbeat("g", member, joined.generation_id) is not ErrorCode.UNKNOWN_MEMBER_ID:
        broker.broker.loop.run_turn(0)
    assert not stream.sent
    groups.on_resign(partition)
    broker.turns()
    told = answer_of(stream, request, 3)
    codes = [each.error_code for each in told.members]
    assert (told.error_code, codes[0], len(codes)) == (NONE, NONE, len(listed))
    assert codes[-1] == ErrorCode.NOT_COORDINATOR


# --- what tools see ------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [0, 3, 4, 5, 6])
def test_a_group_that_there_is_not_is_dead(broker: MemoryBroker, version: int) -> None:
    commit(broker, 9, "plain", 0)
    request = DescribeGroupsRequest(groups=["g", "gone"])
    found, gone = broker.call(request, version).groups
    assert (found.error_code, found.group_state, found.error_message) == (NONE, "Empty", None)
    assert gone.group_state == "Dead"
    if version >= 6:
        assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert gone.error_message == "there is no such group"
    else:
        assert (gone.error_code, gone.error_message) == (NONE, None)


def test_authorized_operations_of_a_group_are_answered_on_request(broker: MemoryBroker) -> None:
    commit(broker, 9, "plain", 0)
    asked = DescribeGroupsRequest(groups=["g", "gone"], include_authorized_operations=True)
    found, gone = broker.call(asked, 6).groups
    read, delete, describe = 3, 6, 8
    wanted = 1 << read | 1 << delete | 1 << describe
    assert found.authorized_operations & wanted == wanted
    assert gone.authorized_operations == UNKNOWN_OPERATIONS
    (found,) = broker.call(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert found.authorized_operations == UNKNOWN_OPERATIONS


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        ([], [], True),
        (["EMPTY"], ["Classic"], True),
        ([" empty"], [], True),
        (["Stable"], [], False),
        (["Stable", "Empty"], ["consumer", "classic"], True),
        ([], ["consumer"], False),
        ([], ["nonsense"], False),
    ],
)
def test_groups_are_listed_by_state_and_type(
    broker: MemoryBroker, states: list[str], types: list[str], is_listed: bool
) -> None:
    commit(broker, 9, "plain", 0)
    answer = broker.call(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    found = [(each.group_id, each.group_state, each.group_type) for each in answer.groups]
    assert found == ([("g", "Empty", "classic")] if is_listed else [])


@pytest.mark.parametrize("version", [4, 5, 6])
def test_share_groups_have_no_coordinator(broker: MemoryBroker, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=2)
    told = broker.call(request, version).coordinators
    assert [(each.key, each.error_code) for each in told] == [
        ("g", ErrorCode.INVALID_REQUEST),
        ("h", ErrorCode.INVALID_REQUEST),
    ]
    request.key_type = 0
    told = broker.call(request, version).coordinators
    assert [(each.key, each.error_code, each.node_id) for each in told] == [
        ("g", NONE, 0),
        ("h", NONE, 0),
    ]


# --- offsets -------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [7, 8, 9])
def test_offsets_are_committed_by_name(broker: MemoryBroker, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, version, "plain", 0, 9, 2) == [NONE, unknown, NONE]
    assert commit(broker, version, "gone", 0) == [unknown]
    (told,) = fetch(broker, version, whole("g")) if version >= 8 else fetch(broker, 9, whole("g"))
    assert offsets_in(told) == {("plain", 0): (40, NONE), ("plain", 2): (42, NONE)}


def whole(group: str) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=group, topics=None)


def test_offsets_are_committed_by_id(broker: MemoryBroker) -> None:
    plain, unknown = topic_ids()["plain"], ErrorCode.UNKNOWN_TOPIC_ID
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, 10, plain, 0, 9, 2) == [NONE, missing, NONE]
    assert commit(broker, 10, UNKNOWN_ID, 0, 1) == [unknown, unknown]
    assert commit(broker, 10, NO_ID, 0) == [unknown]
    (by_id,) = fetch(broker, 10, whole("g"))
    assert offsets_in(by_id) == {(plain, 0): (40, NONE), (plain, 2): (42, NONE)}
    (by_name,) = fetch(broker, 9, whole("g"))
    assert offsets_in(by_name) == {("plain", 0): (40, NONE), ("plain", 2): (42, NONE)}


def test_several_topics_are_answered_in_their_order(broker: MemoryBroker) -> None:
    ids = [UNKNOWN_ID, topic_ids()["plain"], NO_ID, topic_ids()["compacted"]]
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    listed = [OffsetCommitRequestTopic(topic_id=each, partitions=[row]) for each in ids]
    told = broker.call(OffsetCommitRequest(group_id="g", topics=listed), 10).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert [(each.topic_id, each.partitions[0].error_code) for each in told] == list(
        zip(ids, (unknown, NONE, unknown, NONE), strict=True)
    )


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a_member_whose_group_is_not_there(broker: MemoryBroker, version: int) -> None:
    topic = topic_ids()["plain"] if version >= 10 else "plain"
    member = {"member_id": "m", "generation_id_or_member_epoch": 1}
    gone = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert commit(broker, version, topic, 0, **member) == [gone]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_several_groups_are_fetched(broker: MemoryBroker, version: int) -> None:
    commit(broker, 9, "plain", 0, 1)
    plain = topic_ids()["plain"] if version >= 10 else "plain"
    field = "topic_id" if version >= 10 else "name"
    asked = OffsetFetchRequestTopics(partition_indexes=[1, 2], **{field: plain})
    named = OffsetFetchRequestGroup(group_id="g", topics=[asked])
    member = OffsetFetchRequestGroup(group_id="g", topics=[], member_id="m", member_epoch=3)
    told = fetch(broker, version, named, whole("other"), whole(""), member, whole("g"), whole("g"))
    assert [each.group_id for each in told] == ["g", "other", "", "g", "g"], "once as a whole"
    assert [each.error_code for each in told] == [0, 0, 0, 0, 0]
    found = [offsets_in(each) for each in told]
    assert found[0] == {(plain, 1): (41, NONE), (plain, 2): (-1, NONE)}
    assert found[1:] == [{}, {}, {}, {(plain, 0): (40, NONE), (plain, 1): (41, NONE)}]


@pytest.mark.parametrize("version", [1, 7, 9])
def test_a_topic_that_is_named_twice_is_answered_with_all_its_partitions(
    broker: MemoryBroker, version: int
) -> None:
    commit(broker, 9, "plain", 0, 1)
    if version >= 8:
        rows = [OffsetFetchRequestTopics(name="plain", partition_indexes=[each]) for each in (0, 1)]
        (told,) = fetch(broker, version, OffsetFetchRequestGroup(group_id="g", topics=rows))
    else:
        named = [OffsetFetchRequestTopic(name="plain", partition_indexes=[each]) for each in (0, 1)]
        told = broker.call(OffsetFetchRequest(group_id="g", topics=named), version)
    found = {
        each.partition_index: each.committed_offset
        for topic in told.topics
        for each in topic.partitions
    }
    assert found == {0: 40, 1: 41}


def test_offsets_of_topics_with_another_id_are_not_known(broker: MemoryBroker) -> None:
    """Offsets of a deleted or recreated topic are not those of the requested topic."""
    know_topics(broker.broker, ["short-lived-too"])
    commit(broker, 9, "plain", 0)
    commit(broker, 9, "short-lived-too", 0)
    old = topic_ids()["plain"]
    gone = broker.call(DeleteTopicsRequest(topic_names=["plain"]), 3)
    assert gone.responses[0].error_code == NONE
    asked = OffsetFetchRequestTopics(topic_id=old, partition_indexes=[0])
    named, everything = fetch(
        broker, 10, OffsetFetchRequestGroup(group_id="g", topics=[asked]), whole("g")
    )
    assert offsets_in(named) == {(old, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID)}
    assert [each[1] for each in offsets_in(everything).values()] == [NONE]


@pytest.mark.parametrize("version", [8, 10])
def test_while_there_is_no_coordinator_each_group_has_an_error(version: int) -> None:
    alone = new_broker(with_kernel=False)
    told = fetch(alone, version, whole("g"), whole("h"))
    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [(each.group_id, each.error_code) for each in told] == [("g", expected), ("h", expected)]
