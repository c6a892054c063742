"""The broker's event loop: one thread that runs turns.

A turn runs these steps in order: wait for ready descriptors; run the due timers, the posted
callbacks and those of ``call_soon``; run the callback of each ready descriptor, which receives and
parses; run the callbacks of ``call_at_append``; run those of ``call_at_send``; run those of
``call_at_turn_end``, which release the turn's buffers. So the appends of all ready connections
usually become one write per partition, and the responses of a turn one send per connection.

Only the loop's thread may call methods, except ``post`` and ``stop``. An exception from a callback
ends ``run`` and the broker's process: handlers catch every error that a request can cause, so the
exception is a bug.
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
    """The event loop. Each turn (one pass of the loop) runs the callbacks of due timers and of
    ready descriptors, the callbacks that other threads have posted, and those of the turn's phases
    (append, send, end of the turn)."""

    def __init__(self, clock: Clock, poller: Poller) -> None:
        self.clock = clock
        self._poller = poller
        self._monotonic_ns = clock.monotonic_ns
        self.time_ns = clock.monotonic_ns()
        """Monotonic time (ns) at which the current turn of the loop stopped waiting for ready
        descriptors and began its work."""
        self._ended_ns = self.time_ns
        self.time_ms = self.time_ns // _MS
        """The same time as ``now_ms`` returns. Code that runs with every request reads this
        attribute, because a call costs more. Only the loop may set the attribute."""
        self._wheel = TimingWheel(self.time_ms)
        self._ready_callbacks: dict[int, ReadyCallback] = {}
        self._posted: deque[Callback] = deque()
        self._soon: deque[Callback] = deque()
        self._appends: deque[Callback] = deque()
        self._sends: deque[Callback] = deque()
        self._turn_ends: deque[Callback] = deque()
        self._stopping = False
        self.turn = 0
        """The number of the current turn. Code that may do a limited amount of work per turn
        compares this number to notice a new turn."""
        self.ready_count = 0
        """How many descriptors were ready when the current turn began."""
        self.on_turn_over: Callable[[int, int], None] | None = None
        """Called last in each turn, with the monotonic times (ns) of the turn's begin and end."""

    # -- the time of the turn, and timers -----------------------------------------------------

    def now_ms(self) -> int:
        """Return the monotonic time at which this turn began, the same during the whole turn."""
        return self.time_ms

    def call_later(self, delay_ms: int, action: Callback) -> Timer:
        """Run ``action`` once, ``delay_ms`` after ``now_ms``, unless the timer is cancelled."""
        return self._wheel.start(self.time_ms + delay_ms, action)

    def call_at(self, deadline_ms: int, action: Callback) -> Timer:
        """Run ``action`` once, in the first turn whose ``now_ms`` is ``deadline_ms`` or later."""
        return self._wheel.start(deadline_ms, action)

    # -- callbacks in the phases of a turn ----------------------------------------------------

    def call_soon(self, action: Callback) -> None:
        """Run ``action`` at the beginning of the next turn, which then does not sleep.

        When a timer or a posted callback calls this method, ``action`` still runs in this turn.
        """
        self._soon.append(action)

    def call_at_append(self, action: Callback) -> None:
        """Run ``action`` in this turn's append phase: after receiving, before the sends.

        When a callback of the append or send phase calls this method, ``action`` still runs in this
        turn, before the remaining sends.
        """
        self._appends.append(action)

    def call_at_send(self, action: Callback) -> None:
        """Run ``action`` in this turn's send phase, even if a callback of the send phase calls this
        method."""
        self._sends.append(action)

    def send_now(self) -> None:
        """Run the callbacks of the send phase now, except those that are added meanwhile."""
        for _ in range(len(self._sends)):
            self._sends.popleft()()

    def call_at_turn_end(self, action: Callback) -> None:
        """Run ``action`` after all appends and sends of this turn.

        ``action`` must not call ``call_at_append`` or ``call_at_send``: the append and send phases
        of this turn are over, so the added callbacks would run only in the next turn.
        """
        self._turn_ends.append(action)

    def post(self, action: Callback) -> None:
        """Run ``action`` in the loop's thread, in order of posting. Call from any thread."""
        self._posted.append(action)
        self._poller.wake()

    # -- registered descriptors ---------------------------------------------------------------

    def register(self, fd: int, interest: int, callback: ReadyCallback) -> None:
        """Call ``callback(bit set of events)`` in each turn in which ``fd`` is ready."""
        self._poller.register(fd, interest)
        self._ready_callbacks[fd] = callback

    def modify(self, fd: int, interest: int) -> None:
        """Replace the events (READABLE, WRITABLE) for which a registered descriptor is watched."""
        self._poller.modify(fd, interest)

    def unregister(self, fd: int) -> None:
        """Stop calling back for ``fd``, even if ``fd`` is ready in this turn."""
        del self._ready_callbacks[fd]
        self._poller.unregister(fd)

    # -- running turns ------------------------------------------------------------------------

    def run_turn(self, timeout_ms: int | None = None, now_ns: int | None = None) -> None:
        """Run one turn, which sleeps at most ``timeout_ms`` (None: until a descriptor is ready, a
        timer is due, or another thread calls ``post`` or ``stop``).

        ``now_ns`` is the current monotonic time, if the caller knows it.
        """
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
            # If a callback from one of these queues adds another one to the same queue, the new one
            # waits for the next turn. Only a call_soon by a posted callback still runs in this
            # turn, because the length of `_soon` is read after the posted callbacks have run.
            for queue in (self._posted, self._soon):
                for _ in range(len(queue)):
                    queue.popleft()()
        callback_of = self._ready_callbacks.get
        for fd, events in ready:
            callback = callback_of(fd)
            if callback is not None:
                callback(events)
        # An append can cause a response. A sent response can let a connection parse further
        # requests, which append again. So alternate between the two phases until both are empty,
        # and run all appends before each send.
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
        """Run turns until ``stop`` is called."""
        while not self._stopping:
            self.run_turn(None, self._ended_ns)

    def stop(self) -> None:
        """Let ``run`` return at the end of its turn. Call from any thread or signal handler."""
        self._stopping = True
        self._poller.wake()

    def close(self) -> None:
        """Close the poller, which watches the registered descriptors. Descriptors that are still
        registered stay open."""
        self._poller.close()

    def next_wake_ms(self) -> int | None:
        """Return the monotonic time (ms) at which the next turn has work, even if no descriptor is
        ready; None if there is no such time.

        For the simulations in the tests, which move their clock to this time.
        """
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
