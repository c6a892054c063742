"""A group's machine with a clock, a log and waiters of the test's own."""

from collections.abc import Iterable
from itertools import count

from klog_broker.coordinator.group.classic.effects import Effects
from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.machine import GroupMachine, GroupSettings, Joiner
from klog_broker.coordinator.group.classic.records import apply_metadata, snapshot
from klog_broker.coordinator.group.classic.states import GroupState
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
from pyspark_klog.state_records.group_metadata import GroupMetadataValue

SESSION_MS = 10_000
REBALANCE_MS = 60_000
NONE = ErrorCode.NONE


class Sim:
    """A machine, its log (a list of records) and the replies by waiter."""

    def __init__(self, *, delay_ms: int = 0, max_size: int = 100) -> None:
        ids = count(1)
        self.now_ms = 1_000
        self.group = Group("g")
        settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.machine = GroupMachine(self.group, settings, lambda client: f"{client}-{next(ids)}")
        self.replies: dict[object, list[object]] = {}
        self.log: list[GroupMetadataValue] = []
        self.log_error = NONE

    def run(self, effects: Effects) -> None:
        while True:
            for answer in effects.answers:
                self.replies.setdefault(answer.waiter, []).append(answer.reply)
            if effects.assignments is None:
                return
            if self.log_error is not NONE:
                effects = self.machine.append_failed(self.log_error, self.now_ms)
                continue
            record = snapshot(self.group, effects.assignments, self.now_ms)
            self.log.append(record)
            apply_metadata(self.group, record)
            effects = self.machine.appended(self.now_ms)

    def join(
        self,
        waiter: str,
        member_id: str = "",
        *,
        protocols: Iterable[str] = ("range",),
        requires_id: bool = False,
        kind: str = "consumer",
        rebalance_ms: int = REBALANCE_MS,
        metadata: bytes = b"sub",
        instance: str | None = None,
    ) -> None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=p, metadata=metadata) for p in protocols],
        )
        joiner = Joiner("client", "/127.0.0.1", requires_id)
        self.run(self.machine.join(request, joiner, waiter, self.now_ms))

    def sync(
        self,
        waiter: str,
        member_id: str,
        generation: int,
        instance: str | None = None,
        **given: bytes,
    ) -> None:
        request = SyncGroupRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=instance,
            generation_id=generation,
            assignments=[
                SyncGroupRequestAssignment(member_id=m.replace("_", "-"), assignment=a)
                for m, a in given.items()
            ],
        )
        self.run(self.machine.sync(request, waiter, self.now_ms))

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        error, effects = self.machine.leave(member_id, self.now_ms, instance)
        self.run(effects)
        return error

    def advance(self, ms: int) -> None:
        """Time passes, deadline by deadline."""
        end_ms = self.now_ms + ms
        while (deadline := self.machine.next_deadline_ms()) is not None and deadline <= end_ms:
            self.now_ms = max(self.now_ms, deadline)
            self.run(self.machine.on_deadline(self.now_ms))
        self.now_ms = end_ms

    def joined(self, waiter: str) -> JoinGroupResponse:
        reply = self.replies.pop(waiter)[-1]
        assert isinstance(reply, JoinGroupResponse)
        return reply

    def synced(self, waiter: str) -> SyncGroupResponse:
        reply = self.replies.pop(waiter)[-1]
        assert isinstance(reply, SyncGroupResponse)
        return reply


def stable_pair() -> Sim:
    """Two members, client-1 leading, stable in the generation 1."""
    sim = Sim(delay_ms=3_000)
    sim.join("a")
    sim.join("b")
    sim.advance(3_000)
    sim.advance(3_000)
    assert sim.joined("a").leader == sim.joined("b").leader == "client-1"
    sim.sync("sb", "client-2", 1)
    sim.sync("sa", "client-1", 1, client_1=b"one", client_2=b"two")
    assert sim.synced("sa").assignment == b"one"
    assert sim.synced("sb").assignment == b"two"
    assert sim.group.state is GroupState.STABLE
    return sim
