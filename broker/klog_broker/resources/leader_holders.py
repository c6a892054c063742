"""The objects that keep, between requests, references to `Leader` objects (this broker's
leaderships of partitions), and so to logs."""

from typing import Protocol
from weakref import WeakSet


class LeaderHolder(Protocol):
    """Keeps the `Leader` objects (this broker's leaderships) of the partitions in a connection's
    cached request, for later requests that repeat it. Holders must compare by identity, because
    LeaderHolders keeps them in a set."""

    def release_leaders(self) -> None:
        """Drop all `Leader` objects, because a leadership has ended, and the files of its log may
        be deleted."""


class LeaderHolders:
    """The `LeaderHolder` objects of a broker's connections that keep `Leader` objects. Loop thread
    only.

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
