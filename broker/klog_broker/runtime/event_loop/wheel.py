"""A hierarchical timing wheel: timers start in nearly constant time, and are cancelled in constant
time.

Pure: the time is an argument, in milliseconds of a monotonic clock. A level has ``size`` buckets of
``tick_ms`` each. A timer beyond a level's span goes to the next level, whose tick is the lower
level's span. When a bucket of a higher level is due, its timers move down. A heap, ordered by time,
holds the buckets with timers, so that the next deadline is known at once and an idle wheel costs
nothing. Kafka's timing wheels use a queue of buckets in the same way.
"""

import heapq
from collections.abc import Callable

TimerAction = Callable[[], None]


def _nothing() -> None:
    """The action of a cancelled timer."""


class Timer:
    """A started timer. ``TimingWheel.advance`` returns the timer once, unless it is cancelled."""

    __slots__ = ("_bucket", "action", "deadline_ms")

    def __init__(self, deadline_ms: int, action: TimerAction) -> None:
        self.deadline_ms = deadline_ms
        self.action = action
        self._bucket: _Bucket | None = None

    @property
    def is_active(self) -> bool:
        """Whether the timer has neither expired nor been cancelled."""
        return self._bucket is not None

    def cancel(self) -> None:
        """Remove the timer from the wheel and replace its action by one that does nothing.

        So a timer that has expired in this turn, but has not run yet, can still be cancelled.
        """
        self.action = _nothing
        bucket = self._bucket
        if bucket is not None:
            del bucket.timers[self]
            bucket.level.wheel.active_timers -= 1
            self._bucket = None


class _Bucket:
    """The timers of one tick of a level of the timing wheel. After the tick, the bucket is used for
    a later tick.

    ``time_ms`` is the start of the tick that the bucket was last queued for.
    """

    __slots__ = ("level", "queued", "time_ms", "timers")

    def __init__(self, level: "_Level") -> None:
        self.level = level
        self.time_ms = -1
        self.queued = False
        # A dict keeps the timers in the order of their start and deletes one in constant time.
        self.timers: dict[Timer, None] = {}


class _Level:
    __slots__ = ("buckets", "span_ms", "tick_ms", "wheel")

    def __init__(self, wheel: "TimingWheel", tick_ms: int, size: int) -> None:
        self.wheel = wheel
        self.tick_ms = tick_ms
        self.span_ms = tick_ms * size
        self.buckets = [_Bucket(self) for _ in range(size)]


class TimingWheel:
    """Timers by deadline. A timer expires at the first ``advance`` at or past its deadline.

    Deadlines are rounded up to ``tick_ms``, never down, so no timer expires early.
    """

    def __init__(self, now_ms: int, tick_ms: int = 1, size: int = 64) -> None:
        self._now_ms = now_ms
        self._size = size
        self._levels = [_Level(self, tick_ms, size)]
        self._queue: list[tuple[int, int, _Bucket]] = []
        self._sequence = 0
        self.active_timers = 0

    def start(self, deadline_ms: int, action: TimerAction) -> Timer:
        """Start a timer; a timer whose deadline has passed expires at the next ``advance``."""
        timer = Timer(deadline_ms, action)
        self.active_timers += 1
        self._place(timer)
        return timer

    def next_deadline_ms(self) -> int | None:
        """Return the time (ms) at which ``advance`` next has timers to expire or to move to a lower
        level; None without timers.

        The time is never later than the first timer's deadline, but may be earlier, because timers
        of a higher level move down first.
        """
        queue = self._queue
        while queue and not queue[0][2].timers:
            heapq.heappop(queue)[2].queued = False
        return queue[0][0] if queue else None

    def advance(self, now_ms: int) -> list[Timer]:
        """Move to ``now_ms`` and return the expired timers, ordered by deadline.

        Timers with the same deadline keep the order of their start, if all were started on the same
        level of the wheel.
        """
        expired: list[Timer] = []
        queue = self._queue
        if not queue or queue[0][0] > now_ms:
            # In most turns no bucket is due.
            if now_ms > self._now_ms:
                self._now_ms = now_ms
            return expired
        while queue and queue[0][0] <= now_ms:
            due_ms, _, bucket = heapq.heappop(queue)
            bucket.queued = False
            timers, bucket.timers = bucket.timers, {}
            self._now_ms = max(self._now_ms, due_ms)
            for timer in timers:
                timer._bucket = None
                if timer.deadline_ms <= due_ms:
                    self.active_timers -= 1
                    expired.append(timer)
                else:
                    self._place(timer)
        self._now_ms = max(self._now_ms, now_ms)
        expired.sort(key=lambda timer: timer.deadline_ms)
        return expired

    def _place(self, timer: Timer) -> None:
        tick_ms = self._levels[0].tick_ms
        # On the lowest level the timer expires at the bucket's time, so the deadline is rounded up
        # to a tick. On a higher level the timer only waits in a bucket to move down, so the bucket
        # is the one whose tick contains the deadline.
        due_ms = max(-(-timer.deadline_ms // tick_ms) * tick_ms, self._now_ms)
        now_ms = self._now_ms
        number = 0
        level = self._levels[0]
        # A timer beyond a level's span is at least one whole tick ahead on the next level. So a
        # bucket above the lowest level always lies in the future, and each move down reaches a
        # lower level.
        while due_ms // level.tick_ms - now_ms // level.tick_ms >= self._size:
            number += 1
            if number == len(self._levels):
                self._levels.append(_Level(self, level.span_ms, self._size))
            level = self._levels[number]
        time_ms = due_ms - due_ms % level.tick_ms
        bucket = level.buckets[time_ms // level.tick_ms % self._size]
        if not bucket.queued:
            bucket.time_ms = time_ms
            bucket.queued = True
            self._sequence += 1
            heapq.heappush(self._queue, (time_ms, self._sequence, bucket))
        bucket.timers[timer] = None
        timer._bucket = bucket
