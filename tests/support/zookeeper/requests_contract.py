"""The contract of `runtime/zookeeper/sessions.py` for single requests: one half of the contract's
tests."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestRefused,
    SessionEvent,
    Set,
    Stat,
)
from tests.support.zookeeper.logged_session import ContractWorld, Opened

_tests = count()


class RequestsContract:
    """Requests of one session. Each test has a new chroot of its own."""

    @pytest.fixture
    def chroot(self) -> str:
        return f"/klog/test-{next(_tests)}"

    @pytest.fixture
    def one(self, world: ContractWorld, chroot: str) -> Opened:
        return Opened(world, chroot)

    @pytest.fixture
    def other(self, world: ContractWorld, chroot: str, one: Opened) -> Opened:
        """Open a session of another process, below the same chroot."""
        return Opened(world, chroot)

    def eventually(self, opened: Opened, *request: Any, is_so: Callable[[Any], bool]) -> Any:
        """Repeat a read until its result is right: reads of other sessions' writes may lag."""
        answers: list[Any] = []

        def ask_again() -> bool:
            if answers and answers[-1] and not is_so(answers[-1][0]):
                answers.pop()
            if not answers:
                answers.append(opened.send_request(*request))
            return bool(answers[-1]) and is_so(answers[-1][0])

        opened.world.until(ask_again, f"what is expected of {request}")
        return answers[-1][0]

    # --- one request -----------------------------------------------------------------------------
    def test_a_node_is_made_read_changed_and_deleted(self, one: Opened) -> None:
        made = one.call_zookeeper("create", "/a", b"1")
        assert isinstance(made, Created)
        assert made.path == "/a"
        stat = made.stat
        assert stat == Stat(stat.czxid, stat.czxid, 0, 0, 0)
        assert stat.czxid > 0
        assert one.call_zookeeper("get", "/a") == Node(b"1", stat)
        assert one.call_zookeeper("exists", "/a") == stat
        changed = one.call_zookeeper("set", "/a", b"2", 0)
        assert changed == stat._replace(mzxid=changed.mzxid, version=1)
        assert changed.mzxid > stat.czxid
        assert one.call_zookeeper("get", "/a") == Node(b"2", changed)
        assert one.call_zookeeper("set", "/a", b"", ANY_VERSION).version == 2
        assert one.call_zookeeper("get", "/a").data == b""
        assert one.call_zookeeper("delete", "/a", 2) is None
        assert one.call_zookeeper("exists", "/a") is None
        assert isinstance(one.call_zookeeper("get", "/a"), NoNode)
        assert one.call_zookeeper("create", "/a", b"").stat.version == 0

    def test_versions_that_do_not_fit_change_nothing(self, one: Opened) -> None:
        one.call_zookeeper("create", "/a", b"1")
        assert isinstance(one.call_zookeeper("set", "/a", b"2", 1), BadVersion)
        assert isinstance(one.call_zookeeper("delete", "/a", 1), BadVersion)
        assert one.call_zookeeper("get", "/a").data == b"1"

    def test_what_is_not_there_or_is_there(self, one: Opened) -> None:
        assert isinstance(one.call_zookeeper("set", "/no", b"", ANY_VERSION), NoNode)
        assert isinstance(one.call_zookeeper("delete", "/no", ANY_VERSION), NoNode)
        assert isinstance(one.call_zookeeper("children", "/no"), NoNode)
        assert isinstance(one.call_zookeeper("create", "/no/child"), NoNode)
        one.call_zookeeper("create", "/a")
        error = one.call_zookeeper("create", "/a")
        assert isinstance(error, NodeExists)
        assert "create" in str(error)
        assert "/a" in str(error)
        one.call_zookeeper("create", "/a/b")
        assert isinstance(one.call_zookeeper("delete", "/a", ANY_VERSION), NotEmpty)
        assert isinstance(one.call_zookeeper("create", "/"), NodeExists)

    def test_children_are_sorted_and_counted(self, one: Opened) -> None:
        assert one.call_zookeeper("children", "/").names == ()
        for name in ("b", "c", "a"):
            one.call_zookeeper("create", f"/{name}")
        found = one.call_zookeeper("children", "/")
        assert found.names == ("a", "b", "c")
        assert found.stat.children == 3
        assert found.stat == one.call_zookeeper("exists", "/")

    def test_a_failed_write_and_a_good_one_take_a_transaction_each(self, one: Opened) -> None:
        first = one.call_zookeeper("create", "/a").stat.czxid
        one.call_zookeeper("create", "/a")
        assert one.call_zookeeper("create", "/b").stat.czxid == first + 2

    def test_sequential_nodes_count_all_children_there_ever_were(self, one: Opened) -> None:
        assert one.call_zookeeper("create", "/n_", sequential=True).path == "/n_0000000000"
        one.call_zookeeper("create", "/a")
        one.call_zookeeper("delete", "/a", ANY_VERSION)
        one.call_zookeeper("create", "/a")
        one.call_zookeeper("create", "/a")  # it exists: not counted
        failed = one.call_zookeeper("multi", [Create("/m", b""), Check("/a", 9)])
        assert isinstance(failed, MultiFailed)
        assert one.call_zookeeper("create", "/n_", sequential=True).path == "/n_0000000003"
        both = one.call_zookeeper("multi", [Create("/n_", b"", sequential=True), Create("/b", b"")])
        assert [each.path for each in both] == ["/n_0000000004", "/b"]

    def test_missing_parents_are_made_where_that_is_asked(self, one: Opened) -> None:
        made = one.call_zookeeper("create", "/a/b/c/d", b"x", makes_parents=True, ephemeral=True)
        assert made.path == "/a/b/c/d"
        assert made.stat.ephemeral_owner == one.session.session_id
        parent = one.call_zookeeper("get", "/a/b/c")
        assert parent.data == b""
        assert parent.stat.ephemeral_owner == 0
        assert isinstance(
            one.call_zookeeper("create", "/a/b/c/d", b"", makes_parents=True), NodeExists
        )

    def test_the_chroot_is_made_and_nobody_sees_it(
        self, world: ContractWorld, one: Opened, chroot: str
    ) -> None:
        above = Opened(world, "")
        one.call_zookeeper("create", "/a", b"1")
        numbered = one.call_zookeeper("create", "/n_", sequential=True)
        assert numbered.path == "/n_0000000001"
        assert one.call_zookeeper("multi", [Create("/b", b"")]) == (Created("/b", None),)
        found = self.eventually(
            above, "children", chroot, is_so=lambda it: getattr(it, "names", ()) != ()
        )
        assert set(found.names) <= {"a", "b", "n_0000000001"}
        assert one.call_zookeeper("children", "/").names == ("a", "b", "n_0000000001")

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a/./b", "/..", "/a\0", "/\ud800"])
    def test_what_is_no_path_is_refused(self, one: Opened, path: str) -> None:
        assert isinstance(one.call_zookeeper("get", path), RequestRefused)
        assert isinstance(
            one.call_zookeeper("multi", [Create("/a", b""), Delete(path)]), RequestRefused
        )
        assert one.call_zookeeper("exists", "/a") is None
        assert one.log.count(SessionEvent.DISCONNECTED) == 0

    def test_what_is_too_large_is_refused_and_the_connection_stays(self, one: Opened) -> None:
        most = b"x" * 990_000
        assert isinstance(one.call_zookeeper("create", "/a", most), Created)
        assert one.call_zookeeper("get", "/a").data == most
        error = one.call_zookeeper("set", "/a", b"x" * 1_000_000, ANY_VERSION)
        assert isinstance(error, RequestRefused)
        assert "at most 1000000" in str(error)
        halves = [Set("/a", b"x" * 500_000), Create("/b", b"x" * 500_000)]
        assert isinstance(one.call_zookeeper("multi", halves), RequestRefused)
        many = [Create(f"/many{number:06d}", b"") for number in range(15_000)]
        assert isinstance(one.call_zookeeper("multi", many), RequestRefused)
        assert one.call_zookeeper("get", "/a").stat.version == 0
        assert one.log.count(SessionEvent.DISCONNECTED) == 0

    def test_many_small_parts_are_one_request(self, one: Opened) -> None:
        parts = [Create(f"/many{number:06d}", b"") for number in range(5_000)]
        assert len(one.call_zookeeper("multi", parts)) == 5_000
        assert len(one.call_zookeeper("children", "/").names) == 5_000

    # --- ephemeral nodes -------------------------------------------------------------------------
    def test_ephemeral_nodes_go_with_their_session(self, one: Opened, other: Opened) -> None:
        one.call_zookeeper("create", "/a", b"", ephemeral=True)
        one.call_zookeeper("multi", [Create("/b", b"", ephemeral=True), Create("/c", b"")])
        assert one.call_zookeeper("exists", "/a").ephemeral_owner == one.session.session_id
        assert one.session.session_id != other.session.session_id
        self.eventually(other, "exists", "/c", is_so=lambda stat: stat is not None)
        assert isinstance(one.call_zookeeper("create", "/a/child"), RequestRefused)
        gone = one.log.copy()
        one.close_session()
        self.eventually(other, "exists", "/a", is_so=lambda stat: stat is None)
        assert other.call_zookeeper("children", "/").names == ("c",)
        assert one.log == gone  # nothing is called after the end

    # --- multi -----------------------------------------------------------------------------------
    def test_a_multi_does_all_and_each_part_sees_those_before_it(self, one: Opened) -> None:
        one.call_zookeeper("create", "/old", b"")
        results = one.call_zookeeper(
            "multi",
            [
                Create("/a", b"1"),
                Create("/a/b", b"2"),
                Set("/a", b"3", 0),
                Check("/a", 1),
                Delete("/old", 0),
                Create("/old", b"new"),
            ],
        )
        stat = results[2]
        assert results == (
            Created("/a", None),
            Created("/a/b", None),
            Stat(stat.czxid, stat.czxid, 1, 0, 1),
            None,
            None,
            Created("/old", None),
        )
        assert one.call_zookeeper("get", "/a") == Node(b"3", stat)
        assert one.call_zookeeper("exists", "/old").czxid == stat.czxid
        assert one.call_zookeeper("multi", []) == ()

    def test_a_multi_that_fails_does_nothing_and_says_at_which_part(self, one: Opened) -> None:
        one.call_zookeeper("create", "/a", b"1")
        before = one.call_zookeeper("children", "/")
        for part, error in (
            (Check("/a", 0), BadVersion),
            (Check("/no", ANY_VERSION), NoNode),
            (Create("/a", b""), NodeExists),
            (Create("/no/b", b""), NoNode),
            (Delete("/b", 5), BadVersion),
            (Delete("/", ANY_VERSION), NotEmpty),
        ):
            parts = [
                Set("/a", b"2"), Create("/b", b""), Create("/b/c", b""), Delete("/b/c"), part,
                Delete("/no"),
            ]  # fmt: skip
            failed = one.call_zookeeper("multi", parts)
            assert isinstance(failed, MultiFailed), part
            assert (failed.index, type(failed.error)) == (4, error)
            assert one.call_zookeeper("get", "/a").data == b"1"
            assert one.call_zookeeper("children", "/") == before
        parts = [Delete("/a"), Delete("/a")]
        assert one.call_zookeeper("multi", parts).index == 1
        assert one.call_zookeeper("get", "/a").data == b"1"
