"""The timing wheel against the obvious: a sorted list of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.runtime.event_loop.wheel import Timer, TimingWheel


def nothing() -> None:
    pass


def test_a_timer_expires_at_its_deadline_and_not_before() -> None:
    wheel = TimingWheel(now_ms=1_000)
    timer = wheel.start(1_005, nothing)
    assert wheel.advance(1_004) == []
    assert wheel.advance(1_005) == [timer]
    assert wheel.advance(1_006) == []
    assert not timer.is_active


def test_a_deadline_that_has_passed_expires_at_the_next_advance() -> None:
    wheel = TimingWheel(now_ms=1_000)
    late = wheel.start(400, nothing)
    now = wheel.start(1_000, nothing)
    assert wheel.next_deadline_ms() == 1_000
    assert wheel.advance(1_000) == [late, now]


def test_equal_deadlines_expire_as_they_were_started() -> None:
    wheel = TimingWheel(now_ms=0)
    timers = [wheel.start(5_000, nothing) for _ in range(5)]
    assert wheel.advance(5_000) == timers


def test_a_cancelled_timer_never_expires() -> None:
    wheel = TimingWheel(now_ms=0)
    kept, dropped = wheel.start(10, nothing), wheel.start(10, nothing)
    dropped.cancel()
    dropped.cancel()
    assert wheel.active_timers == 1
    assert wheel.advance(10) == [kept]
    kept.cancel()
    assert wheel.active_timers == 0


def test_an_empty_wheel_has_no_deadline() -> None:
    wheel = TimingWheel(now_ms=0)
    assert wheel.next_deadline_ms() is None
    wheel.start(700_000, nothing).cancel()
    assert wheel.next_deadline_ms() is None


def test_a_far_timer_costs_few_wake_ups() -> None:
    wheel = TimingWheel(now_ms=3)
    timer = wheel.start(600_003, nothing)
    wake_ups = 0
    expired: list[Timer] = []
    while not expired:
        deadline_ms = wheel.next_deadline_ms()
        assert deadline_ms is not None
        expired = wheel.advance(deadline_ms)
        wake_ups += 1
    assert expired == [timer]
    assert deadline_ms == 600_003
    assert wake_ups <= 4  # one for each level that it moves down through


@given(st.integers(1, 8), st.integers(2, 8), st.data())
def test_it_expires_what_a_sorted_list_would(tick_ms: int, size: int, data: st.DataObject) -> None:
    now_ms = data.draw(st.integers(0, 500))
    wheel = TimingWheel(now_ms, tick_ms, size)
    active: list[Timer] = []
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["start", "start", "cancel", "advance"]))
        if step == "start":
            deadline_ms = now_ms + data.draw(st.integers(-20, 5_000))
            active.append(wheel.start(deadline_ms, nothing))
        elif step == "cancel" and active:
            active.pop(data.draw(st.integers(0, len(active) - 1))).cancel()
        elif step == "advance":
            now_ms += data.draw(st.integers(0, 3_000))
            expired = wheel.advance(now_ms)
            # Never early, and late by less than a tick.
            assert all(timer.deadline_ms <= now_ms for timer in expired)
            active = [timer for timer in active if timer not in expired]
            assert all(timer.deadline_ms > now_ms - tick_ms for timer in active)
        assert wheel.active_timers == len(active)
        deadline_ms = wheel.next_deadline_ms()
        assert (deadline_ms is None) == (not active)
        if deadline_ms is not None:
            rounded_up = min(-(-timer.deadline_ms // tick_ms) * tick_ms for timer in active)
            assert deadline_ms <= max(rounded_up, now_ms)
    assert sorted(wheel.advance(now_ms + 10_000), key=id) == sorted(active, key=id)
