"""The objects that keep leaderships, and with them logs, from one request to the next."""

from typing import Protocol
from weakref import WeakSet


class LeaderHolder(Protocol):
    """Keeps leaderships of a request for later requests like it. Compared by identity."""

    def let_go(self) -> None:
        """Forget all leaderships: one of them may have ended, and its log's files may be
        deleted."""


class LeaderHolders:
    """The holders of all connections of a broker, until the connections are gone. Loop thread
    only."""

    def __init__(self) -> None:
        self._holders: WeakSet[LeaderHolder] = WeakSet()

    def add(self, holder: LeaderHolder) -> None:
        """``holder`` has leaderships from now on, until it is told to let go."""
        self._holders.add(holder)

    def let_go_all(self) -> None:
        """A leadership has ended: all holders let go."""
        holders, self._holders = self._holders, WeakSet()
        for holder in holders:
            holder.let_go()
