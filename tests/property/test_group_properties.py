"""Any order of joins, syncs, heartbeats, leaves, deletions, time and log failures keeps a group's
promises."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.group_machine import NEW_MEMBER_JOIN_TIMEOUT_MS
from klog_broker.coordinator.group.classic.member import Joiner
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.deletions import Deletions
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pyspark_klog.protocol.apis.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.support.cluster.groups import Sim

REBALANCE_MS = 5_000
member_numbers = st.integers(0, 5)
instances = st.sampled_from([None, None, "i", "j"])


class GroupPromises(RuleBasedStateMachine):
    """Members 1 to 5 by number, as ids; 0 is a newcomer without an id."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = Sim(delay_ms=1_000, max_size=4, member_name=lambda _, number: f"m{number}")
        self.deletions = Deletions(self.sim.runtime, self.sim.time.services.slices)
        self.open: set[object] = set()
        self.generation = 0

    @property
    def group(self) -> ClassicGroup:
        return self.sim.group

    def check_reply(self, reply: JoinGroupResponse | SyncGroupResponse) -> None:
        if reply.error_code != ErrorCode.NONE:
            return
        if isinstance(reply, JoinGroupResponse):
            assert reply.generation_id == self.group.generation_id
            # A member that replaces a static member in a stable group gets the leader's old id.
            assert reply.leader in self.group.members or not reply.members
            assert not reply.skip_assignment or reply.members
            if reply.members:
                assert reply.member_id == reply.leader
                assert {m.member_id for m in reply.members} == set(self.group.members)
        else:
            assert self.group.state is GroupState.STABLE

    def new_waiter(self) -> Callable[[Any], object]:
        def answer(reply: JoinGroupResponse | SyncGroupResponse) -> None:
            assert answer in self.open, "answered twice"
            self.open.remove(answer)
            self.check_reply(reply)

        self.open.add(answer)
        return answer

    @rule(
        number=member_numbers,
        protocols=st.sampled_from([("range",), ("range", "sticky"), ("sticky",), ("x",)]),
        requires_id=st.booleans(),
        skips_assignment=st.booleans(),
        instance=instances,
    )
    def join(
        self,
        number: int,
        protocols: tuple[str, ...],
        requires_id: bool,
        skips_assignment: bool,
        instance: str | None,
    ) -> None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=3_000,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=f"m{number}" if number else "",
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=p, metadata=p.encode()) for p in protocols],
        )
        joiner = Joiner("c", "/h", requires_id, skips_assignment)
        self.sim.run(self.sim.machine.join(request, joiner, self.new_waiter(), self.sim.now_ms))

    @rule(number=member_numbers, is_current=st.booleans(), instance=instances)
    def sync(self, number: int, is_current: bool, instance: str | None) -> None:
        request = SyncGroupRequest(
            group_id="g",
            member_id=f"m{number}",
            generation_id=self.group.generation_id - (not is_current),
            group_instance_id=instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=m.encode())
                for m in self.group.members
            ],
        )
        self.sim.run(self.sim.machine.sync(request, self.new_waiter(), self.sim.now_ms))

    @rule(number=member_numbers)
    def heartbeat(self, number: int) -> None:
        error = self.sim.machine.heartbeat(f"m{number}", self.group.generation_id, self.sim.now_ms)
        known = f"m{number}" in self.group.members
        assert (error is not ErrorCode.UNKNOWN_MEMBER_ID) == known

    @rule(number=member_numbers)
    def leave(self, number: int) -> None:
        _, effects = self.sim.machine.leave(f"m{number}", self.sim.now_ms)
        self.sim.run(effects)
        assert f"m{number}" not in self.group.members

    @rule(instance=st.sampled_from(["i", "j"]))
    def leave_by_name(self, instance: str) -> None:
        known = instance in self.group.static_ids
        error, effects = self.sim.machine.leave("", self.sim.now_ms, instance)
        self.sim.run(effects)
        assert (error is ErrorCode.NONE) == known
        assert instance not in self.group.static_ids

    @rule()
    def delete(self) -> None:
        state, told = self.group.state, []
        self.deletions.delete_groups(["g"], lambda codes: told.append(codes["g"]))
        if state is not GroupState.EMPTY:
            assert told == [ErrorCode.NON_EMPTY_GROUP]
        elif told == [ErrorCode.NONE]:
            assert "g" not in self.sim.shard.state.groups
            self.generation = 0
        else:
            assert told == [ErrorCode.NOT_COORDINATOR], "the log fails"

    @rule(fails=st.booleans())
    def log(self, fails: bool) -> None:
        self.sim.fail_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER if fails else ErrorCode.NONE)

    @rule(ms=st.integers(0, 4_000))
    def time_passes(self, ms: int) -> None:
        self.advance(ms)

    def advance(self, ms: int) -> None:
        end_ms = self.sim.now_ms + ms
        while (deadline := self.sim.machine.next_deadline_ms()) is not None and deadline <= end_ms:
            self.sim.advance(deadline - self.sim.now_ms)
            after = self.sim.machine.next_deadline_ms()
            assert after is None or after > self.sim.now_ms, "a deadline that is over rings again"
        self.sim.advance(end_ms - self.sim.now_ms)

    @invariant()
    def what_is_counted_is_so(self) -> None:
        members = self.group.members.values()
        assert self.group.joining_count == sum(each.join_waiter is not None for each in members)
        offered = Counter(name for each in members for name in set(each.protocol_names()))
        assert self.group.supporters == offered
        deadlines = [each.deadline_ms() for each in members]
        assert all(each is None or each >= self.group.earliest_deadline_ms for each in deadlines)

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.group.generation_id >= self.generation
        self.generation = self.group.generation_id

    @invariant()
    def a_replay_comes_to_the_same(self) -> None:
        replayed = Sim(log=self.sim.log)
        for value in self.sim.records()[-1:]:
            if value is None:
                assert "g" not in replayed.shard.state.groups
                continue
            assert replayed.group.generation_id == value.generation
            assert list(replayed.group.members) == [each.member_id for each in value.members]

    @invariant()
    def the_leader_is_a_member(self) -> None:
        if self.group.members:
            assert self.group.leader_id in self.group.members
        else:
            assert self.group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)

    @invariant()
    def a_name_has_one_member(self) -> None:
        named = {m.group_instance_id: id_ for id_, m in self.group.members.items()}
        named.pop(None, None)
        assert named == self.group.static_ids
        assert all(id_ == m.member_id for id_, m in self.group.members.items())

    @invariant()
    def whoever_waits_has_a_deadline_or_a_member(self) -> None:
        parked: set[object] = {m.join_waiter for m in self.group.members.values()}
        parked |= {m.sync_waiter for m in self.group.members.values()}
        assert self.open <= parked

    def teardown(self) -> None:
        """In the end no request is left waiting, and no silent member is left in the group."""
        self.sim.fail_appends(ErrorCode.NONE)
        self.advance(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
        assert not self.open
        assert self.group.state is GroupState.EMPTY
        assert not self.group.members


TestGroupPromises = GroupPromises.TestCase
TestGroupPromises.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
