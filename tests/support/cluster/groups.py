"""A group on the coordinator runtime, with a clock, a log and waiters of the test's own."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.group_machine import GroupMachine, GroupSettings
from klog_broker.coordinator.group.classic.member import Joiner
from klog_broker.coordinator.group.classic.records import GroupEffects
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.shard_state import (
    GROUP_RECORDS,
)
from pyspark_klog.errors import BrokerError, ErrorCode
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
from tests.support.cluster.coordinators import HostedGroups
from tests.support.cluster.state_log import MemoryStateLog
from tests.support.records.record_sets import iterate

SESSION_MS = 10_000
REBALANCE_MS = 60_000
NONE = ErrorCode.NONE


class Sim(HostedGroups):
    """The group "g", its log and the replies by waiter."""

    def __init__(
        self,
        *,
        delay_ms: int = 0,
        max_size: int = 100,
        member_name: Callable[[str, int], str] = lambda client, number: f"{client}-{number}",
        log: MemoryStateLog | None = None,
    ) -> None:
        """Replays the records of ``log``, if it has any."""
        ids = count(1)
        super().__init__(
            log or MemoryStateLog(),
            GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size),
            lambda client: member_name(client, next(ids)),
            append_timeout_ms=5_000,
        )
        self.replies: dict[object, list[object]] = {}

    @property
    def machine(self) -> GroupMachine:
        return self.serving_shard.state.get_or_create("g").machine

    @property
    def group(self) -> ClassicGroup:
        return self.machine.group

    @property
    def now_ms(self) -> int:
        return self.time.now_ms

    def records(self) -> list[GroupMetadataValue | None]:
        """Return the log's records of the group."""
        found = []
        for batch in self.log.batches:
            for record in iterate(batch):
                decoded = GROUP_RECORDS.decode(record.key or b"", record.value)
                assert decoded is not None
                value = decoded[1]
                assert value is None or isinstance(value, GroupMetadataValue)
                found.append(value)
        return found

    def fail_appends(self, error: ErrorCode) -> None:
        """Make all further appends to the log fail with this error; NONE ends that."""
        self.log.fails = None if error is NONE else BrokerError(error)

    def run(self, effects: GroupEffects) -> None:
        self.runtime.carry_out_effects(self.serving_shard, "g", effects)

    def waiter(self, name: object) -> Callable[[Any], object]:
        return lambda reply: self.replies.setdefault(name, []).append(reply)

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
        self.run(self.machine.join(request, joiner, self.waiter(waiter), self.now_ms))

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
        self.run(self.machine.sync(request, self.waiter(waiter), self.now_ms))

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        error, effects = self.machine.leave(member_id, self.now_ms, instance)
        self.run(effects)
        return error

    def advance(self, ms: int) -> None:
        self.time.advance(ms)

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
