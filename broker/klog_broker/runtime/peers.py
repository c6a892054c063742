"""Connections to the other brokers of a cluster, by host name or address. Loop thread only."""

import logging
from functools import partial
from typing import Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.sockets import Network, StreamSocket
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import MAX_RESPONSE_BYTES
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings

_log = logging.getLogger("klog.peers")

_JITTER_STEPS = 1 << 16


class Connect(Protocol):
    """Returns a new connection to a broker. The connection connects when its first request is sent
    (`Peers.connect`)."""

    def __call__(self, host: str, port: int, /) -> EventedConnection: ...


class ConnectPipelined(Protocol):
    """Returns a new connection as `Connect` does, with up to `max_in_flight` requests in flight."""

    def __call__(self, host: str, port: int, /, *, max_in_flight: int) -> EventedConnection: ...


class Peers:
    """Makes connections to other brokers.

    Helper threads (`helpers`) look up host names, because a look-up blocks. `from_address` is the
    local IP address of the connections; None lets the system choose.
    """

    def __init__(
        self,
        loop: Loop,
        helpers: Helpers,
        network: Network,
        chance: Chance,
        *,
        client_id: str,
        from_address: str | None = None,
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._client_id = client_id
        self._from_address = from_address
        self._connector = _NameResolvingConnector(helpers, network)

    def connect(
        self,
        host: str,
        port: int,
        *,
        max_in_flight: int = 5,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> EventedConnection:
        """Return a new connection, which connects when the first request is sent.

        If the connection is lost, its outstanding requests fail, and the next request connects
        again. Requests also fail while the host name is being looked up, so callers have to retry.
        """
        settings = EventedSettings(
            client_id=self._client_id,
            from_address=self._from_address,
            max_in_flight=max_in_flight,
            max_response_bytes=max_response_bytes,
        )
        return EventedConnection(
            Address(host, port),
            settings,
            loop=self._loop,
            connector=self._connector,
            random=lambda: self._chance.below(_JITTER_STEPS) / _JITTER_STEPS,
        )


class _NameResolvingConnector:
    """A `Connector` (it makes the streams of `EventedConnection` objects) that accepts host names.

    A helper thread looks up the name. Until the address is known, `connect` raises OSError, and the
    connection fails its requests, as after any failed attempt; a later request tries again. Each
    look-up serves one attempt.
    """

    def __init__(self, helpers: Helpers, network: Network) -> None:
        self._helpers = helpers
        self._network = network
        self._found: dict[str, str] = {}
        self._under_way: set[str] = set()

    def connect(self, host: str, port: int, from_address: str | None, /) -> StreamSocket:
        try:
            return self._network.connect(host, port, from_address)
        except ValueError:
            address = self._found.pop(host, None)
        if address is not None:
            return self._network.connect(address, port, from_address)
        if host not in self._under_way:
            self._under_way.add(host)
            self._helpers.submit(
                lambda: self._network.look_up(host), partial(self._looked_up, host)
            )
        raise OSError(f"the address of {host} is being looked up")

    def _looked_up(self, host: str, address: str | None, error: BaseException | None) -> None:
        self._under_way.discard(host)
        if address is not None:
            self._found[host] = address
        else:
            _log.warning("cannot look up the address of the broker at %s: %s", host, error)
