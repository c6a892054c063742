"""Virtual time: events in an order that the seed chooses, and a trace of all of them."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b
from random import Random

from tests.support.runtime.manual_clock import ManualClock

START_MS = 1_700_000_000_000
Action = Callable[[], None]


class Violation(Exception):
    """A promise was broken. ``check`` names the promise."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


class Event:
    """An action that runs at a point of virtual time, unless it is cancelled."""

    __slots__ = ("action", "due_ms", "is_cancelled")

    def __init__(self, due_ms: int, action: Action) -> None:
        self.due_ms = due_ms
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class WallClock(ABC):
    """A monotonic clock, and a wall clock that may jump."""

    def __init__(self) -> None:
        self.jumps = 0
        self.on_jump: Callable[[int], object] = lambda _: None
        """Called before each jump with its length in milliseconds."""
        self._wall_is_ahead_ms = 0
        self._most_ahead_ms = 0

    @abstractmethod
    def monotonic_ms(self) -> int:
        """Milliseconds of the clock that never jumps."""

    def monotonic_ns(self) -> int:
        return self.monotonic_ms() * 1_000_000

    def now_ms(self) -> int:
        return self.monotonic_ms() + self._wall_is_ahead_ms

    def set_wall(self, ahead_ms: int) -> None:
        """Set the wall clock ``ahead_ms`` ahead of the monotonic clock."""
        self.on_jump(ahead_ms - self._wall_is_ahead_ms)
        self.jumps += 1
        self._wall_is_ahead_ms = ahead_ms
        self._most_ahead_ms = max(self._most_ahead_ms, ahead_ms)

    @property
    def wall_is_ahead_ms(self) -> int:
        """How far the wall clock is ahead of the monotonic clock, in milliseconds."""
        return self._wall_is_ahead_ms

    @property
    def is_behind(self) -> bool:
        """Whether the wall clock is behind the furthest time that it has been set ahead to."""
        return self._wall_is_ahead_ms < self._most_ahead_ms

    def set_right(self) -> None:
        """Set the wall clock as far ahead as it ever was: no stored time is in the future then."""
        if self.is_behind:
            self.set_wall(self._most_ahead_ms)


class WorldClock(WallClock):
    """The monotonic clock of the simulation, and the wall clock of a single machine."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._time = ManualClock(now_ms)

    def monotonic_ms(self) -> int:
        return self._time.monotonic_ms()

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        self._time.advance(by_ms)


class MachineClock(WallClock):
    """A machine's own wall clock, on the simulation's monotonic clock."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._time = world.clock

    def monotonic_ms(self) -> int:
        return self._time.monotonic_ms()


class World:
    """The clock and the queue of events. Events of one millisecond run in any order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = WorldClock(START_MS)
        self.lines: list[str] = []
        self._queue: list[tuple[int, float, int, Event]] = []
        self._count = 0
        self._hash = blake2b(digest_size=16)

    @property
    def now_ms(self) -> int:
        """Milliseconds since the simulation began."""
        return self.clock.monotonic_ms() - START_MS

    def after(self, delay_ms: int, action: Action) -> Event:
        """Run ``action`` in ``delay_ms``."""
        event = Event(self.now_ms + delay_ms, action)
        self._count += 1
        heapq.heappush(self._queue, (event.due_ms, self.random.random(), self._count, event))
        return event

    def run(self, until_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass up to ``until_ms``, or until ``is_over`` returns true."""
        while not is_over():
            if not self._queue or self._queue[0][0] > until_ms:
                self.clock.advance(max(until_ms - self.now_ms, 0))
                return
            due_ms, _, _, event = heapq.heappop(self._queue)
            if event.is_cancelled:
                continue
            if due_ms > self.now_ms:
                self.clock.advance(due_ms - self.now_ms)
            event.action()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.now_ms:>6} {text}"
        self.lines.append(line)
        self._hash.update(line.encode())

    @property
    def trace_hash(self) -> str:
        """The hash of the trace: two runs with equal hashes did the same steps."""
        return self._hash.hexdigest()

    def chance(self, probability: float) -> bool:
        """Whether an event of this probability happens."""
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A random integer from ``low`` to ``high``, both included."""
        return self.random.randint(low, high)
