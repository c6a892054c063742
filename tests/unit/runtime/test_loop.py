"""The loop's turns: phases, timers, posts from threads. Time is a number, descriptors a list."""

import gc
import os
import sys
import threading
from weakref import ref

import pytest

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import READABLE
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.helpers import HelperThreads
from tests.support.eventually import eventually
from tests.support.runtime.fake_network import ScriptedPoller
from tests.support.runtime.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def poller() -> ScriptedPoller:
    return ScriptedPoller()


@pytest.fixture
def loop(clock: ManualClock, poller: ScriptedPoller) -> Loop:
    return Loop(clock, poller)


def test_a_turn_receives_everything_then_appends_then_sends(
    loop: Loop, poller: ScriptedPoller
) -> None:
    happened: list[str] = []

    def receive(fd: int) -> None:
        happened.append(f"receive {fd}")
        loop.call_at_append(lambda: happened.append(f"append {fd}"))
        loop.call_at_send(lambda: happened.append(f"send {fd}"))

    for fd in (1, 2):
        loop.register(fd, READABLE, lambda _, fd=fd: receive(fd))
    loop.call_at_turn_end(lambda: happened.append("end"))
    poller.ready = [(1, READABLE), (2, READABLE)]
    loop.run_turn()
    assert happened == [
        "receive 1", "receive 2", "append 1", "append 2", "send 1", "send 2", "end",
    ]  # fmt: skip


def test_what_a_callback_adds_to_its_own_queue_waits_for_the_next_turn(loop: Loop) -> None:
    happened: list[str] = []

    def posted() -> None:
        happened.append("posted")
        loop.post(lambda: happened.append("posted by posted"))
        loop.call_soon(lambda: happened.append("soon by posted"))

    def soon() -> None:
        happened.append("soon")
        loop.post(lambda: happened.append("posted by soon"))
        loop.call_soon(lambda: happened.append("soon by soon"))

    loop.call_soon(soon)
    loop.post(posted)
    loop.run_turn()
    assert happened == ["posted", "soon", "soon by posted"]
    loop.run_turn()
    assert happened[3:] == ["posted by posted", "posted by soon", "soon by soon"]


def test_what_a_send_leads_to_is_appended_and_sent_in_the_same_turn(loop: Loop) -> None:
    happened: list[str] = []

    def send() -> None:
        happened.append("send")
        loop.call_at_append(append)

    def append() -> None:
        happened.append("append")
        loop.call_at_send(lambda: happened.append("second send"))

    loop.call_at_send(send)
    loop.call_at_send(lambda: happened.append("other send"))
    loop.run_turn()
    assert happened == ["send", "append", "other send", "second send"]


def test_a_callback_that_unregisters_another_is_the_last_to_be_called(
    loop: Loop, poller: ScriptedPoller
) -> None:
    called: list[int] = []

    def first(_: int) -> None:
        called.append(1)
        loop.unregister(2)

    loop.register(1, READABLE, first)
    loop.register(2, READABLE, lambda _: called.append(2))
    poller.ready = [(1, READABLE), (2, READABLE)]
    loop.run_turn()
    assert called == [1]
    assert poller.interest == {1: READABLE}


def test_timers_run_when_they_are_due_and_set_how_long_to_wait(
    loop: Loop, clock: ManualClock, poller: ScriptedPoller
) -> None:
    happened: list[int] = []
    loop.call_later(30, lambda: happened.append(loop.now_ms()))
    cancelled = loop.call_later(10, lambda: happened.append(-1))
    cancelled.cancel()
    loop.run_turn()
    assert poller.timeouts_ms == [30]
    assert happened == []
    clock.advance(29)
    loop.run_turn()
    clock.advance(1)
    loop.run_turn()
    assert happened == [clock.monotonic_ms()]
    loop.run_turn()
    assert poller.timeouts_ms[-1] is None
    assert loop.next_wake_ms() is None


def test_a_timer_that_another_one_of_its_turn_cancels_is_not_run(
    loop: Loop, clock: ManualClock
) -> None:
    happened: list[str] = []

    def first() -> None:
        happened.append("first")
        second.cancel()

    loop.call_later(10, first)
    second = loop.call_later(10, lambda: happened.append("second"))
    clock.advance(10)
    loop.run_turn()
    assert happened == ["first"]


def test_call_soon_runs_in_the_next_turn_and_that_one_does_not_wait(
    loop: Loop, poller: ScriptedPoller
) -> None:
    turns: list[int] = []

    def again() -> None:
        turns.append(loop.turn)
        if len(turns) < 3:
            loop.call_soon(again)

    loop.call_soon(again)
    for _ in range(4):
        loop.run_turn()
    assert turns == [1, 2, 3]
    assert poller.timeouts_ms == [0, 0, 0, None]


def test_posts_from_a_thread_run_in_order_and_wake_the_loop(
    loop: Loop, poller: ScriptedPoller
) -> None:
    ran: list[int] = []

    def post_all() -> None:
        for number in range(100):
            loop.post(lambda number=number: ran.append(number))

    thread = threading.Thread(target=post_all)
    thread.start()
    thread.join()
    assert poller.woken.is_set()
    assert ran == []
    loop.run_turn()
    assert ran == list(range(100))


def test_stop_ends_run_after_its_turn(loop: Loop) -> None:
    ran: list[str] = []
    loop.call_soon(loop.stop)
    loop.call_soon(lambda: ran.append("the rest of the turn"))
    loop.run()
    assert ran == ["the rest of the turn"]


def test_an_exception_of_a_callback_ends_run(loop: Loop) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    loop.call_soon(fail)
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_helpers_bring_results_and_errors_back_to_the_loop(loop: Loop) -> None:
    helpers = HelperThreads(loop, 2, "test")
    outcomes: list[tuple[object, str]] = []
    loop_thread = threading.get_ident()

    def on_result(result: object, error: BaseException | None) -> None:
        assert threading.get_ident() == loop_thread
        outcomes.append((result, type(error).__name__))

    helpers.submit(threading.get_ident, on_result)
    helpers.submit(lambda: 1 // 0, on_result)

    def both() -> bool:
        loop.run_turn()
        return len(outcomes) == 2

    eventually(both)
    results = {name: result for result, name in outcomes}
    assert results["ZeroDivisionError"] is None
    assert results["NoneType"] not in (None, loop_thread)
    helpers.close()
    helpers.submit(lambda: None, on_result)
    loop.run_turn()
    assert len(outcomes) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_helpers_keep_nothing_of_work_that_is_over(loop: Loop, fails: bool) -> None:
    """A file that the work used closes with the work, and not with a garbage collection."""

    class File:
        def read(self) -> "File":
            if fails:
                raise OSError("the read fails")
            return self

    helpers = HelperThreads(loop, 1, "test")
    file = File()
    left, outcomes = ref(file), list[bool]()
    gc.disable()
    try:
        helpers.submit(file.read, lambda _, error: outcomes.append(error is not None))
        del file

        def is_over() -> bool:
            loop.run_turn()
            return outcomes == [fails]

        eventually(is_over)
        eventually(lambda: left() is None)
    finally:
        gc.enable()
    helpers.close()


def test_closing_helpers_finishes_what_was_submitted(loop: Loop) -> None:
    helpers = HelperThreads(loop, 1, "test")
    gate = threading.Event()
    ran: list[int] = []
    helpers.submit(gate.wait, lambda *_: None)
    for number in range(3):
        helpers.submit(lambda number=number: ran.append(number), lambda *_: None)
    gate.set()
    helpers.close()
    assert ran == [0, 1, 2]


def test_a_blocked_helper_does_not_hold_up_the_others(loop: Loop) -> None:
    helpers = HelperThreads(loop, 2, "test")
    gate = threading.Event()
    done: list[str] = []
    helpers.submit(gate.wait, lambda *_: done.append("slow"))
    helpers.submit(lambda: None, lambda *_: done.append("fast"))

    def fast_one() -> bool:
        loop.run_turn()
        return bool(done)

    eventually(fast_one)
    assert done == ["fast"]
    gate.set()
    helpers.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_nice_helpers_let_others_go_before_them(loop: Loop) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    helpers = HelperThreads(loop, 1, "test", niceness=3)
    found: list[int | None] = []
    helpers.submit(priority, lambda result, _: found.append(result))
    helpers.close()
    loop.run_turn()
    assert found == [min(priority() + 3, 19)]


def test_rate_limit_counts_what_it_holds_back() -> None:
    limit = RateLimit(interval_ms=100)
    assert [limit.allows(now) for now in (0, 1, 99, 100, 101)] == [True, False, False, True, False]
    assert limit.pop_suppressed_count() == 3
    assert limit.pop_suppressed_count() == 0
