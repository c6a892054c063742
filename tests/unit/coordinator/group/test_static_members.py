"""Static members (KIP-345): a place in the group that outlives the process that has it."""

import struct

import pytest

from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.classic.subscriptions import subscribed_topics
from pyspark_klog.errors import ErrorCode
from tests.support.cluster.groups import NONE, REBALANCE_MS, SESSION_MS, Sim
from tests.support.records.record_sets import iterate

FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def pair() -> Sim:
    """Two static members, ``i`` (i-1, leading) and ``j`` (j-2), stable in the generation 1."""
    sim = Sim(delay_ms=3_000)
    sim.join("a", instance="i", requires_id=True)
    sim.join("b", instance="j", requires_id=True)
    sim.advance(6_000)
    first, second = sim.joined("a"), sim.joined("b")
    assert (first.member_id, second.member_id, first.leader) == ("i-1", "j-2", "i-1")
    assert [m.group_instance_id for m in first.members] == ["i", "j"]
    sim.sync("sb", "j-2", 1, instance="j")
    sim.sync("sa", "i-1", 1, instance="i", i_1=b"one", j_2=b"two")
    assert (sim.synced("sa").assignment, sim.synced("sb").assignment) == (b"one", b"two")
    return sim


def test_a_process_that_comes_back_has_its_place_again_without_a_rebalance(pair: Sim) -> None:
    pair.join("again", instance="j", requires_id=True)
    reply = pair.joined("again")
    assert (reply.error_code, reply.member_id, reply.generation_id) == (NONE, "j-3", 1)
    assert (reply.members, reply.leader) == ([], "i-1")
    assert pair.group.state is GroupState.STABLE
    pair.sync("s", "j-3", 1, instance="j")
    assert pair.synced("s").assignment == b"two"
    assert pair.machine.heartbeat("i-1", 1, pair.now_ms, "i") == NONE


def test_a_leader_that_comes_back_leads_though_the_response_names_its_old_id(pair: Sim) -> None:
    """An assignment would not reach a stable group, so the response names the leader's old id."""
    pair.join("again", instance="i")
    reply = pair.joined("again")
    assert (reply.member_id, reply.leader, reply.members) == ("i-3", "i-1", [])
    assert pair.group.leader_id == "i-3"
    pair.join("again", "i-3", instance="i")
    assert pair.group.state is GroupState.PREPARING_REBALANCE, "as any leader that rejoins"


def test_the_old_process_is_fenced_whatever_it_asks(pair: Sim) -> None:
    pair.join("again", instance="j")
    machine, now_ms = pair.machine, pair.now_ms
    assert machine.heartbeat("j-2", 1, now_ms, "j") == FENCED
    assert machine.check_commit("j-2", 1, now_ms, "j") == FENCED
    pair.sync("s", "j-2", 1, instance="j")
    assert pair.synced("s").error_code == FENCED
    pair.join("j", "j-2", instance="j")
    reply = pair.joined("j")
    assert (reply.error_code, reply.member_id) == (FENCED, "j-2")
    assert pair.leave("j-2", "j") == FENCED
    assert machine.heartbeat("j-2", 1, now_ms) == UNKNOWN, "without the name it is just unknown"
    assert set(pair.group.members) == {"i-1", "j-3"}


def test_a_name_that_nobody_has_is_unknown_and_a_static_member_needs_no_name(pair: Sim) -> None:
    assert pair.machine.heartbeat("i-1", 1, pair.now_ms, "k") == UNKNOWN
    assert pair.machine.heartbeat("i-1", 0, pair.now_ms, "i") == ErrorCode.ILLEGAL_GENERATION
    assert pair.machine.heartbeat("i-1", 1, pair.now_ms) == NONE
    pair.join("x", "i-1", instance="k")
    assert pair.joined("x").error_code == UNKNOWN


def test_a_request_that_waits_under_the_replaced_member_id_is_fenced_at_once() -> None:
    sim = Sim(delay_ms=3_000)
    sim.join("old", instance="i")
    sim.join("new", instance="i")
    reply = sim.joined("old")
    assert (reply.error_code, reply.member_id) == (FENCED, "i-1")
    sim.advance(6_000)
    assert (sim.joined("new").member_id, sim.group.generation_id) == ("i-2", 1)
    sim.join("other", instance="j")
    sim.join("new", "i-2", instance="i")
    sim.joined("new")
    sim.sync("waits", "j-3", 2, instance="j")
    sim.join("newer", instance="j")
    assert sim.synced("waits").error_code == FENCED


def test_a_member_that_comes_back_before_the_assignment_begins_another_rebalance() -> None:
    """The leader knows only the old id, and its assignment would fit no member."""
    sim = Sim(delay_ms=3_000)
    sim.join("a", instance="i")
    sim.join("b", instance="j")
    sim.advance(6_000)
    sim.join("again", instance="j")
    assert sim.group.state is GroupState.PREPARING_REBALANCE
    sim.join("a", "i-1", instance="i")
    assert sim.joined("again").generation_id == 2


def test_another_protocol_rebalances(pair: Sim) -> None:
    both = ["sticky", "range"]
    pair.join("i", "i-1", instance="i", protocols=both)
    pair.join("j", "j-2", instance="j", protocols=both)
    assert pair.joined("i").protocol_name == "sticky"
    pair.joined("j")
    pair.sync("si", "i-1", 2, instance="i")
    pair.join("again", instance="j", protocols=["range"])
    assert pair.group.state is GroupState.PREPARING_REBALANCE
    pair.join("i", "i-1", instance="i", protocols=both)
    assert pair.joined("again").protocol_name == "range"


def test_an_absent_static_member_keeps_its_place_until_its_session_ends(pair: Sim) -> None:
    pair.advance(SESSION_MS - 1)
    assert pair.machine.heartbeat("i-1", 1, pair.now_ms, "i") == NONE
    assert set(pair.group.members) == {"i-1", "j-2"}
    pair.advance(1)
    assert set(pair.group.members) == {"i-1"}
    assert pair.group.state is GroupState.PREPARING_REBALANCE
    pair.join("x", instance="j")
    pair.join("a", "i-1", instance="i")
    assert {m.group_instance_id for m in pair.joined("a").members} == {"i", "j"}


def test_a_rebalance_waits_for_an_absent_static_member_and_then_includes_it() -> None:
    """The member's session is longer than the rebalance, so it is in the next generation, too."""
    sim = Sim()
    sim.join("a", instance="i", rebalance_ms=4_000)
    sim.sync("sa", "i-1", 1, i_1=b"all")
    sim.join("b", rebalance_ms=4_000)
    assert not [w for w in sim.replies if w == "b"]
    sim.advance(4_000)
    reply = sim.joined("b")
    assert (reply.leader, {m.member_id for m in reply.members}) == ("client-2", {"i-1", "client-2"})
    sim.sync("sb", "client-2", 2, client_2=b"half", i_1=b"other half")
    assert sim.synced("sb").assignment == b"half"
    sim.join("a", instance="i", rebalance_ms=4_000)
    sim.sync("sa", sim.joined("a").member_id, 2, instance="i")
    assert sim.synced("sa").assignment == b"other half"


def test_a_rebalance_that_no_one_joins_waits_for_the_sessions_to_end(pair: Sim) -> None:
    pair.join("c", rebalance_ms=3_000)
    pair.run(pair.machine.on_deadline(pair.now_ms))
    assert pair.leave("client-3") == NONE
    pair.replies.clear()
    generation = pair.group.generation_id
    for _ in range(REBALANCE_MS // SESSION_MS + 1):
        pair.machine.heartbeat("i-1", 1, pair.now_ms, "i")
        pair.machine.heartbeat("j-2", 1, pair.now_ms, "j")
        pair.advance(SESSION_MS - 1)
    assert set(pair.group.members) == {"i-1", "j-2"}
    assert pair.group.generation_id == generation
    pair.advance(SESSION_MS)
    assert pair.group.state is GroupState.EMPTY


def test_an_administrator_removes_a_static_member_by_its_name(pair: Sim) -> None:
    assert pair.leave("", "nobody") == UNKNOWN
    assert pair.leave("", "j") == NONE
    assert set(pair.group.members) == {"i-1"}
    assert pair.leave("i-1", "i") == NONE
    assert pair.group.state is GroupState.EMPTY
    assert not pair.group.static_ids


def test_a_new_id_that_cannot_be_recorded_is_not_given(pair: Sim) -> None:
    pair.fail_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    pair.join("again", instance="i", metadata=b"other")
    reply = pair.joined("again")
    assert (reply.error_code, reply.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert pair.group.leader_id == "i-1"
    assert pair.group.static_ids == {"i": "i-1", "j": "j-2"}
    assert pair.group.members["i-1"].metadata_for("range") == b"sub"
    assert pair.machine.heartbeat("i-1", 1, pair.now_ms, "i") == NONE


def test_an_id_that_was_handed_out_is_for_a_dynamic_member() -> None:
    sim = Sim()
    sim.join("a", requires_id=True)
    sim.join("b", "client-1", instance="i", requires_id=True)
    assert sim.joined("b").error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_places_survive_a_restart(pair: Sim) -> None:
    pair.join("again", instance="j")
    for batch in pair.log.batches:
        for record in iterate(batch):
            assert (record.value or b"")[:2] == b"\0\3", "what Kafka 2.3 and later write"
    reloaded = Sim(log=pair.log)
    assert reloaded.group.static_ids == {"i": "i-1", "j": "j-3"}
    assert reloaded.machine.heartbeat("j-2", 1, reloaded.now_ms, "j") == FENCED
    reloaded.join("x", instance="j")
    assert reloaded.joined("x").generation_id == 1
    assert reloaded.group.state is GroupState.STABLE


def test_a_full_group_refuses_the_static_member_that_comes_back_last() -> None:
    sim = Sim(delay_ms=1_000, max_size=2)
    sim.join("a")
    sim.join("b")
    sim.advance(2_000)
    sim.sync("sa", "client-1", 1)
    sim.machine._max_size = 1  # as after a restart with another group.max.size
    sim.join("a", "client-1", metadata=b"more")
    sim.join("b", "client-2")
    assert sim.replies["b"][-1].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED  # type: ignore[attr-defined]
    assert set(sim.group.members) == {"client-1"}
    assert sim.joined("a").generation_id == 2


# -- what the members are subscribed to -------------------------------------------------------


def subscription(*topics: str, version: int = 0, rest: bytes = b"") -> bytes:
    data = struct.pack(">hi", version, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    return data + struct.pack(">i", -1) + rest


def subscribed(*metadata: bytes, kind: str = "consumer") -> frozenset[str] | None:
    sim = Sim(delay_ms=1_000)
    for number, each in enumerate(metadata):
        sim.join(f"w{number}", kind=kind, metadata=each)
    sim.advance(5_000)
    return subscribed_topics(sim.group)


def test_the_topics_of_all_members_whatever_their_version() -> None:
    newer = subscription("b", "c", version=3, rest=b"\0\0\0\0\0\0\0\7")
    assert subscribed(subscription("a", "b"), newer) == {"a", "b", "c"}
    assert subscribed(subscription()) == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0\0\0\0\0\1", subscription("a")[:8], b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\1\xff"],
)
def test_invalid_subscriptions_name_no_topics(metadata: bytes) -> None:
    assert subscribed(metadata) is None


def test_other_kinds_of_groups_and_groups_without_a_generation_name_no_topics() -> None:
    assert subscribed(subscription("a"), kind="connect") is None
    assert subscribed_topics(Sim().group) is None
