"""docs/groups.md is current, and the group machine does what each cell of its table says."""

from typing import Any

import pytest

from klog_broker.coordinator.group.classic.deletion_checks import group_deletion_error
from klog_broker.coordinator.group.classic.group_machine import GroupMachine
from klog_broker.coordinator.group.classic.member import Joiner
from klog_broker.coordinator.group.classic.states import (
    PARKED,
    REQUEST_ERRORS,
    GroupRequest,
    GroupState,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from tests.support.cluster.groups import SESSION_MS, Sim, stable_pair

FOLLOWER = "client-2"


def machine_in(state: GroupState) -> GroupMachine:
    """A group in that state, of two members unless it is empty."""
    if state is GroupState.EMPTY:
        return Sim().machine
    sim = stable_pair()
    machine = sim.machine
    if state is GroupState.DEAD:
        sim.runtime.unload_shard(0)
    elif state is not GroupState.STABLE:
        sim.join("leader", "client-1")
        if state is GroupState.COMPLETING_REBALANCE:
            sim.join("follower", FOLLOWER)
    assert machine.group.state is state
    return machine


def send_request(
    machine: GroupMachine, asked: GroupRequest, protocol: str = "range"
) -> ErrorCode | None:
    """Return the error of an immediate response; None if the request waits. In an empty group, a
    new member sends the JoinGroup."""
    group = machine.group
    member, generation = FOLLOWER, group.generation_id
    if asked is GroupRequest.HEARTBEAT:
        return machine.heartbeat(member, generation, 0)
    if asked is GroupRequest.LEAVE:
        return machine.leave(member, 0)[0]
    if asked is GroupRequest.COMMIT:
        return machine.check_commit(member, generation, 0)
    if asked is GroupRequest.COMMIT_FROM_OUTSIDE:
        return machine.check_commit("", -1, 0)
    if asked is GroupRequest.DELETE:
        return group_deletion_error(group)
    replies: list[Any] = []
    if asked is GroupRequest.SYNC:
        request = SyncGroupRequest(group_id="g", member_id=member, generation_id=generation)
        effects = machine.sync(request, replies.append, 0)
    else:
        joins = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member if group.members else "",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"sub")],
        )
        effects = machine.join(joins, Joiner("client", "/h", False), replies.append, 0)
    for answer in effects.responses:
        answer.send()
    return ErrorCode(replies[0].error_code) if replies else None


@pytest.mark.parametrize("state", list(GroupState))
@pytest.mark.parametrize("asked", list(GroupRequest))
def test_each_cell_is_what_the_machine_answers(asked: GroupRequest, state: GroupState) -> None:
    told = send_request(machine_in(state), asked)
    parked = PARKED.get((asked, state), "")
    if parked.startswith("waits") and REQUEST_ERRORS[asked][state] is ErrorCode.NONE:
        # In PREPARING_REBALANCE only this request is missing; in EMPTY, without an initial delay,
        # one member suffices.
        is_last = state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        assert told is (ErrorCode.NONE if is_last else None)
    else:
        assert told is REQUEST_ERRORS[asked][state]


def test_the_tables_name_every_state() -> None:
    assert set(REQUEST_ERRORS) == set(GroupRequest)
    assert all(list(row) == list(GroupState) for row in REQUEST_ERRORS.values())
    assert all(REQUEST_ERRORS[asked][state] is ErrorCode.NONE for asked, state in PARKED)
