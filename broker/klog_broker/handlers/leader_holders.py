"""Who holds leaderships, and with them logs, from one request to the next."""

from typing import Protocol
from weakref import WeakSet


class LeaderHolder(Protocol):
    """Something that is kept of a request because its like may come. Compared by identity."""

    def let_go(self) -> None:
        """Forget all leaderships: one of them may have ended, and the files of its log may go."""


class LeaderHolders:
    """Those of all connections of a broker, until these are gone. Loop thread only."""

    def __init__(self) -> None:
        self._holders: WeakSet[LeaderHolder] = WeakSet()

    def add(self, holder: LeaderHolder) -> None:
        """It holds leaderships from now on, until it is told to let go."""
        self._holders.add(holder)

    def let_go_all(self) -> None:
        """A leadership has ended."""
        holders, self._holders = self._holders, WeakSet()
        for holder in holders:
            holder.let_go()
