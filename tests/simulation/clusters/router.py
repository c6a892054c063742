"""The connections between machines; each direction can be cut on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tests.simulation.network import SimNetwork

if TYPE_CHECKING:
    from tests.simulation.clusters.machines import ClusterMachine

ZOOKEEPER = "zookeeper"
Way = tuple[str, str]
"""A sending place and a receiving place."""


class Router:
    """The Roads (network.py) of a cluster.

    Data in a cut direction waits until the cut ends, as TCP sends it again.
    """

    def __init__(self) -> None:
        self.machines: dict[str, ClusterMachine] = {}
        """Machines by address."""
        self._cuts: Counter[Way] = Counter()
        self._held: dict[Way, list[Callable[[], None]]] = {}

    # --- roads -----------------------------------------------------------------------------------
    def holds(self, sender: str, receiver: str, action: Callable[[], None]) -> bool:
        way = (sender, receiver)
        if not self.is_cut(way):
            return False
        self._held.setdefault(way, []).append(action)
        return True

    def network_at(self, host: str, _port: int) -> SimNetwork | None:
        machine = self.machines.get(host)
        return None if machine is None else machine.network

    # --- cuts ------------------------------------------------------------------------------------
    def is_cut(self, way: Way) -> bool:
        return self._cuts[way] > 0

    def cut(self, ways: Iterable[Way]) -> Callable[[], None]:
        """Let nothing pass in these directions until the returned function is called."""
        cut = tuple(ways)
        for way in cut:
            self._cuts[way] += 1
        self._tell_of_zookeeper()
        is_cut = True

        def mend() -> None:
            nonlocal is_cut
            if is_cut:
                is_cut = False
                self._mend(cut)

        return mend

    def cut_off(self, place: str) -> Callable[[], None]:
        """Cut all connections to and from a machine that is switched off."""
        others = [*(each.name for each in self.machines.values()), "clients", ZOOKEEPER]
        ways = [(place, other) for other in others if other != place]
        return self.cut([*ways, *((receiver, sender) for sender, receiver in ways)])

    def _mend(self, ways: tuple[Way, ...]) -> None:
        for way in ways:
            self._cuts[way] -= 1
        self._tell_of_zookeeper()
        for way in ways:
            if not self.is_cut(way):
                for action in self._held.pop(way, ()):
                    action()

    def _tell_of_zookeeper(self) -> None:
        """Pass the cuts on to the simulated ZooKeeper, which has its own connections."""
        for machine in self.machines.values():
            self.look_at_zookeeper(machine)

    def look_at_zookeeper(self, machine: ClusterMachine) -> None:
        """Cut or restore the connection of the machine's present ZooKeeper client."""
        machine.reach_zookeeper(
            to_is_cut=self.is_cut((machine.name, ZOOKEEPER)),
            from_is_cut=self.is_cut((ZOOKEEPER, machine.name)),
        )
