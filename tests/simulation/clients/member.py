"""A member of a group: joins, assigns, heartbeats, commits, leaves; now and then it is late."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyspark_klog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pyspark_klog.protocol.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from pyspark_klog.protocol.apis.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from pyspark_klog.protocol.fields import NO_UUID
from tests.simulation.checks.groups import FENCED
from tests.simulation.clients.base import Client, Lost, Script, check_code
from tests.simulation.world import Violation

GROUP = "group"
SESSION_MS = 3_000
REBALANCE_MS = 4_000
_RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT,)
_FENCED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    # A power cut may have taken the group with its records.
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class Member(Client):
    """A member whose work is to raise its partitions' offsets and to commit them."""

    _unknown: tuple[ErrorCode, ...] = ()
    """Errors that a coordinator may return for a while for topics that exist."""
    reads_stable = False
    """Whether the member waits for open transactions with pending offsets of its partitions."""

    def __init__(self, *given: Any, partitions: list[TopicPartition], **named: Any) -> None:
        super().__init__(*given, **named)
        self._all = partitions
        self._member_id = ""
        self._instance_id = f"instance-{self.name}" if self.world.chance(0.4) else None
        self._former_id = ""
        """The member id of the process that this one has replaced; it commits once more."""
        self._generation = -1
        self._ids: dict[str, UUID] = {}
        """The ids by which static members name topics, in the newest versions; else empty."""
        self._owned: list[TopicPartition] = []
        self._positions: dict[TopicPartition, int] = {}

    def script(self) -> Script:
        yield from self.connect()
        yield from self._find_coordinator()
        if self._instance_id is not None:
            yield from self._find_ids()
        while not self.must_end:
            if (yield from self._join()) and (yield from self._fetch_offsets()):
                yield from self._work()
        if self._member_id and self.world.chance(0.7):
            yield from self._leave()

    # --- joining ----------------------------------------------------------------------------------
    def _find_coordinator(self) -> Generator[Any, Any, None]:
        while True:
            request = FindCoordinatorRequest(key=GROUP)
            reply = yield from self.call_broker(request, FindCoordinatorResponse, high=3)
            if check_code(self, reply.error_code, *_RETRIED) is ErrorCode.NONE:
                yield from self.go_to(reply.node_id)
                return
            yield from self.sleep(self.world.between(10, 200))

    def _find_ids(self) -> Generator[Any, Any, None]:
        names = {partition.topic: None for partition in self._all}
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        reply = yield from self.call_broker(request, MetadataResponse, low=10)
        self._ids = {row.name: row.topic_id for row in reply.topics}
        if NO_UUID in self._ids.values():
            self.hang_up()  # this broker does not know the topics yet
            raise Lost

    def _join(self) -> Generator[Any, Any, bool]:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self.name.encode())],
        )
        asked_ms = self.world.now_ms
        reply = yield from self.call_broker(
            request,
            JoinGroupResponse,
            low=self._low(2, 5),
            high=9,
            waits_ms=REBALANCE_MS + SESSION_MS,
        )
        code = check_code(self, reply.error_code, ErrorCode.MEMBER_ID_REQUIRED, *_RETRIED, *_FENCED)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
            return False
        if code is not ErrorCode.NONE:
            yield from self._step_back(code)
            return False
        self._member_id, self._generation = reply.member_id, reply.generation_id
        self.note(
            f"joined generation={reply.generation_id} leads={reply.leader == reply.member_id}"
        )
        if self.is_current():
            self.history.groups.was_joined(
                reply.member_id,
                reply.generation_id,
                asked_ms,
                self.world.now_ms,
                leads=reply.leader == reply.member_id and self._instance_id is None,
            )
        return (yield from self._sync(reply))

    def _sync(self, joined: JoinGroupResponse) -> Generator[Any, Any, bool]:
        members = [each.member_id for each in joined.members]
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=bytes(n for n in range(len(self._all)) if n % len(members) == index),
            )
            for index, member in enumerate(members)
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments if joined.leader == self._member_id else [],
        )
        if self.world.chance(0.1):
            yield from self.sleep(self.world.between(0, REBALANCE_MS))
        reply = yield from self.call_broker(
            request, SyncGroupResponse, low=self._low(0, 3), waits_ms=REBALANCE_MS + SESSION_MS
        )
        code = check_code(self, reply.error_code, *_RETRIED, *_FENCED)
        if code is not ErrorCode.NONE:
            yield from self._step_back(code)
            return False
        self._owned = [self._all[number] for number in reply.assignment]
        self.note(f"owns {list(reply.assignment)} generation={self._generation}")
        self.history.groups.was_assigned(
            self._instance_id or self._member_id, self._generation, self._owned, self.world.now_ms
        )
        self.machine.has_told("assigned")
        return True

    def _step_back(self, code: ErrorCode) -> Script:
        """Wait after an error; a member that the coordinator does not know joins as a new one."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
        if code in _RETRIED:
            yield from self._find_coordinator()
        yield from self.sleep(self.world.between(1, 100))

    # --- at work ---------------------------------------------------------------------------------
    def _fetch_offsets(self) -> Generator[Any, Any, bool]:
        self._positions = {}
        if not self._owned:
            return True
        asked: dict[str, list[int]] = {}
        for each in self._owned:
            asked.setdefault(each.topic, []).append(each.partition)
        asked_ms = self.world.now_ms
        reply = yield from self._ask_offsets(asked)
        code = check_code(self, reply.error_code, *_RETRIED)
        if code is not ErrorCode.NONE:
            yield from self._step_back(code)
            return False
        names = {topic_id: name for name, topic_id in self._ids.items()}
        for topic in reply.topics:
            for row in topic.partitions:
                later = *_RETRIED, *_UNSTABLE[: self.reads_stable], *self._unknown
                code = check_code(self, row.error_code, *later)
                if code is not ErrorCode.NONE:
                    yield from self.sleep(self.world.between(10, 200))
                    return False
                name = names[topic.topic_id] if names else topic.name
                partition = TopicPartition(name, row.partition_index)
                if self.is_current():
                    self.history.groups.was_fetched(partition, row.committed_offset, asked_ms)
                self._positions[partition] = max(row.committed_offset, 0)
        return True

    def _ask_offsets(
        self, asked: dict[str, list[int]]
    ) -> Generator[Any, Any, OffsetFetchResponse | OffsetFetchResponseGroup]:
        if not self._ids:
            rows = [
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in asked.items()
            ]
            by_name = OffsetFetchRequest(
                group_id=GROUP, topics=rows, require_stable=self.reads_stable
            )
            low = 7 if self.reads_stable else 1
            return (yield from self.call_broker(by_name, OffsetFetchResponse, low=low, high=7))
        topics = [
            OffsetFetchRequestTopics(topic_id=self._ids[name], partition_indexes=numbers)
            for name, numbers in asked.items()
        ]
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        by_id = OffsetFetchRequest(groups=[group], require_stable=self.reads_stable)
        reply = yield from self.call_broker(by_id, OffsetFetchResponse, low=10)
        (told,) = reply.groups
        return told

    def _topic(self, name: str) -> OffsetCommitRequestTopic:
        if not self._ids:
            return OffsetCommitRequestTopic(name=name)
        return OffsetCommitRequestTopic(topic_id=self._ids[name])

    def _work(self) -> Generator[Any, Any, None]:
        """Commit and heartbeat until the group rebalances, or the member leaves."""
        world = self.world
        while not self.must_end:
            yield from self.sleep(world.between(50, 900))
            if world.chance(0.04):
                # the member is taken for dead
                yield from self.sleep(SESSION_MS + world.between(0, 1_000))
            if world.chance(0.04):
                yield from self._leave()
                return
            if self._instance_id is not None and world.chance(0.05):
                # The member's process ends, and another one takes its place.
                self._former_id, self._member_id = self._member_id, ""
                return
            if self._former_id:
                yield from self._commit_as_former()
            yield from self._move_on()
            code = yield from self._commit()
            if code in _RETRIED:
                yield from self._step_back(code)
                return
            if code is ErrorCode.NONE or world.chance(0.5):
                code = yield from self._heartbeat()
            if code is ErrorCode.REBALANCE_IN_PROGRESS and world.chance(0.3):
                continue  # for a while the member ignores the rebalance
            if code is not ErrorCode.NONE:
                yield from self._step_back(code)
                return

    def _move_on(self) -> Script:
        """Raise the offsets of all partitions."""
        for partition in self._positions:
            self._positions[partition] += self.world.between(1, 9)
        yield from ()

    def _heartbeat(self) -> Generator[Any, Any, ErrorCode]:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        asked_ms = self.world.now_ms
        reply = yield from self.call_broker(request, HeartbeatResponse, low=self._low(0, 3))
        code = check_code(self, reply.error_code, *_RETRIED, *_FENCED)
        if code is ErrorCode.NONE:
            self.history.groups.is_heard(asked_ms)
        return code

    def _commit(self) -> Generator[Any, Any, ErrorCode]:
        if not self._positions:
            return ErrorCode.NONE
        world, groups = self.world, self.history.groups
        commits = {}
        rows: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in self._positions.items():
            commits[partition] = groups.is_committing(
                partition, offset, self._generation, world.now_ms
            )
            row = rows.setdefault(partition.topic, self._topic(partition.topic))
            row.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offset
                )
            )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=list(rows.values()),
        )
        reply = yield from self._ask_commit(request)
        worst = ErrorCode.NONE
        answers = [
            (TopicPartition(name, each.partition_index), each.error_code)
            for name, topic in zip(rows, reply.topics, strict=True)
            for each in topic.partitions
        ]
        for partition, number in answers:
            code = check_code(self, number, *_RETRIED, *_FENCED, *self._unknown)
            commit = commits[partition]
            self.note(f"commit {partition} {commit.offset} {code.name}")
            if code is ErrorCode.NONE:
                groups.was_committed(commit, world.now_ms)
                self.machine.has_told("committed")
            elif code in (*_FENCED, *self._unknown):
                groups.was_refused(partition, commit)
            worst = worst if code is ErrorCode.NONE else code
        return worst

    def _ask_commit(
        self, request: OffsetCommitRequest
    ) -> Generator[Any, Any, OffsetCommitResponse]:
        low, high = (10, 10) if self._ids else (self._low(2, 7), 9)
        answer = yield from self.call_broker(
            request, OffsetCommitResponse, low=low, high=high, waits_ms=5_000
        )
        return answer

    def _commit_as_former(self) -> Script:
        """Commit as the former process of a static member: the commit must be fenced."""
        former_id, self._former_id = self._former_id, ""
        if former_id == self._member_id or not self._positions:
            return
        partition = next(iter(self._positions))
        offset = OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=1_000_000
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=former_id,
            group_instance_id=self._instance_id,
            topics=[self._topic(partition.topic)],
        )
        request.topics[0].partitions.append(offset)
        reply = yield from self._ask_commit(request)
        number = reply.topics[0].partitions[0].error_code
        code = check_code(self, number, *_RETRIED, *_FENCED, *self._unknown)
        self.note(f"former {former_id} commits {code.name}")
        if code is ErrorCode.NONE:
            raise Violation(FENCED, f"{former_id} committed as {self._instance_id}")

    def _low(self, version: int, with_instance: int) -> int:
        """The lowest version that has all needed fields."""
        return version if self._instance_id is None else with_instance

    def _leave(self) -> Generator[Any, Any, None]:
        leaver = MemberIdentity(member_id=self._member_id, group_instance_id=self._instance_id)
        self.history.groups.has_left()
        request = LeaveGroupRequest(group_id=GROUP, members=[leaver])
        reply = yield from self.call_broker(request, LeaveGroupResponse, low=3)
        check_code(self, reply.error_code, *_RETRIED, *_FENCED)
        self._member_id = ""
