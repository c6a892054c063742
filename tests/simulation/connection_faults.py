"""The connections between the places of a simulation, which faults may cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.simulation.network import SimNetwork


class Roads(Protocol):
    """Decides whether data passes between two places."""

    def holds(self, sender: str, receiver: str, action: Callable[[], None]) -> bool:
        """Whether this direction is cut now; ``action`` is called once data passes again."""

    def network_at(self, host: str, port: int) -> SimNetwork | None:
        """The network of the machine that has this address."""


class OpenRoads:
    """Lets all data pass; no machine has an address."""

    def holds(self, _sender: str, _receiver: str, _action: Callable[[], None]) -> bool:
        return False

    def network_at(self, _host: str, _port: int) -> SimNetwork | None:
        return None
