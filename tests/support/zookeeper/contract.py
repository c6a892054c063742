"""The contract of `runtime/zookeeper/sessions.py` as tests: for kazoo with a server, and for the
simulation.

A test class takes `ZooKeeperContract` as its base and has a fixture ``world``, a `ContractWorld`.
"""

from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    REQUESTS_IN_FLIGHT,
    ConnectionLost,
    Create,
    Created,
    Node,
    NodeExists,
    NoNode,
    SessionEvent,
    SessionExpired,
    Set,
)
from tests.support.zookeeper.logged_session import ContractWorld, Counting, Opened
from tests.support.zookeeper.requests_contract import RequestsContract

CONNECTED, DISCONNECTED, EXPIRED = SessionEvent


class ZooKeeperContract(RequestsContract):
    """Watches, order, lost connections, the end, and the other half's tests."""

    # --- watches ---------------------------------------------------------------------------------
    def test_a_watch_on_data_fires_once_at_a_change_or_the_end(
        self, one: Opened, other: Opened
    ) -> None:
        one.call_zookeeper("create", "/a", b"")
        one.call_zookeeper("create", "/b", b"")
        self.eventually(other, "exists", "/b", is_so=lambda stat: stat is not None)
        other.call_zookeeper("get", "/a", watch=other.watch("a"))
        other.call_zookeeper("exists", "/b", watch=other.watch("b"))
        one.call_zookeeper("create", "/a/child", b"")  # not a change of the node itself
        one.call_zookeeper("set", "/a", b"", ANY_VERSION)  # one, though the data are the same
        other.until("a")
        one.call_zookeeper("delete", "/b", ANY_VERSION)
        other.until("b")
        one.call_zookeeper("set", "/a", b"2", ANY_VERSION)
        one.call_zookeeper("create", "/b", b"")
        self.eventually(other, "exists", "/b", is_so=lambda stat: stat is not None)
        assert (other.log.count("a"), other.log.count("b")) == (1, 1)

    def test_a_watch_on_what_is_missing_waits_for_its_creation(
        self, one: Opened, other: Opened
    ) -> None:
        assert other.call_zookeeper("exists", "/a", watch=other.watch("made")) is None
        assert isinstance(other.call_zookeeper("get", "/a", watch=other.watch("no watch")), NoNode)
        assert isinstance(
            other.call_zookeeper("children", "/a", watch=other.watch("no watch")), NoNode
        )
        one.call_zookeeper("create", "/a", b"")
        other.until("made")
        one.call_zookeeper("set", "/a", b"", ANY_VERSION)
        one.call_zookeeper("delete", "/a", ANY_VERSION)
        one.call_zookeeper("create", "/z", b"")
        self.eventually(other, "exists", "/z", is_so=lambda stat: stat is not None)
        assert other.log.count("made") == 1
        assert other.log.count("no watch") == 0

    def test_a_watch_on_children_fires_when_one_comes_or_goes_and_at_the_end(
        self, one: Opened, other: Opened
    ) -> None:
        one.call_zookeeper("create", "/a", b"")
        one.call_zookeeper("create", "/a/x", b"")
        self.eventually(other, "exists", "/a/x", is_so=lambda stat: stat is not None)
        other.call_zookeeper("children", "/a", watch=other.watch("first"))
        one.call_zookeeper("set", "/a/x", b"1", ANY_VERSION)
        one.call_zookeeper("set", "/a", b"1", ANY_VERSION)
        self.eventually(other, "get", "/a", is_so=lambda node: node.data == b"1")
        assert other.log.count("first") == 0
        one.call_zookeeper("create", "/a/y", b"")
        other.until("first")
        other.call_zookeeper("children", "/a", watch=other.watch("second"))
        one.call_zookeeper("delete", "/a/x", ANY_VERSION)
        other.until("second")
        one.call_zookeeper("delete", "/a/y", ANY_VERSION)
        self.eventually(other, "children", "/a", is_so=lambda found: found.names == ())
        other.call_zookeeper("children", "/a", watch=other.watch("third"))
        one.call_zookeeper("delete", "/a", ANY_VERSION)
        other.until("third")
        assert [other.log.count(name) for name in ("first", "second", "third")] == [1, 1, 1]

    def test_own_changes_fire_own_watches_before_the_next_answer(self, one: Opened) -> None:
        one.call_zookeeper("create", "/a", b"")
        one.call_zookeeper("get", "/a", watch=one.watch("first"))
        one.call_zookeeper("get", "/a", watch=one.watch("second"))
        one.send_request("multi", [Set("/a", b"1"), Create("/a/b", b"")])
        one.call_zookeeper("get", "/a")
        at = [one.log.index(name) for name in ("first", "second")]
        assert max(at) < len(one.log) - 1

    def test_a_watch_comes_before_an_answer_made_after_the_change(
        self, one: Opened, other: Opened
    ) -> None:
        one.call_zookeeper("create", "/a", b"0")
        self.eventually(other, "exists", "/a", is_so=lambda stat: stat is not None)
        for number in range(1, 8):
            name = f"change {number}"
            other.call_zookeeper("get", "/a", watch=other.watch(name))
            one.send_request("set", "/a", b"%d" % number, number - 1)
            other.log.append("")
            self.eventually(other, "get", "/a", is_so=lambda node, n=number: node.data == b"%d" % n)
            assert name in other.log[: len(other.log) - 1]
            seen = [each.data for each in other.log if isinstance(each, Node)]
            assert seen == sorted(seen)

    # --- order -----------------------------------------------------------------------------------
    def test_answers_come_in_order_and_a_session_sees_its_own_writes(self, one: Opened) -> None:
        answers = [
            one.send_request("create", "/a", b"0"),
            one.send_request("get", "/no"),
            one.send_request("get", "not a path"),
            one.send_request("set", "/a", b"1", 0),
            one.send_request("get", "/a"),
            one.send_request("multi", [Set("/a", b"2", 1), Create("/b", b"")]),
            one.send_request("get", "/a"),
            one.send_request("children", "/"),
            one.send_request("delete", "/b", 0),
            one.send_request("exists", "/b"),
        ]
        one.world.until(lambda: answers[-1], "the last answer")
        assert [each for each in one.log if each is not CONNECTED] == [each[0] for each in answers]
        assert answers[4][0].data == b"1"
        assert answers[6][0].data == b"2"
        assert answers[7][0].names == ("a", "b")
        assert answers[9] == [None]

    def test_after_a_sync_a_session_sees_what_others_wrote(
        self, one: Opened, other: Opened
    ) -> None:
        one.call_zookeeper("create", "/a", b"0")
        for number in range(10):
            one.call_zookeeper("set", "/a", b"%d" % number, number)
            other.send_request("sync")
            seen = other.send_request("get", "/a")
            other.world.until(lambda answer=seen: answer, "what was written")
            assert seen[0].data == b"%d" % number

    def test_no_more_than_64_are_at_the_server(self, world: ContractWorld, one: Opened) -> None:
        one.session.carrier = counting = Counting(one.session.carrier)
        world.pause()
        answers = [one.send_request("create", f"/{number:04d}") for number in range(200)]
        answers.append(one.send_request("children", "/"))
        assert counting.now == counting.most == REQUESTS_IN_FLIGHT
        world.resume()
        world.until(lambda: answers[-1], "all answers")
        assert len(answers[-1][0].names) == 200
        assert counting.most == REQUESTS_IN_FLIGHT
        assert one.log[1:] == [each[0] for each in answers]

    def test_what_is_asked_before_the_first_connection_waits(
        self, world: ContractWorld, chroot: str
    ) -> None:
        opened = Opened(world, chroot, is_awaited=False)
        assert opened.session.session_id == 0
        made = opened.send_request("create", "/a", b"")
        world.until(lambda: made, "an answer")
        assert opened.log[0] is CONNECTED
        assert isinstance(made[0], Created)
        assert opened.session.session_id != 0

    # --- lost connections ------------------------------------------------------------------------
    def test_a_restart_drops_watches_and_keeps_the_session(
        self, world: ContractWorld, one: Opened
    ) -> None:
        one.call_zookeeper("create", "/a", b"", ephemeral=True)
        one.call_zookeeper("exists", "/a", watch=one.watch("dropped"))
        one.call_zookeeper("children", "/", watch=one.watch("dropped"))
        session_id = one.session.session_id
        world.stop()
        one.until(DISCONNECTED)
        waiting = one.send_request("get", "/a")
        world.start()
        one.until(CONNECTED, 2)
        world.until(lambda: waiting, "what was asked meanwhile")
        assert one.session.session_id == session_id
        assert waiting[0].stat.ephemeral_owner == session_id
        one.call_zookeeper("set", "/a", b"1", 0)
        one.call_zookeeper("create", "/b", b"")
        one.call_zookeeper("exists", "/a", watch=one.watch("anew"))
        one.call_zookeeper("set", "/a", b"2", 1)
        one.until("anew")
        assert one.log.count("dropped") == 0
        assert [each for each in one.log if isinstance(each, SessionEvent)] == [
            CONNECTED, DISCONNECTED, CONNECTED,
        ]  # fmt: skip

    def test_what_was_under_way_is_answered_before_the_event(
        self, world: ContractWorld, one: Opened
    ) -> None:
        one.call_zookeeper("create", "/a", b"")
        world.pause()
        lost = [one.send_request("create", f"/a/{number}") for number in range(100)]
        world.stop()
        one.until(DISCONNECTED)
        assert [type(each[0]) for each in lost] == [ConnectionLost] * 100
        assert one.log.index(DISCONNECTED) == len(one.log) - 1
        world.start()
        one.until(CONNECTED, 2)
        # Each of the lost requests may have been carried out; new requests follow them.
        there = one.call_zookeeper("children", "/a").names
        again = [one.call_zookeeper("create", f"/a/{number}") for number in range(100)]
        assert {type(each) for each in again} <= {Created, NodeExists}
        exist = {f"{n}" for n, each in enumerate(again) if isinstance(each, NodeExists)}
        assert exist == set(there)

    # --- the end ---------------------------------------------------------------------------------
    def test_an_expired_session_is_over_for_good(
        self, world: ContractWorld, one: Opened, other: Opened, chroot: str
    ) -> None:
        one.call_zookeeper("create", "/a", b"", ephemeral=True)
        one.call_zookeeper("get", "/a", watch=one.watch("dropped"))
        self.eventually(other, "exists", "/a", is_so=lambda stat: stat is not None)
        session_id = one.session.session_id
        world.expire(session_id)
        self.eventually(other, "exists", "/a", is_so=lambda stat: stat is None)
        one.until(EXPIRED)
        assert one.log[-1] is EXPIRED
        error = one.call_zookeeper("get", "/a")
        assert isinstance(error, SessionExpired)
        assert isinstance(one.call_zookeeper("create", "/a", b""), SessionExpired)
        assert one.session.session_id == session_id
        assert one.log.count("dropped") == 0
        assert isinstance(other.call_zookeeper("create", "/a", b""), Created)
        events = [each for each in one.log if isinstance(each, SessionEvent)]
        assert events in ([CONNECTED, EXPIRED], [CONNECTED, DISCONNECTED, EXPIRED])
        again = Opened(world, chroot)
        assert again.session.session_id not in (session_id, 0)
        ended: list[bool] = []
        one.session.close(lambda: ended.append(True))
        world.until(lambda: ended, "the end of what is over")

    def test_requests_that_wait_when_the_session_expires_are_answered(
        self, world: ContractWorld, one: Opened, other: Opened
    ) -> None:
        world.expire(one.session.session_id)
        answers = [one.send_request("create", f"/{number}") for number in range(100)]
        one.until(EXPIRED)
        kinds = {type(each[0]) for each in answers}
        assert kinds <= {SessionExpired, ConnectionLost}
        assert one.log[-1] is EXPIRED
        assert other.call_zookeeper("children", "/").names == ()

    def test_nothing_is_called_after_close(self, world: ContractWorld, one: Opened) -> None:
        one.call_zookeeper("get", "/", watch=one.watch("watch"))
        before = one.log.copy()
        one.send_request("set", "/", b"1", ANY_VERSION)
        one.send_request("get", "not a path")
        one.close_session()
        one.send_request("get", "/")
        third = Opened(world, "/klog/third")
        third.call_zookeeper("create", "/x", b"", makes_parents=True)
        third.close_session()
        assert one.log == before
