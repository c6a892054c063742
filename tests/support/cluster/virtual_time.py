"""A loop on a clock that moves only when the test says so."""

from klog_broker.runtime.event_loop.loop import Loop
from tests.support.runtime.fake_network import ScriptedPoller
from tests.support.runtime.manual_clock import ManualClock


class VirtualTime:
    """A clock, and a loop whose turns the test runs."""

    def __init__(self, now_ms: int = 1_000, poller: ScriptedPoller | None = None) -> None:
        self.clock = ManualClock(now_ms)
        self.loop = Loop(self.clock, poller or ScriptedPoller())

    @property
    def now_ms(self) -> int:
        return self.loop.now_ms()

    def turns(self, count: int = 12, *, after_ms: int = 0) -> None:
        """Run turns, by default enough for all that follows from one event."""
        self.clock.advance(after_ms)
        for _ in range(count):
            self.loop.run_turn(0)

    def settle(self) -> int:
        """Run turns until nothing is left to do at this time; return their number."""
        count = 0
        while (wake_ms := self.loop.next_wake_ms()) is not None and wake_ms <= self.loop.now_ms():
            self.loop.run_turn(0)
            count += 1
        return count

    def advance(self, ms: int) -> None:
        """Let virtual time pass, deadline by deadline."""
        end_ms = self.now_ms + ms
        while (wake_ms := self.loop.next_wake_ms()) is not None and wake_ms <= end_ms:
            self._run_turn_at(max(wake_ms, self.now_ms))
        self._run_turn_at(end_ms)

    def _run_turn_at(self, now_ms: int) -> None:
        self.clock.advance(now_ms - self.clock.monotonic_ms())
        self.loop.run_turn(0)
