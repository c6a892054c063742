"""Work in slices: how much of it a turn does, and in which order."""

from collections.abc import Callable

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import SLICE_ELEMENTS, Slices, Steps
from tests.support.runtime.fake_network import ScriptedPoller
from tests.support.runtime.manual_clock import ManualClock


def started() -> tuple[Loop, Slices]:
    loop = Loop(ManualClock(0), ScriptedPoller())
    loop.run_turn(0)
    return loop, Slices(loop)


class Work:
    """Counts the elements that were done of it."""

    def __init__(self, elements: int, cost: int = 1) -> None:
        self.done = 0
        self.is_over = False
        self.is_closed = False
        self._elements = elements
        self._cost = cost

    def steps(self) -> Steps:
        try:
            while self.done < self._elements:
                yield self._cost
                self.done += self._cost
            self.is_over = True
        finally:
            self.is_closed = True


def always() -> bool:
    return True


def run(slices: Slices, work: Work, is_wanted: Callable[[], bool] = always) -> Work:
    slices.run(work.steps(), is_wanted)
    return work


def test_what_fits_into_the_turn_is_done_at_once() -> None:
    _, slices = started()
    assert run(slices, Work(SLICE_ELEMENTS - 1)).is_over


def test_a_turn_does_a_slice_of_long_work() -> None:
    loop, slices = started()
    work = run(slices, Work(3 * SLICE_ELEMENTS))
    assert work.done < SLICE_ELEMENTS
    loop.run_turn(0)
    assert SLICE_ELEMENTS / 2 < work.done <= 2 * SLICE_ELEMENTS
    for _ in range(3):
        loop.run_turn(0)
    assert work.is_over


def test_much_work_takes_no_more_of_a_turn_than_one() -> None:
    loop, slices = started()
    works = [run(slices, Work(2 * SLICE_ELEMENTS)) for _ in range(10)]
    before = sum(work.done for work in works)
    assert before <= SLICE_ELEMENTS
    while not all(work.is_over for work in works):
        loop.run_turn(0)
        done = sum(work.done for work in works)
        assert before < done <= before + SLICE_ELEMENTS + len(works)
        before = done


def test_short_work_is_not_kept_waiting_by_long_work() -> None:
    loop, slices = started()
    long = run(slices, Work(100 * SLICE_ELEMENTS))
    short = run(slices, Work(5))
    loop.run_turn(0)
    assert short.is_over
    assert not long.is_over


def test_steps_that_cost_much_count_for_it() -> None:
    loop, slices = started()
    work = run(slices, Work(10 * SLICE_ELEMENTS, cost=SLICE_ELEMENTS))
    for turn in range(1, 4):
        loop.run_turn(0)
        assert work.done <= turn * SLICE_ELEMENTS


def test_work_without_a_waiting_request_is_left_undone() -> None:
    loop, slices = started()
    wanted = [True]
    work = run(slices, Work(10 * SLICE_ELEMENTS), lambda: wanted[0])
    wanted[0] = False
    done = work.done
    loop.run_turn(0)
    assert (work.done, work.is_closed, work.is_over) == (done, True, False)
    assert loop.next_wake_ms() is None
