"""Delayed operations end exactly once: by their condition, by their deadline, or cancelled."""

import pytest

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import DelayedOperation, Purgatory
from tests.support.runtime.fake_network import ScriptedPoller
from tests.support.runtime.manual_clock import ManualClock


class Waits(DelayedOperation):
    """A delayed operation that completes when the test says so."""

    kind = "test"

    def __init__(self, holds: bool = False) -> None:
        self.holds = holds
        self.ended: list[str] = []
        self.tries = 0

    def try_complete(self, now_ms: int) -> bool:
        self.tries += 1
        if self.holds:
            self.ended.append(f"completed at {now_ms}")
        return self.holds

    def on_expire(self, now_ms: int) -> None:
        self.ended.append(f"expired at {now_ms}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def loop(clock: ManualClock) -> Loop:
    return Loop(clock, ScriptedPoller())


@pytest.fixture
def purgatory(loop: Loop) -> Purgatory:
    return Purgatory(loop)


def test_one_whose_condition_holds_is_not_parked(purgatory: Purgatory) -> None:
    operation = Waits(holds=True)
    assert purgatory.watch(operation, ["a"], 100)
    assert operation.ended == ["completed at 0"]
    assert purgatory.waiting == 0
    assert purgatory.check("a") == 0


def test_a_timeout_of_zero_expires_at_once(purgatory: Purgatory) -> None:
    operation = Waits()
    assert purgatory.watch(operation, ["a"], 0)
    assert operation.ended == ["expired at 0"]
    assert not purgatory.is_waiting(operation)


def test_it_completes_at_the_check_of_any_of_its_keys(
    purgatory: Purgatory, loop: Loop, clock: ManualClock
) -> None:
    operation = Waits()
    assert not purgatory.watch(operation, ["a", "b", "a"], 100)
    assert purgatory.is_waiting(operation)
    assert purgatory.check("b") == 0
    operation.holds = True
    assert purgatory.check("c") == 0
    assert purgatory.check("b") == 1
    assert purgatory.check("a") == 0
    assert purgatory.watched_under("a") == purgatory.watched_under("b") == 0
    clock.advance(1000)
    loop.run_turn()
    assert operation.ended == ["completed at 0"]


def test_it_expires_at_its_deadline(purgatory: Purgatory, loop: Loop, clock: ManualClock) -> None:
    operation = Waits()
    purgatory.watch(operation, ["a"], 100)
    clock.advance(99)
    loop.run_turn()
    assert operation.ended == []
    clock.advance(1)
    loop.run_turn()
    assert operation.ended == ["expired at 100"]
    operation.holds = True
    assert purgatory.check("a") == 0
    assert purgatory.waiting == 0


def test_one_that_is_completed_in_the_turn_of_its_deadline_ends_once(
    purgatory: Purgatory, loop: Loop, clock: ManualClock
) -> None:
    class Completing(Waits):
        def on_expire(self, now_ms: int) -> None:
            super().on_expire(now_ms)
            other.holds = True
            purgatory.check("b")

    first, other = Completing(), Waits()
    purgatory.watch(first, ["a"], 100)
    purgatory.watch(other, ["b"], 100)
    clock.advance(100)
    loop.run_turn()
    assert first.ended == ["expired at 100"]
    assert other.ended == ["completed at 100"]


def test_a_cancelled_one_ends_silently(
    purgatory: Purgatory, loop: Loop, clock: ManualClock
) -> None:
    operation = Waits()
    purgatory.watch(operation, ["a"], 100)
    purgatory.cancel(operation)
    purgatory.cancel(operation)
    clock.advance(100)
    loop.run_turn()
    assert operation.ended == []
    assert purgatory.waiting == 0


def test_operations_of_a_key_are_tried_in_order_of_arrival(purgatory: Purgatory) -> None:
    order: list[int] = []

    class Noting(Waits):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def try_complete(self, now_ms: int) -> bool:
            if self.tries:
                order.append(self.number)
            return super().try_complete(now_ms)

    for number in range(4):
        purgatory.watch(Noting(number), ["a"], 100)
    purgatory.check("a")
    assert order == [0, 1, 2, 3]


def test_a_completion_that_ends_its_neighbour_by_another_key(purgatory: Purgatory) -> None:
    neighbour = Waits()

    class Chain(Waits):
        def try_complete(self, now_ms: int) -> bool:
            done = super().try_complete(now_ms)
            if done:
                neighbour.holds = True
                purgatory.check("b")
            return done

    first = Chain()
    purgatory.watch(first, ["a"], 100)
    purgatory.watch(neighbour, ["a", "b"], 100)
    first.holds = True
    assert purgatory.check("a") == 1
    assert first.ended == neighbour.ended == ["completed at 0"]
    assert purgatory.waiting == 0


def test_a_completion_that_checks_its_own_key_happens_once(purgatory: Purgatory) -> None:
    """A commit in a transaction does so: it appends records in the partition it waited for."""

    class ChecksAgain(Waits):
        def try_complete(self, now_ms: int) -> bool:
            is_over = super().try_complete(now_ms)
            if is_over:
                purgatory.check("a")
            return is_over

    operation, neighbour = ChecksAgain(), Waits()
    for each in (operation, neighbour):
        purgatory.watch(each, ["a"], 100)
        each.holds = True
    assert purgatory.check("a") == 1
    assert [operation.ended, neighbour.ended] == [["completed at 0"]] * 2
    assert purgatory.waiting == 0


def test_a_key_that_is_to_be_checked_soon_is_checked_once_in_the_turn(
    purgatory: Purgatory, loop: Loop
) -> None:
    operation = Waits()
    purgatory.watch(operation, ["a"], 100)
    for _ in range(3):
        purgatory.check_soon("a")
    assert operation.tries == 1
    loop.run_turn()
    assert operation.tries == 2
    loop.run_turn()
    assert operation.tries == 2
    purgatory.check_soon("a")
    loop.run_turn()
    assert operation.tries == 3


def test_what_is_checked_now_is_not_checked_again_later(purgatory: Purgatory, loop: Loop) -> None:
    operation = Waits()
    purgatory.watch(operation, ["a"], 100)
    purgatory.check_soon("a")
    purgatory.check_now()
    assert operation.tries == 2
    loop.run_turn()
    assert operation.tries == 2


class Listens:
    """Has another key checked when its own is."""

    def __init__(self, purgatory: Purgatory, key: str) -> None:
        self.purgatory = purgatory
        self.key = key

    def on_checked(self) -> None:
        self.purgatory.check_soon(self.key)


@pytest.mark.parametrize("is_now", [False, True])
def test_keys_that_come_by_a_check_are_checked_behind_the_others(
    purgatory: Purgatory, loop: Loop, is_now: bool
) -> None:
    first, second = Waits(), Waits()
    purgatory.watch(first, ["a"], 100)
    purgatory.watch(second, ["b"], 100)
    purgatory.listen(Listens(purgatory, "a"), "b")
    purgatory.listen(Listens(purgatory, "c"), "a")
    purgatory.check_soon("b")
    if is_now:
        purgatory.check_now()
    else:
        loop.run_turn()
    assert (first.tries, second.tries) == (2, 2)
    assert purgatory.listening_to("a") == 0
