"""Static members on Apache Kafka and on klog: the same requests, the same answers.

A play is a course of requests by raw connections; its transcript names members in the order in
which their ids were handed out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
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
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.peers import OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

GROUP_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
TOPIC = "committed"


class Play:
    """Requests of one group; every answer is a line of ``lines``."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        self._address = address
        self._group = group
        self._clients: dict[str, RawClient] = {}
        self._names: dict[str, str] = {"": "nobody"}
        self.lines: list[str] = []

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, who: str) -> RawClient:
        if who not in self._clients:
            self._clients[who] = RawClient(self._address, client_id="c", timeout_s=60)
        return self._clients[who]

    def note(self, what: str, code: int, *facts: object) -> None:
        self.lines.append(" ".join([what, ErrorCode(code).name, *map(str, facts)]))

    def name(self, member_id: str) -> str:
        """An id, as the transcript has it."""
        return self._names.setdefault(member_id, f"m{len(self._names)}")

    def begin_join(
        self,
        who: str,
        member_id: str = "",
        instance: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        metadata: bytes = b"",
    ) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=p, metadata=metadata) for p in protocols],
        )
        self.client(who).send(request, 5)

    def end_join(self, who: str) -> Any:
        reply = self.client(who).receive(JoinGroupRequest, 5)
        member = self.name(reply.member_id)
        listed = sorted((self.name(m.member_id), m.group_instance_id) for m in reply.members)
        facts = (member, reply.generation_id, self.name(reply.leader), reply.protocol_name, listed)
        self.note(f"join {who}", reply.error_code, *facts)
        return reply

    def join(self, who: str, *arguments: Any, **options: Any) -> Any:
        self.begin_join(who, *arguments, **options)
        return self.end_join(who)

    def sync(
        self, who: str, member_id: str, generation: int, instance: str | None, *given: str
    ) -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=id_, assignment=self.name(id_).encode())
                for id_ in given
            ],
        )
        reply = self.client(who).call(request, 3)
        self.note(f"sync {who}", reply.error_code, reply.assignment)

    def beat(self, member_id: str, generation: int, instance: str | None) -> int:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        code: int = self.client("beats").call(request, 3).error_code
        self.note(f"beat {self.name(member_id)} {instance}", code)
        return code

    def leave(self, *names: tuple[str, str | None]) -> None:
        members = [MemberIdentity(member_id=id_, group_instance_id=i) for id_, i in names]
        request = LeaveGroupRequest(group_id=self._group, members=members)
        reply = self.client("leaves").call(request, 3)
        self.note("leave", reply.error_code)
        for each in reply.members:
            name = f"{self.name(each.member_id)} {each.group_instance_id}"
            self.note(f"  {name}", each.error_code)

    def commit(self, member_id: str, generation: int, instance: str | None) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        code = self.client("commits").call(request, 7).topics[0].partitions[0].error_code
        self.note(f"commit {self.name(member_id)} {generation} {instance}", code)

    def describe(self) -> None:
        reply = self.client("describes").call(DescribeGroupsRequest(groups=[self._group]), 4)
        (group,) = reply.groups
        members = sorted((self.name(m.member_id), m.group_instance_id) for m in group.members)
        self.note("describe", group.error_code, group.group_state, members)

    def pair(self, protocols: tuple[str, ...] = ("range",)) -> tuple[str, str, int]:
        """Static members ``i``, which leads, and ``j``: their ids and the generation."""
        first = self.join("i", instance="i", protocols=protocols)
        self.sync("i", first.member_id, first.generation_id, "i", first.member_id)
        self.begin_join("j", instance="j", protocols=protocols)
        eventually(
            lambda: self.beat(first.member_id, first.generation_id, "i") != 0, 60, "a rebalance"
        )
        # The number of heartbeats is random.
        self.lines = [line for line in self.lines if not line.startswith("beat")]
        self.begin_join("i", first.member_id, instance="i", protocols=protocols)
        first, second = self.end_join("i"), self.end_join("j")
        ids, generation = (first.member_id, second.member_id), first.generation_id
        self.sync("i", ids[0], generation, "i", *ids)
        self.sync("j", ids[1], generation, "j")
        return (*ids, generation)


def a_follower_is_replaced(play: Play) -> None:
    leader, follower, generation = play.pair()
    new = play.join("again", instance="j").member_id
    play.sync("again", new, generation, "j")
    play.sync("j", follower, generation, "j")
    for member_id, instance in ((follower, "j"), (follower, None), (new, "j"), (new, None)):
        play.beat(member_id, generation, instance)
        play.commit(member_id, generation, instance)
    play.beat(new, generation - 1, "j")
    play.beat(leader, generation, "i")
    play.beat(leader, generation, "k")
    play.join("old", follower, instance="j")
    play.join("odd", new, instance="k")
    play.describe()


def a_leader_is_replaced(play: Play) -> None:
    leader, follower, generation = play.pair()
    new = play.join("again", instance="i").member_id
    play.sync("again", new, generation, "i")
    play.beat(leader, generation, "i")
    play.beat(follower, generation, "j")
    play.begin_join("again", new, instance="i")
    eventually(lambda: play.beat(follower, generation, "j") != 0, 60, "a rebalance")
    play.lines = [line for line in play.lines if not line.startswith("beat")]
    play.begin_join("j", follower, instance="j")
    play.end_join("again")
    play.end_join("j")


def one_who_waits_is_replaced(play: Play) -> None:
    leader, follower, generation = play.pair()
    play.begin_join("waits", leader, instance="i", metadata=b"other")
    eventually(lambda: play.beat(follower, generation, "j") != 0, 60, "a rebalance")
    play.lines = [line for line in play.lines if not line.startswith("beat")]
    play.begin_join("again", instance="i", metadata=b"other")
    play.end_join("waits")
    play.begin_join("j", follower, instance="j")
    play.end_join("again")
    play.end_join("j")


def replaced_before_the_assignment(play: Play) -> None:
    first = play.join("i", instance="i")
    play.begin_join("again", instance="i")
    play.end_join("again")
    play.sync("i", first.member_id, first.generation_id, "i", first.member_id)


def another_protocol(play: Play) -> None:
    leader, follower, generation = play.pair(("sticky", "range"))
    play.join("odd", instance="j", protocols=("other",))
    play.begin_join("again", instance="j", protocols=("range",))
    eventually(lambda: play.beat(leader, generation, "i") != 0, 60, "a rebalance")
    play.lines = [line for line in play.lines if not line.startswith("beat")]
    play.begin_join("i", leader, instance="i", protocols=("sticky", "range"))
    play.end_join("again")
    play.end_join("i")
    play.beat(follower, generation, "j")


def ways_to_leave(play: Play) -> None:
    leader, follower, _ = play.pair()
    new = play.join("again", instance="j").member_id
    play.leave((follower, "j"), ("", "nobody"), ("", None), ("unknown", None), (new, "i"))
    play.leave(("", "j"), (new, "j"), (leader, "i"))
    play.describe()
    play.leave((leader, "i"))


def who_commits_to_an_empty_group(play: Play) -> None:
    play.commit("", -1, None)
    play.commit("", -1, "i")
    play.commit("unknown", -1, None)
    play.commit("", 3, None)
    play.commit("unknown", 3, "i")
    member = play.join("a").member_id
    play.commit("", -1, None)
    play.commit("", -1, "i")
    play.commit(member, -1, None)
    play.leave((member, None))


def an_id_that_was_handed_out(play: Play) -> None:
    given = play.join("a").member_id
    play.join("b", given, instance="i")
    joined = play.join("c", given)
    play.leave((joined.member_id, None))
    play.describe()


PLAYS: list[Callable[[Play], None]] = [
    a_follower_is_replaced,
    a_leader_is_replaced,
    one_who_waits_is_replaced,
    replaced_before_the_assignment,
    another_protocol,
    ways_to_leave,
    who_commits_to_an_empty_group,
    an_id_that_was_handed_out,
]


@pytest.fixture(scope="module")
def klog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    data: Path = tmp_path_factory.mktemp("static") / "data"
    settings = GROUP_SETTINGS | {"offsets.topic.num.partitions": "3"}
    with BrokerProcess(data, settings) as broker:
        prepare(broker.address)
        yield broker.address


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[str, int]]:
    settings = GROUP_SETTINGS | {"offsets.topic.num.partitions": "3"}
    with KafkaServer(OLDEST_KAFKA, properties=settings) as server:
        address = ("127.0.0.1", server.port)
        prepare(address)
        yield address


def prepare(address: tuple[str, int]) -> None:
    """The topic, and a coordinator that serves every group."""
    with RawClient(address, timeout_s=60) as client:
        create_topic(client, TOPIC)

        def is_served(group: str) -> bool:
            if client.call(FindCoordinatorRequest(key=group), 3).error_code != 0:
                return False
            reply = client.call(DescribeGroupsRequest(groups=[group]), 3)
            return bool(reply.groups[0].error_code == 0)

        for play in PLAYS:
            eventually(lambda play=play: is_served(play.__name__), 120, "the coordinator serves")


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_the_answers_are_kafkas(
    klog: tuple[str, int], kafka: tuple[str, int], play: Callable[[Play], None]
) -> None:
    transcripts = []
    for address in (klog, kafka):
        course = Play(address, play.__name__)
        try:
            play(course)
        finally:
            course.close()
        transcripts.append(course.lines)
    assert transcripts[0] == transcripts[1]
