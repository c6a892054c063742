"""Virtual time: what happens next, in an order that the seed chooses, and a trace of all of it."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b
from random import Random

from tests.support.manual_clock import ManualClock

START_MS = 1_700_000_000_000
Action = Callable[[], None]


class Violation(Exception):
    """A promise was broken. ``check`` names the promise."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


class Event:
    """Something that is going to happen, unless it is cancelled."""

    __slots__ = ("action", "due_ms", "is_cancelled")

    def __init__(self, due_ms: int, action: Action) -> None:
        self.due_ms = due_ms
        self.action = action
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class WallClock(ABC):
    """Time goes on evenly; what the wall's clock says of it may jump."""

    def __init__(self) -> None:
        self.jumps = 0
        self.on_jump: Callable[[int], object] = lambda _: None
        """Is told by how many milliseconds it jumps, before it does."""
        self._wall_is_ahead_ms = 0
        self._most_ahead_ms = 0

    @abstractmethod
    def monotonic_ms(self) -> int:
        """The time that goes on evenly."""

    def monotonic_ns(self) -> int:
        return self.monotonic_ms() * 1_000_000

    def now_ms(self) -> int:
        return self.monotonic_ms() + self._wall_is_ahead_ms

    def set_wall(self, ahead_ms: int) -> None:
        """What the wall's clock says jumps to so much more than the time that has passed."""
        self.on_jump(ahead_ms - self._wall_is_ahead_ms)
        self.jumps += 1
        self._wall_is_ahead_ms = ahead_ms
        self._most_ahead_ms = max(self._most_ahead_ms, ahead_ms)

    @property
    def wall_is_ahead_ms(self) -> int:
        """By how much the wall's clock says more than the time that has passed."""
        return self._wall_is_ahead_ms

    @property
    def is_behind(self) -> bool:
        """Whether it says less than it would have said, had it not been set back."""
        return self._wall_is_ahead_ms < self._most_ahead_ms

    def set_right(self) -> None:
        """It says no less than ever: what began in the future begins in the past from now on."""
        if self.is_behind:
            self.set_wall(self._most_ahead_ms)


class WorldClock(WallClock):
    """The time of all, and the wall's clock of whoever is alone."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._time = ManualClock(now_ms)

    def monotonic_ms(self) -> int:
        return self._time.monotonic_ms()

    def advance(self, by_ms: int) -> None:
        """Time passes."""
        self._time.advance(by_ms)


class MachineClock(WallClock):
    """A machine's own clock on the wall, in everybody's time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._time = world.clock

    def monotonic_ms(self) -> int:
        return self._time.monotonic_ms()


class World:
    """The clock and what is going to happen. Events of one millisecond come in any order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = WorldClock(START_MS)
        self.lines: list[str] = []
        self._queue: list[tuple[int, float, int, Event]] = []
        self._count = 0
        self._hash = blake2b(digest_size=16)

    @property
    def now_ms(self) -> int:
        """Milliseconds since the beginning."""
        return self.clock.monotonic_ms() - START_MS

    def after(self, delay_ms: int, action: Action) -> Event:
        """Runs ``action`` in so many milliseconds."""
        event = Event(self.now_ms + delay_ms, action)
        self._count += 1
        heapq.heappush(self._queue, (event.due_ms, self.random.random(), self._count, event))
        return event

    def run(self, until_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass up to ``until_ms``, or until it is over."""
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
        """A line of the trace."""
        line = f"{self.now_ms:>6} {text}"
        self.lines.append(line)
        self._hash.update(line.encode())

    @property
    def trace_hash(self) -> str:
        """Two runs with the same hash have done the same, byte by byte."""
        return self._hash.hexdigest()

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return self.random.randint(low, high)
