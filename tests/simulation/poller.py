"""A poller that finds ready connections from the state of the streams, in any order.

Readiness is level-triggered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klog_broker.runtime.net.poller import BROKEN, READABLE, WRITABLE

if TYPE_CHECKING:
    from tests.simulation.network import SimNetwork


class SimPoller:
    """The Poller of one run of the broker."""

    def __init__(self, network: SimNetwork) -> None:
        self._network = network
        self.interest: dict[int, int] = {}
        self.sleep: Callable[[int | None], None] | None = None
        """Lets at most that many milliseconds pass; None: a poll returns at once."""

    def register(self, fd: int, interest: int) -> None:
        assert fd not in self.interest
        self.interest[fd] = interest

    def modify(self, fd: int, interest: int) -> None:
        assert fd in self.interest
        self.interest[fd] = interest

    def unregister(self, fd: int) -> None:
        del self.interest[fd]

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        ready = self.ready()
        if not ready and timeout_ms != 0 and self.sleep is not None:
            self.sleep(timeout_ms)
            ready = self.ready()
        self._network.world.random.shuffle(ready)
        return ready

    def ready(self) -> list[tuple[int, int]]:
        """The events that a poll would return now."""
        network = self._network
        ready: list[tuple[int, int]] = []
        for fd, interest in self.interest.items():
            stream = network.streams.get(fd)
            if stream is None:
                listener = network.listener
                is_it = listener is not None and fd == listener.fileno()
                if is_it and listener.waiting and interest & READABLE:
                    ready.append((fd, READABLE))
                continue
            events = 0
            if stream.inbox or stream.is_at_end or stream.is_broken:
                events |= interest & READABLE
            if interest & WRITABLE and (stream.is_broken or stream.room_bytes > 0):
                events |= WRITABLE
            if stream.is_broken:
                events |= BROKEN
            if events:
                ready.append((fd, events))
        return ready

    def wake(self) -> None:
        self._network.wake()

    def close(self) -> None:
        """Keep the registrations, so that a check can inspect them after the broker's end."""
