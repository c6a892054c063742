"""The objects that hold references to `Leader` objects, and so to logs, between requests."""

from typing import Protocol
from weakref import WeakSet


class LeaderHolder(Protocol):
    """Holds the `Leader` objects of a cached request's partitions between requests. Holders must
    compare by identity, because LeaderHolders keeps them in a set."""

    def release_leaders(self) -> None:
        """Drop all `Leader` objects, because a leadership has ended, and the files of its log may
        be deleted."""


class LeaderHolders:
    """The holders of all open connections of a broker. Loop thread only.

    References to the holders are weak, so a closed connection's holder disappears by itself.
    """

    def __init__(self) -> None:
        self._holders: WeakSet[LeaderHolder] = WeakSet()

    def add(self, holder: LeaderHolder) -> None:
        """Add a holder that has references to `Leader` objects. When any leadership ends, the
        holder's ``release_leaders`` is called, and the holder is removed."""
        self._holders.add(holder)

    def drop_all_leaders(self) -> None:
        """Make all holders drop their `Leader` objects, because a leadership has ended."""
        holders, self._holders = self._holders, WeakSet()
        for holder in holders:
            holder.release_leaders()
