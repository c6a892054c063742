"""The group APIs on a running broker, by raw requests: every version served, restarts, refusals."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
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
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("groups") / "data", SETTINGS) as running:
        with RawClient(running.address) as client:
            create_topic(client, "t", 2)
            find(client, "any")
        yield running


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient(broker.address, client_id="c") as connected:
        yield connected


def create_topic(client: RawClient, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
    assert response.topics[0].error_code == 0


def find(client: RawClient, group: str, version: int = 3) -> Any:
    """Find the group's coordinator, and wait until the broker has made the offsets topic and loaded
    the group: until then it answers any heartbeat with NONE, as Kafka does."""
    found: list[Any] = []

    def served() -> bool:
        request = FindCoordinatorRequest(key=group)
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=[group])
        response = client.call(request, version)
        found.append(response.coordinators[0] if version >= 4 else response)
        return bool(found[-1].error_code == 0)

    def loaded() -> bool:
        described = client.call(DescribeGroupsRequest(groups=[group]), 3).groups[0]
        return bool(described.error_code == 0)

    eventually(served, what="the coordinator is there")
    eventually(loaded, what="the coordinator has loaded the group")
    return found[-1]


def join_request(
    group: str,
    member_id: str = "",
    session_ms: int = 10_000,
    *,
    instance: str | None = None,
    metadata: bytes = b"subscription",
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(client: RawClient, group: str, version: int = 4) -> tuple[str, int]:
    """A new member alone in its group, stable: its id and generation."""
    reply = client.call(join_request(group), version)
    if version >= 4:
        assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
        reply = client.call(join_request(group, reply.member_id), version)
    assert reply.error_code == 0
    assert reply.leader == reply.member_id
    assert [m.metadata for m in reply.members] == [b"subscription"]
    assignment = SyncGroupRequestAssignment(member_id=reply.member_id, assignment=b"all")
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=reply.generation_id,
        member_id=reply.member_id,
        assignments=[assignment],
    )
    assert client.call(sync, min(version, 3)).assignment == b"all"
    return reply.member_id, reply.generation_id


def leave_all(
    client: RawClient, group: str, *member_ids: str, instance: str | None = None
) -> list[int]:
    """An error for each of them."""
    members = [MemberIdentity(member_id=id_, group_instance_id=instance) for id_ in member_ids]
    response = client.call(LeaveGroupRequest(group_id=group, members=members), 3)
    assert response.error_code == 0
    assert [(m.member_id, m.group_instance_id) for m in response.members] == [
        (id_, instance) for id_ in member_ids
    ]
    return [m.error_code for m in response.members]


def commit(
    client: RawClient,
    group: str,
    offsets: dict[tuple[str, int], int],
    version: int = 6,
    *,
    member_id: str = "",
    generation_id: int = -1,
    metadata: str = "",
    **more: Any,
) -> dict[tuple[str, int], int]:
    """Error codes by partition."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=3 if version >= 6 else -1,
                committed_metadata=metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
        **more,
    )
    response = client.call(request, version)
    return {
        (t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions
    }


def fetch(
    client: RawClient, group: str, wanted: dict[str, list[int]] | None, version: int = 7
) -> dict[tuple[str, int], tuple[int, int, str]]:
    """(offset, leader epoch, metadata) by partition."""
    topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in wanted.items()]
    request = OffsetFetchRequest(group_id=group, topics=topics)
    responses: list[Any] = []

    def is_loaded() -> bool:
        responses.append(client.call(request, version))
        return bool(responses[-1].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    eventually(is_loaded, what="the group is loaded")
    response = responses[-1]
    assert response.error_code == 0
    return {
        (t.name, p.partition_index): (p.committed_offset, p.committed_leader_epoch, p.metadata)
        for t in response.topics
        for p in t.partitions
    }


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_every_group_is_this_broker(
    client: RawClient, broker: BrokerThread, version: int
) -> None:
    found = find(client, "some-group", version)
    assert (found.host, found.port) == broker.address


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_and_leaves_in_every_version(client: RawClient, version: int) -> None:
    group = f"life-{version}"
    member_id, generation = join(client, group, version)
    assert member_id.startswith("c-")
    beat = HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation)
    assert client.call(beat, min(version, 4)).error_code == 0
    described = client.call(DescribeGroupsRequest(groups=[group]), min(version, 6)).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (member,) = described.members
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"subscription", b"all")
    assert member.group_instance_id is None
    if version < 3:
        leave = LeaveGroupRequest(group_id=group, member_id=member_id)
        assert client.call(leave, version).error_code == 0
        assert client.call(leave, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert leave_all(client, group, member_id, "nobody") == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.call(beat, min(version, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    described = client.call(DescribeGroupsRequest(groups=[group]), 3).groups[0]
    assert (described.group_state, described.members) == ("Empty", [])


def test_two_members_share_a_group_and_the_second_waits_for_the_first(
    client: RawClient, broker: BrokerThread
) -> None:
    first, generation = join(client, "pair", 3)
    with RawClient(broker.address, client_id="d") as other:
        other.send(join_request("pair"), 3)
        beat = HeartbeatRequest(group_id="pair", member_id=first, generation_id=generation)
        eventually(
            lambda: client.call(beat, 2).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
            what="the first member hears of the second",
        )
        mine = client.call(join_request("pair", first), 3)
        theirs = other.receive(JoinGroupRequest, 3)
        assert mine.generation_id == theirs.generation_id == generation + 1
        assert {m.member_id for m in mine.members} == {first, theirs.member_id}
        other.send(
            SyncGroupRequest(
                group_id="pair",
                generation_id=theirs.generation_id,
                member_id=theirs.member_id,
            ),
            2,
        )
        given = [
            SyncGroupRequestAssignment(member_id=first, assignment=b"left"),
            SyncGroupRequestAssignment(member_id=theirs.member_id, assignment=b"right"),
        ]
        sync = SyncGroupRequest(
            group_id="pair",
            generation_id=mine.generation_id,
            member_id=first,
            assignments=given,
        )
        assert client.call(sync, 2).assignment == b"left"
        assert other.receive(SyncGroupRequest, 2).assignment == b"right"


@pytest.mark.parametrize("version", range(10))
def test_offsets_are_committed_in_every_version(client: RawClient, version: int) -> None:
    group = f"offsets-{version}"
    results = commit(client, group, {("t", 0): 11, ("t", 1): 12}, version, metadata="née")
    assert results == {("t", 0): 0, ("t", 1): 0}
    epoch = 3 if version >= 6 else -1
    assert fetch(client, group, {"t": [0, 1]}) == {
        ("t", 0): (11, epoch, "née"),
        ("t", 1): (12, epoch, "née"),
    }


@pytest.mark.parametrize("version", range(8))
def test_offsets_are_fetched_in_every_version(client: RawClient, version: int) -> None:
    commit(client, "reader", {("t", 0): 5})
    epoch = 3 if version >= 5 else -1
    found = fetch(client, "reader", {"t": [0, 1]}, version)
    assert found == {("t", 0): (5, epoch, ""), ("t", 1): (-1, -1, "")}
    if version >= 2:
        assert fetch(client, "reader", None, version) == {("t", 0): (5, epoch, "")}
    assert fetch(client, "nobody", {"t": [0]}, version) == {("t", 0): (-1, -1, "")}


def test_a_static_member_and_the_process_that_takes_its_place(tmp_path: Path) -> None:
    """Over the wire, and over a restart of the broker."""
    data, t = tmp_path / "data", ("t", 0)

    def join_group(client: RawClient) -> tuple[str, int, str]:
        reply = client.call(join_request("g", instance="i"), 5)
        assert reply.error_code == 0
        return reply.member_id, reply.generation_id, reply.leader

    def sync(client: RawClient, member_id: str, generation: int) -> tuple[int, bytes]:
        given = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            group_instance_id="i",
            assignments=given,
        )
        reply = client.call(request, 3)
        return reply.error_code, reply.assignment

    def beat(client: RawClient, member_id: str, generation: int) -> int:
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id="i"
        )
        return int(client.call(request, 3).error_code)

    with BrokerProcess(data, SETTINGS) as broker:
        with RawClient(broker.address, client_id="c") as client:
            create_topic(client, "t", 1)
            find(client, "g")
            old, generation, leader = join_group(client)
            assert old == leader and old.startswith("i-")
            assert sync(client, old, generation) == (0, b"all")
            new, same_generation, told_leader = join_group(client)
            assert (same_generation, told_leader) == (generation, old)
            assert sync(client, new, generation) == (0, b"all")
            assert beat(client, old, generation) == ErrorCode.FENCED_INSTANCE_ID
            assert beat(client, new, generation) == 0

            def committed(member_id: str) -> int:
                return commit(
                    client,
                    "g",
                    {t: 7},
                    7,
                    member_id=member_id,
                    generation_id=generation,
                    group_instance_id="i",
                )[t]

            assert committed(old) == ErrorCode.FENCED_INSTANCE_ID
            assert committed(new) == 0
            (member,) = client.call(DescribeGroupsRequest(groups=["g"]), 4).groups[0].members
            assert (member.group_instance_id, member.member_id) == ("i", new)
        broker.kill()
    with BrokerProcess(data, SETTINGS) as broker, RawClient(broker.address) as client:
        find(client, "g")
        assert beat(client, old, generation) == ErrorCode.FENCED_INSTANCE_ID
        newest, same_generation, _ = join_group(client)
        assert same_generation == generation
        assert beat(client, newest, generation) == 0
        assert leave_all(client, "g", new, instance="i") == [ErrorCode.FENCED_INSTANCE_ID]
        assert leave_all(client, "g", "", instance="i") == [0]
        described = client.call(DescribeGroupsRequest(groups=["g"]), 4).groups[0]
        assert (described.group_state, described.members) == ("Empty", [])


def test_commits_that_are_refused(client: RawClient) -> None:
    member_id, generation = join(client, "strict")
    t = ("t", 0)
    refused = {
        ErrorCode.UNKNOWN_MEMBER_ID: ("nobody", generation),
        ErrorCode.ILLEGAL_GENERATION: (member_id, generation + 1),
    }
    for code, (who, when) in refused.items():
        assert commit(client, "strict", {t: 1}, member_id=who, generation_id=when) == {t: code}
    assert commit(client, "strict", {t: 1}) == {t: ErrorCode.UNKNOWN_MEMBER_ID}
    unknown = ("nowhere", 0)
    assert commit(client, "loose", {t: 1, unknown: 1}) == {
        t: 0,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    long = commit(client, "loose", {t: 9}, metadata="x" * 5000)
    assert long == {t: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert fetch(client, "loose", {"t": [0]})[t][0] == 1
    assert commit(client, "strict", {t: 7}, member_id=member_id, generation_id=generation) == {t: 0}


def test_a_group_with_the_empty_id_has_offsets_and_no_members(client: RawClient) -> None:
    find(client, "")
    t = ("t", 0)
    assert commit(client, "", {t: 1}) == {t: 0}
    assert commit(client, "", {t: 2}) == {t: 0}, "also the same request again"
    assert fetch(client, "", {"t": [0]})[t][0] == 2
    unknown = commit(client, "", {t: 3}, member_id="m", generation_id=1)
    assert unknown == {t: ErrorCode.UNKNOWN_MEMBER_ID}
    [group] = client.call(DescribeGroupsRequest(groups=[""]), 5).groups
    assert (group.error_code, group.group_state) == (0, "Empty")
    refused = ErrorCode.INVALID_GROUP_ID
    assert client.call(join_request(""), 4).error_code == refused
    assert client.call(SyncGroupRequest(group_id=""), 3).error_code == refused
    assert client.call(HeartbeatRequest(group_id=""), 2).error_code == refused
    [deleted] = client.call(DeleteGroupsRequest(groups_names=[""]), 1).results
    assert deleted.error_code == 0
    assert fetch(client, "", None) == {}


def test_members_that_are_refused(client: RawClient) -> None:
    def join_error(request: JoinGroupRequest) -> int:
        return int(client.call(request, 4).error_code)

    assert join_error(join_request("")) == ErrorCode.INVALID_GROUP_ID
    assert join_error(join_request("x", session_ms=1)) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join_error(join_request("x", "unknown-id")) == ErrorCode.UNKNOWN_MEMBER_ID
    beat = HeartbeatRequest(group_id="absent", member_id="m", generation_id=1)
    assert client.call(beat, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_are_listed_by_state(client: RawClient) -> None:
    join(client, "listed")
    commit(client, "listed-offsets", {("t", 0): 1})

    def listed(*states: str) -> dict[str, str]:
        response = client.call(ListGroupsRequest(states_filter=list(states)), 4)
        assert response.error_code == 0
        return {g.group_id: g.group_state for g in response.groups}

    everything = listed()
    assert everything["listed"] == "Stable"
    assert everything["listed-offsets"] == "Empty"
    assert "listed" in listed("stable")
    assert "listed-offsets" not in listed("Stable")
    dead = client.call(DescribeGroupsRequest(groups=["absent"]), 3).groups[0]
    assert (dead.group_state, dead.error_code) == ("Dead", 0)
    # The answer can be much longer than the name: one that is repeated is described once.
    assert len(client.call(DescribeGroupsRequest(groups=["listed"] * 3), 3).groups) == 1


def test_a_deleted_topic_takes_its_offsets_along(client: RawClient) -> None:
    create_topic(client, "short-lived", 1)
    commit(client, "survivor", {("short-lived", 0): 3, ("t", 0): 4})
    request = DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=5000)
    assert client.call(request, 5).responses[0].error_code == 0
    assert fetch(client, "survivor", None) == {("t", 0): (4, 3, "")}


def test_groups_and_offsets_survive_kill_and_clean_stop(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, SETTINGS) as broker:
        with RawClient(broker.address, client_id="c") as client:
            create_topic(client, "t", 1)
            find(client, "g")
            find(client, "")
            assert commit(client, "", {("t", 0): 7}) == {("t", 0): 0}
            member_id, generation = join(client, "g")
            for offset in range(50):
                commit(
                    client, "g", {("t", 0): offset}, member_id=member_id, generation_id=generation
                )
        broker.send_signal(signal.SIGKILL)
        broker.wait()
    for how in (signal.SIGTERM, signal.SIGKILL):
        with BrokerProcess(data, SETTINGS) as broker:
            with RawClient(broker.address, client_id="c") as client:
                find(client, "g")
                find(client, "")
                assert fetch(client, "", None) == {("t", 0): (7, 3, "")}
                beat = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation)
                assert client.call(beat, 2).error_code == 0
                assert fetch(client, "g", None) == {("t", 0): (49, 3, "")}
                sync = SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id)
                assert client.call(sync, 2).assignment == b"all"
            broker.send_signal(how)
            broker.wait()


def test_offsets_of_an_empty_group_expire(tmp_path: Path) -> None:
    settings = SETTINGS | {"offsets.retention.check.interval.ms": 50}
    with (
        BrokerThread(tmp_path / "data", settings) as broker,
        RawClient(broker.address) as client,
    ):
        create_topic(client, "t", 2)
        find(client, "g")
        commit(client, "g", {("t", 0): 1}, 2, retention_time_ms=1)
        commit(client, "g", {("t", 1): 2}, 6)
        eventually(lambda: fetch(client, "g", None) == {("t", 1): (2, 3, "")}, what="it expires")
        commit(client, "gone", {("t", 0): 1}, 2, retention_time_ms=1)
        eventually(
            lambda: (
                client.call(DescribeGroupsRequest(groups=["gone"]), 3).groups[0].group_state
                == "Dead"
            ),
            what="a group without offsets is forgotten",
        )


def test_offsets_of_topics_that_a_stable_group_no_longer_reads_expire(tmp_path: Path) -> None:
    settings = SETTINGS | {"offsets.retention.check.interval.ms": 50}
    reads_t = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
    with (
        BrokerThread(tmp_path / "data", settings) as broker,
        RawClient(broker.address) as client,
    ):
        create_topic(client, "t", 1)
        create_topic(client, "u", 1)
        find(client, "g")
        first = client.call(join_request("g", metadata=reads_t), 3)
        sync = SyncGroupRequest(
            group_id="g", generation_id=first.generation_id, member_id=first.member_id
        )
        assert client.call(sync, 2).error_code == 0
        member = {"member_id": first.member_id, "generation_id": first.generation_id}
        # Only the old versions give a time of their own; else it is offsets.retention.minutes.
        commit(client, "g", {("t", 0): 1, ("u", 0): 2}, 2, retention_time_ms=1, **member)
        commit(client, "marker", {("u", 0): 3}, 2, retention_time_ms=1)
        eventually(lambda: fetch(client, "g", None) == {("t", 0): (1, -1, "")}, what="u expires")
        eventually(lambda: fetch(client, "marker", None) == {}, what="a whole round is over")
        assert fetch(client, "g", None) == {("t", 0): (1, -1, "")}
