"""The classic rebalance protocol, step by step, on the pure machine with a clock of the test's."""

import pytest

from klog_broker.coordinator.group.classic.states import TRANSITIONS, GroupState, check_transition
from klog_broker.coordinator.hashing import java_string_hash, partition_for_key
from pyspark_klog.errors import ErrorCode, InvariantViolation
from tests.support.cluster.groups import NONE, SESSION_MS, Sim, stable_pair


@pytest.fixture
def pair() -> Sim:
    """Two members, client-1 leading, stable in the generation 1."""
    return stable_pair()


def test_the_table_of_states_is_complete_and_refuses_other_steps() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    with pytest.raises(InvariantViolation, match="Stable to CompletingRebalance"):
        check_transition(GroupState.STABLE, GroupState.COMPLETING_REBALANCE)


def test_a_single_member_joins_syncs_and_becomes_leader() -> None:
    sim = Sim()
    sim.join("a")
    reply = sim.joined("a")
    assert (reply.error_code, reply.generation_id, reply.leader) == (NONE, 1, reply.member_id)
    assert [m.member_id for m in reply.members] == [reply.member_id]
    assert (reply.protocol_name, reply.members[0].metadata) == ("range", b"sub")
    sim.sync("s", reply.member_id, 1, client_1=b"all")
    assert sim.synced("s").assignment == b"all"
    assert len(sim.records()) == 1


def test_the_initial_delay_lets_others_join_the_first_generation_and_is_extended() -> None:
    sim = Sim(delay_ms=3_000)
    sim.join("a")
    sim.advance(2_000)
    sim.join("b")
    sim.advance(2_000)
    assert not sim.replies, "somebody joined in the window: it is opened once more"
    sim.join("c")
    sim.advance(20_000)
    assert {sim.joined(w).generation_id for w in "abc"} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout_however_many_join() -> None:
    sim = Sim(delay_ms=3_000)
    for i in range(10):
        sim.join(f"w{i}", rebalance_ms=7_000)
        sim.advance(1_000)
    assert len(sim.replies) >= 7
    assert sim.joined("w0").generation_id == 1


def test_a_new_member_must_come_back_with_the_id_it_is_given() -> None:
    sim = Sim()
    sim.join("a", requires_id=True)
    first = sim.joined("a")
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    sim.join("a", first.member_id, requires_id=True)
    assert sim.joined("a").error_code == NONE


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    sim = Sim()
    sim.join("a", requires_id=True)
    sim.advance(SESSION_MS)
    sim.join("a", "client-1", requires_id=True)
    assert sim.joined("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_many_ids_that_nobody_uses_are_forgotten_by_few_looks() -> None:
    sim = Sim()
    for _ in range(150):
        sim.join("a", requires_id=True)
        sim.advance(1)
    looks = 0
    while (deadline := sim.machine.next_deadline_ms()) is not None:
        sim.advance(deadline - sim.now_ms)
        looks += 1
    assert looks == 3
    assert sim.now_ms <= 1_000 + 150 + SESSION_MS + 100


def test_of_too_many_ids_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog_broker.coordinator.group.classic.group_machine.MAX_PENDING_IDS", 2)
    sim = Sim(delay_ms=1_000)
    for _ in range(3):
        sim.join("a", requires_id=True)
    for number in (1, 2, 3):
        sim.join(f"w{number}", f"client-{number}", requires_id=True)
    sim.advance(2_000)
    assert sim.joined("w1").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sim.joined("w2").error_code == sim.joined("w3").error_code == NONE


def test_a_joiner_rebalances_the_group_and_followers_learn_it_by_heartbeat(pair: Sim) -> None:
    pair.join("c")
    assert pair.machine.heartbeat("client-2", 1, pair.now_ms) == ErrorCode.REBALANCE_IN_PROGRESS
    pair.sync("s", "client-2", 1)
    assert pair.synced("s").error_code == ErrorCode.REBALANCE_IN_PROGRESS
    pair.join("a", "client-1")
    pair.join("b", "client-2")
    replies = [pair.joined(w) for w in "abc"]
    assert {r.generation_id for r in replies} == {2}
    assert [len(r.members) for r in replies] == [3, 0, 0]


def test_a_member_that_does_not_rejoin_in_time_is_out(pair: Sim) -> None:
    pair.join("c")
    pair.join("a", "client-1")
    for _ in range(7):
        pair.advance(SESSION_MS - 1)
        pair.machine.heartbeat("client-2", 1, pair.now_ms)
    reply = pair.joined("a")
    assert {m.member_id for m in reply.members} == {"client-1", "client-3"}
    assert pair.machine.heartbeat("client-2", 2, pair.now_ms) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_given_up_after_its_session(pair: Sim) -> None:
    pair.advance(SESSION_MS - 1)
    assert pair.machine.heartbeat("client-1", 1, pair.now_ms) == NONE
    pair.advance(1)
    assert set(pair.group.members) == {"client-1"}
    assert pair.group.state is GroupState.PREPARING_REBALANCE
    pair.join("a", "client-1")
    assert pair.joined("a").generation_id == 2


def test_a_member_whose_join_is_completed_by_anothers_end_stays() -> None:
    """A heartbeat gives a new member, which still waits for its join, the same deadline."""
    sim = Sim()
    sim.join("a", rebalance_ms=60_000)
    sim.join("b", rebalance_ms=60_000)
    sim.machine.heartbeat("client-2", 1, sim.now_ms)
    sim.advance(SESSION_MS)
    assert sim.joined("b").generation_id == 2
    assert list(sim.group.members) == ["client-2"]
    assert sim.machine.heartbeat("client-2", 2, sim.now_ms) is NONE


def test_the_last_member_leaves_an_empty_group_that_is_recorded(pair: Sim) -> None:
    assert pair.leave("client-1") == NONE
    assert pair.leave("client-2") == NONE
    assert pair.group.state is GroupState.EMPTY
    record = pair.records()[-1]
    assert (record.members, record.protocol, record.generation) == ([], None, 2)
    assert pair.leave("client-2") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_leaves_is_followed_by_the_next(pair: Sim) -> None:
    pair.leave("client-1")
    pair.join("b", "client-2")
    reply = pair.joined("b")
    assert (reply.leader, reply.generation_id) == ("client-2", 2)


def test_an_unknown_member_or_an_old_generation_is_refused(pair: Sim) -> None:
    pair.join("x", "nobody")
    assert pair.joined("x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert pair.machine.heartbeat("nobody", 1, pair.now_ms) == ErrorCode.UNKNOWN_MEMBER_ID
    assert pair.machine.heartbeat("client-1", 0, pair.now_ms) == ErrorCode.ILLEGAL_GENERATION
    pair.sync("x", "client-1", 7)
    assert pair.synced("x").error_code == ErrorCode.ILLEGAL_GENERATION


def test_protocols_that_do_not_fit_are_refused_and_the_group_goes_on(pair: Sim) -> None:
    pair.join("x", protocols=["other"])
    assert pair.joined("x").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    pair.join("x", kind="connect")
    assert pair.joined("x").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    pair.join("x", protocols=[])
    assert pair.joined("x").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert pair.group.state is GroupState.STABLE


def test_the_protocol_is_the_one_that_most_prefer_of_those_all_know() -> None:
    sim = Sim(delay_ms=1_000)
    sim.join("a", protocols=["sticky", "range", "mine"])
    sim.join("b", protocols=["range", "sticky"])
    sim.join("c", protocols=["range", "sticky"])
    sim.advance(5_000)
    assert sim.joined("a").protocol_name == "range"


def test_a_full_group_refuses_new_members() -> None:
    sim = Sim(max_size=1)
    sim.join("a")
    assert sim.joined("a").error_code == NONE
    sim.join("b")
    assert sim.joined("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_follower_whose_reply_was_lost_gets_the_same_generation_again(pair: Sim) -> None:
    pair.join("again", "client-2")
    reply = pair.joined("again")
    assert (reply.error_code, reply.generation_id, reply.members) == (NONE, 1, [])
    pair.sync("again", "client-2", 1)
    assert pair.synced("again").assignment == b"two"
    assert pair.group.state is GroupState.STABLE


def test_a_follower_with_another_subscription_rebalances(pair: Sim) -> None:
    pair.join("b", "client-2", metadata=b"more")
    assert pair.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_rejoins_rebalances(pair: Sim) -> None:
    pair.join("a", "client-1")
    assert pair.group.state is GroupState.PREPARING_REBALANCE


def test_a_join_that_is_repeated_answers_the_parked_one() -> None:
    sim = Sim(delay_ms=1_000)
    sim.join("old")
    sim.join("new", "client-1")
    assert sim.joined("old").error_code == ErrorCode.REBALANCE_IN_PROGRESS
    sim.advance(5_000)
    assert sim.joined("new").generation_id == 1


def test_a_leader_that_never_syncs_is_removed_and_the_rest_rejoin() -> None:
    sim = Sim(delay_ms=1_000)
    sim.join("a", rebalance_ms=4_000)
    sim.join("b", rebalance_ms=4_000)
    sim.advance(2_000)
    assert sim.joined("a").generation_id == 1
    sim.sync("sb", "client-2", 1)
    sim.advance(4_000)
    assert sim.synced("sb").error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(sim.group.members) == {"client-2"}


def test_an_assignment_that_cannot_be_written_is_never_handed_out() -> None:
    sim = Sim()
    sim.join("a")
    sim.fail_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    sim.sync("s", "client-1", 1, client_1=b"all")
    reply = sim.synced("s")
    assert (reply.error_code, reply.assignment) == (ErrorCode.NOT_COORDINATOR, b"")
    assert sim.group.members["client-1"].assignment == b""
    assert sim.group.state is GroupState.PREPARING_REBALANCE


def test_which_members_may_commit(pair: Sim) -> None:
    def check(member: str, generation: int) -> ErrorCode:
        return pair.machine.check_commit(member, generation, pair.now_ms)

    assert check("client-1", 1) == NONE
    assert check("client-1", 0) == ErrorCode.ILLEGAL_GENERATION
    assert check("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert check("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    pair.join("a", "client-1")
    assert check("client-2", 1) == NONE, "while it prepares, the old generation still commits"
    pair.join("b", "client-2")
    assert check("client-2", 2) == ErrorCode.REBALANCE_IN_PROGRESS
    empty = Sim()
    assert empty.machine.check_commit("", -1, 0) == NONE


def test_a_replayed_group_is_stable_and_its_members_have_a_session_to_return(pair: Sim) -> None:
    reloaded = Sim(log=pair.log)
    assert reloaded.group.state is GroupState.STABLE
    assert reloaded.machine.heartbeat("client-2", 1, reloaded.now_ms) == NONE
    reloaded.sync("s", "client-2", 1)
    assert reloaded.synced("s").assignment == b"two"
    reloaded.advance(SESSION_MS)
    assert not reloaded.group.members
    assert reloaded.group.state is GroupState.EMPTY


def test_a_member_of_several_generations_is_replayed_as_the_newest_says(pair: Sim) -> None:
    pair.join("a", "client-1", protocols=("sticky", "range"), rebalance_ms=7_000)
    pair.join("b", "client-2", protocols=("sticky",), metadata=b"more")
    assert pair.joined("a").protocol_name == pair.joined("b").protocol_name == "sticky"
    pair.sync("sa", "client-1", 2, client_1=b"1", client_2=b"2")
    assert pair.synced("sa").error_code == NONE
    reloaded = Sim(log=pair.log)
    first, second = reloaded.group.members.values()
    assert (first.protocols, first.rebalance_timeout_ms) == ((("sticky", b"sub"),), 7_000)
    assert (second.protocols, second.assignment) == ((("sticky", b"more"),), b"2")
    assert reloaded.group.choose_protocol() == "sticky"
    reloaded.join("b", "client-2", protocols=("sticky",), metadata=b"other")
    reloaded.join("a", "client-1", protocols=("sticky",))
    assert reloaded.joined("a").generation_id == reloaded.joined("b").generation_id == 3


def test_silent_members_of_a_replayed_group_are_removed_after_a_session(pair: Sim) -> None:
    reloaded = Sim(log=pair.log)
    reloaded.advance(SESSION_MS - 1)
    assert set(reloaded.group.members) == {"client-1", "client-2"}
    reloaded.advance(1)
    assert reloaded.group.state is GroupState.EMPTY


def test_unloading_fails_all_waiting_requests() -> None:
    sim = Sim(delay_ms=1_000)
    sim.join("a")
    machine = sim.machine
    sim.runtime.unload_shard(0)
    assert sim.joined("a").error_code == ErrorCode.NOT_COORDINATOR
    assert machine.heartbeat("client-1", 0, 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("my-group", -1906497762), ("Aa", 2112), ("BB", 2112), ("😀", 1772899)],
)
def test_groups_hash_as_java_strings(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected
    assert partition_for_key(text, 50) == abs(expected) % 50


def test_the_lowest_hash_counts_as_zero() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for_key("polygenelubricants", 50) == 0
