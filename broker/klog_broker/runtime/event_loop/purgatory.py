"""Where requests wait: for acknowledgements, for data to fetch, for members to join.

An operation waits under keys (a partition, a group) until ``check`` of one of them finds that its
condition holds, or until its deadline. It ends exactly once, whichever comes first.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import ClassVar, Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer


class DelayedOperation(ABC):
    """Something that waits for a condition or its deadline. Override both methods, and
    give it a kind."""

    __slots__ = ("_keys", "_timer")

    is_long_poll: ClassVar[bool] = False
    """Whether the wait may be cut short at any time without anything being lost by it."""

    kind: ClassVar[str]
    """What waits, for metrics: one of a few."""

    _keys: tuple[Hashable, ...]
    _timer: Timer | None

    @abstractmethod
    def try_complete(self, _now_ms: int, /) -> bool:
        """If the condition holds: does what was waited for (sends the reply) and returns True.

        Else changes nothing and returns False. Called once by ``watch`` and then at each ``check``
        of one of the keys, never again after True.
        """

    @abstractmethod
    def on_expire(self, _now_ms: int, /) -> None:
        """The deadline has passed with the condition unmet: ends the wait (sends what there is)."""


class KeyListener(Protocol):
    """Somebody who only wants to know, and has no deadline. Compared by identity."""

    def on_checked(self) -> None:
        """The key was checked. Cheap: whatever has to be done is done later."""


class Purgatory:
    """The operations that wait, by key, on the loop's timing wheel. Loop thread only."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._listening: dict[Hashable, dict[KeyListener, None]] = {}
        self._tried: set[DelayedOperation] = set()
        self._soon: dict[Hashable, None] = {}
        self._is_called = False
        self.waiting_by_kind: Counter[str] = Counter()

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> bool:
        """Tries ``operation`` at once; if its condition does not hold, parks it under ``keys``.

        Returns True if it completed at once. A timeout of 0 or less expires it at once, which
        returns True too: then it is over, and nothing was parked.
        """
        now_ms = self._loop.now_ms()
        if operation.try_complete(now_ms):
            return True
        if timeout_ms <= 0:
            operation.on_expire(now_ms)
            return True
        operation._keys = tuple(dict.fromkeys(keys))
        for key in operation._keys:
            self._watched.setdefault(key, {})[operation] = None
        operation._timer = self._loop.call_later(timeout_ms, lambda: self._expire(operation))
        self.waiting_by_kind[operation.kind] += 1
        return False

    def check(self, key: Hashable) -> int:
        """Tries every operation under ``key``, in order of arrival; returns how many completed.
        Listeners of the key are told before."""
        listeners = self._listening.pop(key, None)
        if listeners:
            for listener in listeners:
                listener.on_checked()
        watchers = self._watched.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            # One operation's completion can check other keys and so end a later one of this list,
            # or come back to this key while it is under way itself.
            if operation not in watchers or operation in self._tried:
                continue
            self._tried.add(operation)
            try:
                is_over = operation.try_complete(self._loop.now_ms())
            finally:
                self._tried.discard(operation)
            if is_over:
                self._forget(operation)
                completed += 1
        return completed

    def check_soon(self, key: Hashable) -> None:
        """Check the key once in this turn, after its other appends; see ``check_now``."""
        self._soon[key] = None
        if not self._is_called:
            self._is_called = True
            self._loop.call_at_append(self._check_called)

    def check_now(self) -> int:
        """Check all keys that are to be checked soon, and those that come by it; returns how many
        operations completed."""
        completed = 0
        while self._soon:
            keys, self._soon = self._soon, {}
            for key in keys:
                completed += self.check(key)
        return completed

    def _check_called(self) -> None:
        # What comes meanwhile is checked by the same call.
        self.check_now()
        self._is_called = False

    def cancel(self, operation: DelayedOperation) -> None:
        """Ends the wait without either callback (the connection is gone, the group moved away)."""
        if self.is_waiting(operation):
            self._forget(operation)

    def listen(self, listener: KeyListener, key: Hashable) -> None:
        """Tells ``listener`` of the next check of ``key``: of that one alone."""
        self._listening.setdefault(key, {})[listener] = None

    def unlisten(self, listener: KeyListener, key: Hashable) -> None:
        """Nothing more is told; not an error if it did not listen."""
        listeners = self._listening.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listening[key]

    def expire_some(self, most: int, *, long_polls_alone: bool = False) -> int:
        """End the waits of about so many operations as if their deadlines had passed; returns how
        many there were."""
        found: dict[DelayedOperation, None] = {}
        for watchers in self._watched.values():
            for each in watchers:
                if each.is_long_poll or not long_polls_alone:
                    found[each] = None
            if len(found) >= most:
                break
        for operation in found:
            self._expire(operation)
        return len(found)

    def expire_all(self, key: Hashable) -> None:
        """End the waits under ``key`` as if their deadlines had passed."""
        for operation in list(self._watched.get(key, ())):
            self._expire(operation)

    @property
    def waiting(self) -> int:
        """How many operations wait."""
        return self.waiting_by_kind.total()

    def is_waiting(self, operation: DelayedOperation) -> bool:
        """Parked, and neither completed, expired nor cancelled."""
        return getattr(operation, "_timer", None) is not None

    def listening_to(self, key: Hashable) -> int:
        """How many listeners ``key`` has."""
        return len(self._listening.get(key, ()))

    def watched_under(self, key: Hashable) -> int:
        """How many operations wait under ``key``."""
        return len(self._watched.get(key, ()))

    def _expire(self, operation: DelayedOperation) -> None:
        if operation._timer is None:
            return  # Another one that was due in this same turn has completed it.
        self._forget(operation)
        operation.on_expire(self._loop.now_ms())

    def _forget(self, operation: DelayedOperation) -> None:
        timer = operation._timer
        if timer is None:
            return
        timer.cancel()
        operation._timer = None
        self.waiting_by_kind[operation.kind] -= 1
        for key in operation._keys:
            watchers = self._watched[key]
            del watchers[operation]
            if not watchers:
                del self._watched[key]
