"""Cuts this broker off from other brokers and from ZooKeeper, as a network partition does.

A cut concerns only connections that this broker makes: to other brokers (`IsolatedNetwork`) and to
ZooKeeper. While a cut lasts, each attempt to connect, send or receive fails, and the broker closes
the connection. To cut a broker off, a test adds a cut to every broker of the cluster, because one
of two brokers has made the connection between them. Clients' connections are never cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from errno import EHOSTUNREACH
from functools import partial
from typing import ParamSpec, TypeVar

from klog_broker.runtime.net.sockets import Network, StreamSocket

P = ParamSpec("P")
R = TypeVar("R")

Address = tuple[str, int]
"""The host and port at which a broker listens for other brokers."""


@dataclass(slots=True, eq=False)
class Cut:
    """An active cut. ``address`` is the broker that cannot be reached; None stands for all brokers
    and ZooKeeper."""

    address: Address | None
    to_brokers: int = 0
    """The number of connections to brokers that the cut has closed or refused."""
    to_zookeeper: int = 0
    """The number of connections to ZooKeeper that the cut has closed or refused. Another thread
    than the event loop's counts them, so they have a counter of their own."""

    @property
    def fired(self) -> int:
        """The number of connections that the cut has closed or refused."""
        return self.to_brokers + self.to_zookeeper


class Isolation:
    """The active cuts of one broker, by number. All threads may call ``check_zookeeper``; only the
    event loop's thread may call the other methods."""

    def __init__(self) -> None:
        # The dict is replaced, never changed, because check_zookeeper reads it in another thread.
        self._cuts: dict[int, Cut] = {}

    def add(self, number: int, address: Address | None) -> None:
        """Activate a cut, which the test knows by ``number``."""
        self._cuts = {**self._cuts, number: Cut(address)}

    def has(self, number: int) -> bool:
        """Whether a cut with this number is active."""
        return number in self._cuts

    def end(self, number: int) -> int:
        """End an active cut; return how many connections it has closed or refused."""
        fired = self._cuts[number].fired
        self._cuts = {key: cut for key, cut in self._cuts.items() if key != number}
        return fired

    def end_all(self) -> None:
        """End all cuts, as at the end of the test's process."""
        self._cuts = {}

    def fired(self, number: int) -> int:
        """Return how many connections an active cut has closed or refused."""
        return self._cuts[number].fired

    def check_broker(self, addresses: frozenset[Address]) -> None:
        """Check that no cut concerns a broker, which has these addresses.

        :raises OSError: if a cut does
        """
        for cut in self._cuts.values():
            if cut.address is None or cut.address in addresses:
                cut.to_brokers += 1
                raise _unreachable()

    def check_zookeeper(self) -> None:
        """Check that no cut concerns ZooKeeper.

        :raises OSError: if a cut does
        """
        for cut in self._cuts.values():
            if cut.address is None:
                cut.to_zookeeper += 1
                raise _unreachable()


def _unreachable() -> OSError:
    return OSError(EHOSTUNREACH, "a fault of a test cuts this broker off")


class IsolatedNetwork:
    """A network whose connections to other brokers fail while a cut concerns them. Implements
    `Network`."""

    def __init__(self, network: Network, isolation: Isolation) -> None:
        self._network = network
        self._isolation = isolation
        self._names: dict[str, str] = {}
        """The host names that `look_up` has looked up, by their IP address."""
        self.socket_calls = network.socket_calls
        self.listen = network.listen

    def connect(self, host: str, port: int, from_address: str | None = None) -> StreamSocket:
        names = {host, self._names.get(host, host)}
        check = partial(self._isolation.check_broker, frozenset((each, port) for each in names))
        check()
        return _Stream(self._network.connect(host, port, from_address), check)

    def look_up(self, host: str) -> str:
        address = self._network.look_up(host)
        self._names[address] = host
        return address


class _Stream:
    """A connection to another broker, whose bytes pass only while ``check`` raises no OSError.
    Implements `StreamSocket`."""

    def __init__(self, stream: StreamSocket, check: Callable[[], None]) -> None:
        self.is_plain = stream.is_plain
        self.fileno = stream.fileno
        self.connect_error = stream.connect_error
        self.recv_into = _checked(check, stream.recv_into)
        self.send = _checked(check, stream.send)
        self.send_more = _checked(check, stream.send_more)
        self.send_file = _checked(check, stream.send_file)
        self.close = stream.close
        self.remote_address = stream.remote_address
        self.local_address = stream.local_address


def _checked(check: Callable[[], None], call: Callable[P, R]) -> Callable[P, R]:
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check()
        return call(*args, **kwargs)

    return checked
