"""The purgatory: delayed operations, which wait for a condition, such as acknowledgements of
followers, data to fetch, or members of a group.

A delayed operation waits under one or more keys, such as a partition or a group. The operation
completes when ``check`` of one of its keys finds that its condition holds, or expires at its
deadline. Each operation ends exactly once.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import ClassVar, Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer


class DelayedOperation(ABC):
    """An operation that waits for a condition or its deadline.

    Subclasses define ``kind`` and override ``try_complete`` and ``on_expire``.
    """

    __slots__ = ("_keys", "_timer")

    is_long_poll: ClassVar[bool] = False
    """Whether the operation may expire before its deadline without harm: the client only gets its
    response earlier."""

    kind: ClassVar[str]
    """The label of the operation in metrics, the same for all operations of the class."""

    _keys: tuple[Hashable, ...]
    _timer: Timer | None

    @abstractmethod
    def try_complete(self, _now_ms: int, /) -> bool:
        """Complete the operation (send its response) and return True, if its condition holds.

        If the condition does not hold, send nothing and return False. ``watch`` calls this method
        once, then each ``check`` of one of the keys calls it, until the operation has ended.
        """

    @abstractmethod
    def on_expire(self, _now_ms: int, /) -> None:
        """End the operation with the condition unmet, at its deadline or when ``expire_some`` or
        ``expire_all`` expires it earlier: send what is there (Fetch), or an error."""


class KeyListener(Protocol):
    """An object that is notified when `Purgatory.check` is next called for a key. Compared by
    identity."""

    def on_checked(self) -> None:
        """React to the call of `Purgatory.check` for the key. Must be cheap: schedule longer work
        for later."""


class Purgatory:
    """The waiting operations by key, with timers for their deadlines. Loop thread only."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._listening: dict[Hashable, dict[KeyListener, None]] = {}
        self._tried: set[DelayedOperation] = set()
        self._soon: dict[Hashable, None] = {}
        self._is_called = False
        self.waiting_by_kind: Counter[str] = Counter()

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> bool:
        """Try to complete ``operation`` at once; otherwise let the operation wait under ``keys``.

        Returns True if the operation has ended already: completed, or expired because of a timeout
        of 0 or less. Returns False if the operation waits.
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
        """Notify the key's listeners, then try to complete each operation that waits under ``key``.

        Tries the operations in order of their ``watch``; returns how many completed.
        """
        listeners = self._listening.pop(key, None)
        if listeners:
            for listener in listeners:
                listener.on_checked()
        watchers = self._watched.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            # Completing an operation can check other keys, which can end a later operation of this
            # list, or check this key again: skip operations that have ended or are being tried.
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
        """Call `check` for the key once (it tries to complete the operations that wait under the
        key), in the append phase of this event-loop turn, unless ``check_now`` does so earlier."""
        self._soon[key] = None
        if not self._is_called:
            self._is_called = True
            self._loop.call_at_append(self._check_called)

    def check_now(self) -> int:
        """Call `check` for the keys that ``check_soon`` has collected, including keys that the
        checks add.

        Returns how many operations completed.
        """
        completed = 0
        while self._soon:
            keys, self._soon = self._soon, {}
            for key in keys:
                completed += self.check(key)
        return completed

    def _check_called(self) -> None:
        # check_now also checks keys that are added during the call, so reset the flag afterwards.
        self.check_now()
        self._is_called = False

    def cancel(self, operation: DelayedOperation) -> None:
        """Remove a waiting operation without calling its methods.

        For an operation whose response is not wanted: the connection was closed, or the group has
        moved to another broker.
        """
        if self.is_waiting(operation):
            self._forget(operation)

    def listen(self, listener: KeyListener, key: Hashable) -> None:
        """Notify ``listener`` of the next check of ``key``, and of no later one."""
        self._listening.setdefault(key, {})[listener] = None

    def unlisten(self, listener: KeyListener, key: Hashable) -> None:
        """Remove ``listener`` from ``key``; does nothing if it does not listen to ``key``."""
        listeners = self._listening.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listening[key]

    def expire_some(self, most: int, *, long_polls_alone: bool = False) -> int:
        """Expire at least ``most`` operations (fewer only if fewer wait); return how many have
        ended.

        All operations under one key expire together, so that more than ``most`` may expire. With
        ``long_polls_alone``, only operations with ``is_long_poll`` expire.
        """
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
        """Expire all operations that wait under ``key``."""
        for operation in list(self._watched.get(key, ())):
            self._expire(operation)

    @property
    def waiting(self) -> int:
        """The number of waiting operations."""
        return self.waiting_by_kind.total()

    def is_waiting(self, operation: DelayedOperation) -> bool:
        """Return whether the operation waits: neither completed, expired nor cancelled."""
        return getattr(operation, "_timer", None) is not None

    def listening_to(self, key: Hashable) -> int:
        """Return how many listeners wait for the next `check` of ``key``."""
        return len(self._listening.get(key, ()))

    def watched_under(self, key: Hashable) -> int:
        """Return how many operations wait under ``key``."""
        return len(self._watched.get(key, ()))

    def _expire(self, operation: DelayedOperation) -> None:
        if operation._timer is None:
            return  # the expiry of an operation before this one has ended this one, too
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
