"""The newest versions of the group APIs on Apache Kafka and on klog: the same answers, whole.

A play is a course of requests by raw connections. Its transcript has every field of every answer;
ids that a broker chose are named in the order in which they came.
"""

import re
from collections.abc import Callable, Iterator
from difflib import unified_diff
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyspark_klog.protocol.message import Request, Struct
from pyspark_klog.state_records.consumer_protocol import ConsumerProtocolSubscription
from pyspark_klog.state_records.versions import encode_versioned
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
TOPICS = {"orders": 3, "audit": 1}
UNKNOWN_ID = UUID(int=77)
FOLLOWS = {"protocol_type": "consumer", "protocol_name": "range"}

# Fields with random values or free texts.
_LEFT_OUT = {"throttle_time_ms", "host", "port", "client_host", "error_message"}
_MEMBER_ID = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Play:
    """Requests about the group ``group``; each response becomes a line of ``lines``."""

    def __init__(self, address: tuple[str, int], topic_ids: dict[str, UUID], group: str) -> None:
        self._address = address
        self._clients: dict[str, RawClient] = {}
        self._names: dict[object, str] = {each: name for name, each in topic_ids.items()}
        self.topic_ids = topic_ids
        self.group = group
        self.lines: list[str] = []

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, who: str) -> RawClient:
        if who not in self._clients:
            self._clients[who] = RawClient(self._address, client_id="c", timeout_s=60)
        return self._clients[who]

    def send_request(self, request: Request, version: int, who: str = "one") -> Any:
        answer = self.client(who).call(request, version)
        self.note(request, answer)
        return answer

    def note(self, request: Request, answer: Any) -> None:
        self.lines.append(f"{request.api_key.name} {self._plain(answer)}")

    def _plain(self, found: Any) -> Any:
        if isinstance(found, Struct):
            return {
                name: self._plain(getattr(found, name))
                for name in type(found).__fields__
                if name not in _LEFT_OUT
            }
        if isinstance(found, list):
            rows = [self._plain(each) for each in found]
            return sorted(rows, key=repr)
        is_id = isinstance(found, str) and _MEMBER_ID.fullmatch(found)
        if is_id or isinstance(found, UUID):
            return self._names.setdefault(found, f"id{len(self._names)}")
        return bytes(found) if isinstance(found, memoryview) else found

    # --- members ---------------------------------------------------------------------------------
    def join_request(self, member_id: str = "", **options: Any) -> JoinGroupRequest:
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=["orders"]), 0)
        row = JoinGroupRequestProtocol(name="range", metadata=metadata)
        fields = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [row],
            "reason": "why not",
        }
        return JoinGroupRequest(**(fields | options))

    def join(self, member_id: str = "", *, version: int = 9, **options: Any) -> Any:
        return self.send_request(self.join_request(member_id, **options), version)

    def sync(self, joined: Any, *, version: int = 5, **options: Any) -> Any:
        given = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
        fields = {
            "group_id": self.group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": given,
        }
        return self.send_request(SyncGroupRequest(**(fields | options)), version)

    def member(self, **options: Any) -> Any:
        """Alone in the group, and stable."""
        joined = self.join(**options)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(joined.member_id, **options)
        instance = options.get("group_instance_id")
        kind = options.get("protocol_type", "consumer")
        self.sync(joined, group_instance_id=instance, **(FOLLOWS | {"protocol_type": kind}))
        return joined

    def leave(self, *names: tuple[str, str | None], version: int = 5) -> None:
        members = [
            MemberIdentity(member_id=id_, group_instance_id=instance, reason="done")
            for id_, instance in names
        ]
        self.send_request(LeaveGroupRequest(group_id=self.group, members=members), version)

    # --- offsets ---------------------------------------------------------------------------------
    def commit(
        self,
        *topics: str | UUID,
        version: int,
        member_id: str = "",
        generation: int = -1,
        partitions: tuple[int, ...] = (0,),
    ) -> None:
        rows = [
            OffsetCommitRequestPartition(
                partition_index=each, committed_offset=7, committed_metadata="m"
            )
            for each in partitions
        ]
        listed = [
            OffsetCommitRequestTopic(name=each, partitions=rows)
            if isinstance(each, str)
            else OffsetCommitRequestTopic(topic_id=each, partitions=rows)
            for each in topics
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=listed,
        )
        self.send_request(request, version)

    def fetch(self, version: int, *groups: OffsetFetchRequestGroup) -> None:
        self.send_request(OffsetFetchRequest(groups=list(groups)), version)

    def fetch_one(self, version: int, topics: dict[str, list[int]] | None) -> None:
        rows = [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in (topics or {}).items()
        ]
        self.send_request(
            OffsetFetchRequest(group_id=self.group, topics=None if topics is None else rows),
            version,
        )

    def offset_delete(self, group: str | None = None, **topics: list[int]) -> None:
        rows = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in numbers],
            )
            for name, numbers in topics.items()
        ]
        group = self.group if group is None else group
        self.send_request(OffsetDeleteRequest(group_id=group, topics=rows), 0)

    def delete(self, *groups: str, version: int = 2) -> None:
        self.send_request(DeleteGroupsRequest(groups_names=list(groups)), version)

    def describe(self, *groups: str, version: int = 6, operations: bool = False) -> None:
        request = DescribeGroupsRequest(
            groups=list(groups), include_authorized_operations=operations
        )
        self.send_request(request, version)


def a_member_joins_and_leaves(play: Play) -> None:
    for version in (3, 4, 6, 7, 8, 9):
        play.join(version=version, session_timeout_ms=1)
        play.join(version=version, protocol_type="")
        play.join("unknown", version=version)
    joined = play.member()
    for version in (3, 4):
        request = HeartbeatRequest(
            group_id=play.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
        )
        play.send_request(request, version)
    play.describe(play.group)
    play.leave((joined.member_id, None), ("unknown", None), ("", None))
    play.leave((joined.member_id, None), version=4)
    play.describe(play.group, operations=True)


def a_member_follows_another_protocol(play: Play) -> None:
    joined = play.join(play.join().member_id)
    for version in (4, 5):
        for kind, name in (
            (None, None),
            ("consumer", None),
            (None, "range"),
            ("connect", "range"),
            ("consumer", "sticky"),
        ):
            if version == 5:
                play.sync(joined, protocol_type=kind, protocol_name=name)
    play.sync(joined, version=5, generation_id=99, **FOLLOWS)
    play.sync(joined, version=5, member_id="unknown", **FOLLOWS)
    play.sync(joined, version=4)
    play.sync(joined, **FOLLOWS)
    play.sync(joined, protocol_type="consumer", protocol_name="sticky")
    play.sync(joined, group_id="", **FOLLOWS)
    play.sync(joined, group_id="missing", **FOLLOWS)


def a_static_leader_is_replaced(play: Play) -> None:
    old = play.member(group_instance_id="i")
    for version in (8, 9, 5):
        new = play.join(version=version, group_instance_id="i")
        if version == 9:
            assert new.skip_assignment
        play.sync(new, group_instance_id="i", **FOLLOWS)
    play.sync(old, group_instance_id="i", **FOLLOWS)


def offsets_are_committed(play: Play) -> None:
    ids = play.topic_ids
    for version in (2, 7, 8, 9):
        play.commit("orders", "missing", version=version, partitions=(0, 2, 9))
        play.commit("orders", version=version, member_id="unknown", generation=3)
    play.commit(ids["orders"], UNKNOWN_ID, UUID(int=0), version=10, partitions=(0, 2, 9))
    play.commit(ids["audit"], version=10, member_id="unknown", generation=3)
    play.commit(version=10)
    joined = play.member()
    for version in (7, 10):
        topic: str | UUID = "orders" if version < 10 else ids["orders"]
        play.commit(topic, version=version)
        play.commit(topic, version=version, member_id="unknown", generation=1)
        play.commit(topic, version=version, member_id=joined.member_id, generation=99)
        play.commit(
            topic,
            version=version,
            member_id=joined.member_id,
            generation=joined.generation_id,
            partitions=(1,),
        )


def members_of_groups_that_are_not_there_commit(play: Play) -> None:
    ids = play.topic_ids
    for version in (2, 7, 8, 9, 10):
        topic: str | UUID = "orders" if version < 10 else ids["orders"]
        play.commit(topic, version=version, member_id="unknown", generation=1)
        play.commit(topic, version=version, generation=0)


def offsets_are_fetched(play: Play) -> None:
    ids = play.topic_ids
    play.commit("orders", version=9, partitions=(0, 2))
    play.commit("audit", version=9)
    for version in (1, 2, 5, 6, 7):
        play.fetch_one(version, {"orders": [0, 1, 9], "missing": [0]})
        play.fetch_one(version, {})
        if version >= 2:
            play.fetch_one(version, None)
    named = [
        OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1, 9]),
        OffsetFetchRequestTopics(name="missing", partition_indexes=[0]),
    ]
    by_id = [
        OffsetFetchRequestTopics(topic_id=ids["orders"], partition_indexes=[0, 1, 9]),
        OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=UUID(int=0), partition_indexes=[0]),
    ]
    for version, topics in ((8, named), (9, named), (10, by_id)):
        play.fetch(
            version,
            OffsetFetchRequestGroup(group_id=play.group, topics=topics),
            OffsetFetchRequestGroup(group_id="missing", topics=topics),
            OffsetFetchRequestGroup(group_id="missing-too", topics=None),
        )
        play.fetch(version, OffsetFetchRequestGroup(group_id=play.group, topics=None))
        play.fetch(version, OffsetFetchRequestGroup(group_id=play.group, topics=[]))
    member = OffsetFetchRequestGroup(
        group_id=play.group, topics=named[:1], member_id="unknown", member_epoch=5
    )
    play.fetch(9, member)


def groups_are_deleted(play: Play) -> None:
    play.commit("orders", version=9)
    for version in (0, 1, 2):
        play.delete("missing", version=version)
    joined = play.member()
    play.delete(play.group, "missing", play.group)
    play.leave((joined.member_id, None))
    play.delete(play.group, "missing", play.group)
    play.fetch_one(7, None)
    play.describe(play.group)
    play.delete()


def offsets_are_deleted(play: Play) -> None:
    play.offset_delete(orders=[0])
    play.offset_delete(missing=[0])
    play.offset_delete("", orders=[0])
    play.offset_delete("")
    play.commit("orders", "audit", version=9)
    joined = play.member()
    play.offset_delete(orders=[0, 9], audit=[0], missing=[0])
    play.fetch_one(7, None)
    play.leave((joined.member_id, None))
    play.offset_delete(orders=[0, 1])
    play.fetch_one(7, None)
    play.describe(play.group)


def offsets_of_a_group_of_others(play: Play) -> None:
    play.commit("orders", version=9)
    joined = play.member(protocol_type="connect")
    play.offset_delete(orders=[0])
    play.leave((joined.member_id, None))
    play.offset_delete(orders=[0])


PLAYS: list[Callable[[Play], None]] = [
    a_member_joins_and_leaves,
    a_member_follows_another_protocol,
    a_static_leader_is_replaced,
    offsets_are_committed,
    members_of_groups_that_are_not_there_commit,
    offsets_are_fetched,
    groups_are_deleted,
    offsets_are_deleted,
    offsets_of_a_group_of_others,
]

Side = tuple[tuple[str, int], dict[str, UUID]]


def prepare(address: tuple[str, int]) -> Side:
    """The topics, and a coordinator that serves every group."""
    with RawClient(address, timeout_s=60) as client:
        ids = {name: create_topic(client, name, count) for name, count in TOPICS.items()}

        def is_served(group: str) -> bool:
            if client.call(FindCoordinatorRequest(key=group), 3).error_code != 0:
                return False
            reply = client.call(DescribeGroupsRequest(groups=[group]), 3)
            return bool(reply.groups[0].error_code == 0)

        for group in [*(play.__name__ for play in PLAYS), "missing", "missing-too", "other", ""]:
            if group:
                eventually(lambda group=group: is_served(group), 120, "the coordinator serves")
    return address, ids


@pytest.fixture(scope="module")
def klog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", SETTINGS) as broker:
        yield prepare(broker.address)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Side]:
    with KafkaServer(NEWEST_KAFKA, properties=SETTINGS) as server:
        yield prepare(("127.0.0.1", server.port))


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_the_answers_are_kafkas(klog: Side, kafka: Side, play: Callable[[Play], None]) -> None:
    transcripts = []
    for side in (klog, kafka):
        course = Play(*side, play.__name__)
        try:
            play(course)
        finally:
            course.close()
        transcripts.append(course.lines)
    klogs, kafkas = transcripts
    diff = "\n".join(unified_diff(klogs, kafkas, "klog", "Kafka", lineterm="", n=0))
    assert not diff, diff
