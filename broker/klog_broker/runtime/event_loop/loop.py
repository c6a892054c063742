"""The broker's event loop: one thread, in turns of two phases.

A turn: wait for ready descriptors; run what threads posted, what was called soon and the timers
that are due; then let every ready descriptor's callback receive and parse (``call_at_append`` and
``call_at_send`` collect what that leads to); then the appends; then the sends. Appends of all ready
connections so become one write per partition, and replies of one turn one send per connection.
``call_at_turn_end`` is for what gives the turn's buffers back.

All methods belong to the loop's thread except ``post`` and ``stop``. An exception out of a callback
ends ``run``: handlers catch what a request can cause, so it is a bug, and the process ends.
"""

from collections import deque
from collections.abc import Callable

from klog_broker.runtime.event_loop.wheel import Timer, TimingWheel
from klog_broker.runtime.net.poller import Poller
from klog_broker.runtime.system.clock import Clock

Callback = Callable[[], None]
ReadyCallback = Callable[[int], None]
_MS = 1_000_000


class Loop:
    """Callbacks by phase, timers, ready descriptors and posts from other threads."""

    def __init__(self, clock: Clock, poller: Poller) -> None:
        self.clock = clock
        self._poller = poller
        self._monotonic_ns = clock.monotonic_ns
        self.time_ns = clock.monotonic_ns()
        """When the current turn began, after its sleep."""
        self._ended_ns = self.time_ns
        self.time_ms = self.time_ns // _MS
        """What ``now_ms`` returns, for code that runs with every request. Others only read it."""
        self._wheel = TimingWheel(self.time_ms)
        self._ready_callbacks: dict[int, ReadyCallback] = {}
        self._posted: deque[Callback] = deque()
        self._soon: deque[Callback] = deque()
        self._appends: deque[Callback] = deque()
        self._sends: deque[Callback] = deque()
        self._turn_ends: deque[Callback] = deque()
        self._stopping = False
        self.turn = 0
        """The number of the current turn; shares of a turn are counted by it."""
        self.ready_count = 0
        """How many descriptors were ready when the current turn began."""
        self.on_turn_over: Callable[[int, int], None] | None = None
        """Called last in each turn, with the times (ns) at which it began and ended."""

    # -- time ---------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Monotonic time when this turn began: the same for all that happens in a turn."""
        return self.time_ms

    def call_later(self, delay_ms: int, action: Callback) -> Timer:
        """Runs ``action`` once, ``delay_ms`` after this turn's time; ``Timer.cancel`` drops it."""
        return self._wheel.start(self.time_ms + delay_ms, action)

    def call_at(self, deadline_ms: int, action: Callback) -> Timer:
        """Runs ``action`` once, in the first turn at or after ``deadline_ms`` (``now_ms`` time)."""
        return self._wheel.start(deadline_ms, action)

    # -- callbacks ----------------------------------------------------------------------------

    def call_soon(self, action: Callback) -> None:
        """Runs ``action`` at the beginning of the next turn, which then does not sleep. Called by a
        posted callback, ``action`` still runs in this turn."""
        self._soon.append(action)

    def call_at_append(self, action: Callback) -> None:
        """Runs ``action`` when this turn's receiving is over, before anything is sent.

        Called within the append phase it still runs in this turn's.
        """
        self._appends.append(action)

    def call_at_send(self, action: Callback) -> None:
        """Runs ``action`` in this turn's last phase. Called within that phase, it still runs."""
        self._sends.append(action)

    def send_now(self) -> None:
        """Runs what was called for this turn's last phase so far; what comes by it runs there."""
        for _ in range(len(self._sends)):
            self._sends.popleft()()

    def call_at_turn_end(self, action: Callback) -> None:
        """Runs ``action`` when appends and sends of this turn are over. ``action`` adds none."""
        self._turn_ends.append(action)

    def post(self, action: Callback) -> None:
        """From any thread: runs ``action`` in the loop's thread, in order of posting."""
        self._posted.append(action)
        self._poller.wake()

    # -- descriptors --------------------------------------------------------------------------

    def register(self, fd: int, interest: int, callback: ReadyCallback) -> None:
        """Calls ``callback(what is ready)`` in each turn in which ``fd`` is ready."""
        self._poller.register(fd, interest)
        self._ready_callbacks[fd] = callback

    def modify(self, fd: int, interest: int) -> None:
        """Changes the interest of a registered descriptor."""
        self._poller.modify(fd, interest)

    def unregister(self, fd: int) -> None:
        """Ends the callbacks for ``fd``, in this turn too."""
        del self._ready_callbacks[fd]
        self._poller.unregister(fd)

    # -- turns --------------------------------------------------------------------------------

    def run_turn(self, timeout_ms: int | None = None, now_ns: int | None = None) -> None:
        """One turn. It sleeps ``timeout_ms`` at most (None: until there is something to do).
        ``now_ns`` is the time, if the caller knows it."""
        ready = self._poller.poll(self._time_to_sleep_ms(timeout_ms, now_ns))
        self.time_ns = self._monotonic_ns()
        now_ms = self.time_ns // _MS
        if now_ms > self.time_ms:
            self.time_ms = now_ms
        self.turn += 1
        self.ready_count = len(ready)
        for timer in self._wheel.advance(self.time_ms):
            timer.action()
        if self._posted or self._soon:
            # A callback that one of these adds to its own queue waits for the next turn. Only a
            # call_soon by a posted callback still runs in this turn, because the length of `_soon`
            # is read after the posted callbacks have run.
            for queue in (self._posted, self._soon):
                for _ in range(len(queue)):
                    queue.popleft()()
        callback_of = self._ready_callbacks.get
        for fd, events in ready:
            callback = callback_of(fd)
            if callback is not None:
                callback(events)
        # An append can lead to a reply, and a reply can let a connection parse on and append
        # again: the phases take turns until both are empty, with sends always after appends.
        while self._appends or self._sends:
            while self._appends:
                self._appends.popleft()()
            if self._sends:
                self._sends.popleft()()
        while self._turn_ends:
            self._turn_ends.popleft()()
        self._ended_ns = self._monotonic_ns()
        if self.on_turn_over is not None:
            self.on_turn_over(self.time_ns, self._ended_ns)

    def run(self) -> None:
        """Turns until ``stop``."""
        while not self._stopping:
            self.run_turn(None, self._ended_ns)

    def stop(self) -> None:
        """Lets ``run`` return at the end of its turn. From any thread or signal handler."""
        self._stopping = True
        self._poller.wake()

    def close(self) -> None:
        """Frees the poller. The descriptors that are still registered stay open."""
        self._poller.close()

    def next_wake_ms(self) -> int | None:
        """When a turn has something to do although no descriptor is ready: for a simulation."""
        if self._soon or self._posted:
            return self.time_ms
        return self._wheel.next_deadline_ms()

    def _time_to_sleep_ms(self, timeout_ms: int | None, now_ns: int | None) -> int | None:
        if self._soon or self._posted:
            return 0
        deadline_ms = self._wheel.next_deadline_ms()
        if deadline_ms is None:
            return timeout_ms
        now_ns = self._monotonic_ns() if now_ns is None else now_ns
        left_ms = max(0, deadline_ms - now_ns // _MS)
        return left_ms if timeout_ms is None else min(left_ms, timeout_ms)
