"""Work in parallel: at most so many at once, its order, its progress, and the effect of errors."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.poller import default_poller
from klog_broker.runtime.system.clock import SystemClock
from klog_broker.runtime.threads.parallel_work import ThreadedParallelWork, run_in_order

DEADLINE_S = 30.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(SystemClock(), default_poller())
    yield loop
    loop.close()


def test_all_results_arrive_in_the_callers_thread(loop: Loop) -> None:
    found: dict[tuple[int, int], int] = {}
    threads = set()

    def on_result(group: int, number: int, result: Any) -> None:
        threads.add(threading.current_thread())
        found[group, number] = result

    groups = [[(lambda n=number: n * n) for number in range(20)], [], [lambda: -1]]
    ThreadedParallelWork(loop, "test")(groups, 3, on_result)
    assert found == {**{(0, number): number * number for number in range(20)}, (2, 0): -1}
    assert threads == {threading.current_thread()}


def test_so_many_of_each_group_run_at_once(loop: Loop) -> None:
    meeting = threading.Barrier(2 * 3, timeout=DEADLINE_S)
    lock, running, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # Three of each of two groups have to be here, or this fails.
        meeting.wait()
        with lock:
            running -= 1

    ThreadedParallelWork(loop, "test")([[work] * 6, [work] * 6], 3, lambda *_: None)
    assert most == 6


@pytest.mark.parametrize("in_take", [False, True])
def test_after_an_error_nothing_is_begun(loop: Loop, in_take: bool) -> None:
    begun = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 2 and not in_take:
            raise ValueError("second")
        return number

    def on_result(_: int, __: int, result: int) -> None:
        if result == 2 and in_take:
            raise ValueError("second")

    with pytest.raises(ValueError, match="second"):
        ThreadedParallelWork(loop, "test")([[lambda n=n: work(n) for n in range(9)]], 1, on_result)
    assert begun == [0, 1, 2]


def test_the_loop_turns_meanwhile(loop: Loop) -> None:
    served = threading.Event()
    loop.call_later(1, served.set)
    found: list[bool] = []
    ThreadedParallelWork(loop, "test")(
        [[lambda: served.wait(DEADLINE_S)]], 1, lambda _, __, result: found.append(result)
    )
    assert found == [True]


def test_without_threads_the_order_is_that_of_the_groups() -> None:
    seen: list[str] = []

    def work(name: str) -> str:
        seen.append(f"do {name}")
        return name

    groups = [[lambda: work("a"), lambda: work("b")], [lambda: work("c")]]
    run_in_order(groups, 2, lambda group, number, name: seen.append(f"{group} {number} {name}"))
    assert seen == ["do a", "0 0 a", "do b", "0 1 b", "do c", "1 0 c"]
